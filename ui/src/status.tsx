// Status: the build, the resources that the process uses, its tenants and its
// configuration.
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { ask, Failure, fetchAPI, usePoll } from './api'
import { bytes, compact, count, dateTime, span } from './format'
import { Empty, Figure, Figures, Loading, Panel, Problem } from './parts'
import { limits, Tenants } from './series'

interface Build {
  version: string
  revision: string
  goVersion: string
}

interface Runtime {
  startTime: string
  CWD: string
  GOMAXPROCS: number
  storageRetention: string
}

interface Process {
  pid: number
  uptime_seconds: number
  listening: Record<string, string | number>
  cpu_user_seconds: number
  cpu_system_seconds: number
  resident_bytes: number
  max_resident_bytes: number
  threads: number
  heap_live_bytes: number
  gc_cycles: number
  goroutines: number
}

const data = <T,>(path: string) => async (signal: AbortSignal) => (await ask<T>(path, {}, signal)).data

// Readiness is the answer of /-/ready. Only operators see which stores are broken.
interface Readiness {
  ready: boolean
  waits_for?: string
  stores?: { done: number; total: number }
  broken: number
  broken_stores?: { tenant: string; store: string; error: string; way_out: string }[]
}

async function readiness(signal: AbortSignal): Promise<Readiness> {
  const response = await fetchAPI('-/ready', { signal })
  return response.json().catch(() => {
    throw new Failure(`/-/ready answered ${response.status} ${response.statusText}`)
  })
}

function inWords(r: Readiness): string {
  if (r.ready) return r.broken ? `Ready, but ${r.broken} ${r.broken === 1 ? 'store' : 'stores'} cannot be opened` : 'Ready'
  return `Not ready: waiting until ${r.waits_for}` + (r.stores ? `, ${r.stores.done} of ${r.stores.total}` : '')
}

export function Status() {
  const build = usePoll(data<Build>('api/v1/status/buildinfo'), 60_000, [])
  const runtime = usePoll(data<Runtime>('api/v1/status/runtimeinfo'), 60_000, [])
  const process = usePoll(data<Process>('api/v1/status/process'), 2000, [])
  const ready = usePoll(readiness, 2000, [])
  const limit = usePoll(limits, 5000, [])
  return (
    <div class="status">
      <div class="toolbar">
        <h1>Status</h1>
        <p class="note" role="status">
          {ready.data ? inWords(ready.data) : (ready.error?.message ?? 'Loading…')}
        </p>
      </div>
      {ready.data?.broken_stores?.map((b) => (
        <p key={`${b.tenant}/${b.store}`} class="hint warn">
          Store {b.store} of tenant {b.tenant}: {b.error}. What to do: {b.way_out}.
        </p>
      ))}
      {process.data && <Cost process={process.data} cores={runtime.data?.GOMAXPROCS} />}
      {process.error && <Problem error={process.error} />}
      <div class="two">
        <Panel title="Build">
          {build.error ? <Problem error={build.error} /> : !build.data ? <Loading what="Loading…" /> : (
            <Pairs
              of={[
                ['version', build.data.version],
                ['revision', build.data.revision || 'unknown'],
                ['Go', build.data.goVersion],
                ['started', runtime.data ? dateTime(Date.parse(runtime.data.startTime) / 1000) : ''],
                ['data directory', runtime.data?.CWD ?? ''],
                ['tiles of 1 min are kept', runtime.data?.storageRetention ? span(hours(runtime.data.storageRetention)) : ''],
                ['third-party licences', <a href="licenses.txt">licenses.txt</a>],
              ]}
            />
          )}
        </Panel>
        <Panel title="Listening on">
          {!process.data ? <Loading what="Loading…" /> : (
            <Pairs of={Object.entries(process.data.listening).filter(([k, v]) => k !== 'pid' && v !== '').map(([k, v]) => [k.replaceAll('_', ' '), String(v)])} />
          )}
        </Panel>
      </div>
      {limit.error ? <Problem error={limit.error} /> : limit.data && <Tenants all={limit.data.tenants} />}
      <Configuration />
      <Flags />
    </div>
  )
}

// hours reads the hours of a Go duration, such as 960h0m0s, and returns them in seconds.
const hours = (text: string) => 3600 * Number(text.match(/^(\d+)h/)?.[1] ?? 0)

function Cost(props: { process: Process; cores?: number }) {
  const p = props.process
  const cpu = p.cpu_user_seconds + p.cpu_system_seconds
  return (
    <Figures>
      <Figure name="Up" value={span(p.uptime_seconds)} note={`pid ${p.pid}`} />
      <Figure name="Processor" value={`${compact(cpu)} s`} note={`since it started${props.cores ? `, ${props.cores} cores` : ''}`} />
      <Figure name="Memory" value={bytes(p.resident_bytes)} note={`peak ${bytes(p.max_resident_bytes)}`} />
      <Figure name="Heap in use" value={bytes(p.heap_live_bytes)} note={`${count(p.gc_cycles)} garbage collections`} />
      <Figure name="Goroutines" value={count(p.goroutines)} note={`${count(p.threads)} threads`} />
    </Figures>
  )
}

function Pairs(props: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="pairs">
      {props.of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd class="code">{value}</dd>
        </div>
      ))}
    </dl>
  )
}

// todo returns the reason why the configuration and the flags are not shown.
function todo(error: Failure): string | undefined {
  return error.status === 403 ? 'Only operators may see this, since it names all tenants.' : undefined
}

function Configuration() {
  const [whole, setWhole] = useState(false)
  const { data: answer, error } = usePoll(data<{ yaml: string }>('api/v1/status/config'), 30_000, [])
  const yaml = answer?.yaml ?? ''
  return (
    <Panel
      title="Configuration"
      note="in force now; settings that differ from the default"
      actions={
        <label class="check">
          <input type="checkbox" checked={whole} onChange={(e) => setWhole(e.currentTarget.checked)} /> Show defaults
        </label>
      }
    >
      {error && <Problem error={error} todo={todo(error)} />}
      {!answer && !error && <Loading what="Loading…" />}
      {answer && (
        <pre class="scroll" tabIndex={0} role="region" aria-label="Configuration as YAML">
          {whole ? yaml : settings(yaml) || '# all defaults'}
        </pre>
      )}
    </Panel>
  )
}

// settings removes comments, and then empty sections.
function settings(yaml: string): string {
  const lines = yaml.split('\n').filter((l) => l.trim() !== '' && !l.trim().startsWith('#'))
  const depth = (l: string) => l.length - l.trimStart().length
  for (let i = lines.length - 1; i >= 0; i--) {
    if (/:\s*$/.test(lines[i]) && (i + 1 >= lines.length || (depth(lines[i + 1]) <= depth(lines[i]) && !lines[i + 1].trimStart().startsWith('-')))) lines.splice(i, 1)
  }
  return lines.join('\n')
}

function Flags() {
  const [filter, setFilter] = useState('')
  const { data: flags, error } = usePoll(data<Record<string, string>>('api/v1/status/flags'), 0, [])
  const rows = Object.entries(flags ?? {}).filter(([name, value]) => `${name} ${value}`.toLowerCase().includes(filter.toLowerCase()))
  return (
    <Panel
      title="Flags"
      note="of this process"
      actions={
        <label class="field inline">
          Filter
          <input type="search" data-slash value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
        </label>
      }
    >
      {error && <Problem error={error} todo={todo(error)} />}
      {!flags && !error && <Loading what="Loading…" />}
      {flags && rows.length === 0 && <Empty>No flag matches the filter.</Empty>}
      {rows.length > 0 && (
        <dl class="flags code">
          {rows.map(([name, value]) => (
            <div key={name}>
              <dt>--{name}</dt>
              <dd>{value || '–'}</dd>
            </div>
          ))}
        </dl>
      )}
    </Panel>
  )
}
