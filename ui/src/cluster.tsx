// Cluster: the nodes, which of them leads, and what is unusual. The page keeps the lags that it saw since
// it was opened.
import { useEffect, useState } from 'preact/hooks'
import { ask, usePoll } from './api'
import { Chart } from './chart'
import { bytes, count, dateTime, seconds } from './format'
import { Figure, Figures, Loading, Panel, Refusal, Table } from './parts'

interface Node {
  name: string
  ready: boolean
  applied: number | null
  lag_seconds: number | null
  address?: string
  part?: string
  drained?: boolean
  drained_seconds?: number // until the drain ends by itself
  version?: string
  ahead_seconds?: number
  seen_seconds?: number
  error?: string
  log_bytes?: number
  log_pins?: string[]
  fill?: { from: string; bytes: number; of_bytes: number; seconds: number; eta_seconds: number | null; failures: number; error?: string }
  log_append_seconds?: number
  leaderless_seconds?: number
  leaderless_total_seconds?: number
  digest?: 'agrees' | 'differs'
  digest_differed?: number
  damage?: { what: string; since: string }
  scrub?: { bytes: number; of_bytes: number; begun: string; last: string | null } // only of the node that answers
  disk?: { free_bytes: number; size_bytes: number; min_free_bytes: number; short: boolean }
  outbox?: Outbox
  missing_blocks?: number // imported blocks that the node lacks
}

interface Tenant {
  tenant: string
  bytes: number
}

interface Outbox {
  bytes: number
  samples: number
  oldest_seconds: number // 0 if nothing waits
}

interface Collector {
  name: string
  node: string // empty if it has not pushed
  pushed_seconds: number | null
  version?: string
  outbox?: Outbox
  told_seconds?: number
}

interface ClusterState {
  cluster?: string
  leader: string
  nodes: Node[]
  collectors?: Collector[]
  tenants?: Tenant[]
  settings_differ?: { section: string; nodes: string[][] }[]
  versions_differ?: { version: string; nodes?: string[]; collectors?: string[] }[]
}

interface Seen {
  time: number
  lags: Record<string, number | null>
}

const kept = 300 // lags of each node, one every two seconds

// Bounds are those of the alerts in deploy/alerts.yaml, in seconds and bytes.
const slowAppend = 0.5
const largeLog = 3e9
const clockOff = 1
const lagging = 5
const behind = 60

export function Cluster() {
  const { data, error } = usePoll(async (signal) => (await ask<ClusterState>('api/v1/status/cluster', {}, signal)).data, 2000, [])
  const [seen, setSeen] = useState<Seen[]>([])
  useEffect(() => {
    if (!data) return
    const lags = Object.fromEntries(data.nodes.map((n) => [n.name, n.error ? null : n.lag_seconds]))
    setSeen((was) => [...was, { time: Date.now() / 1000, lags }].slice(-kept))
  }, [data])
  return (
    <div class="cluster">
      <div class="toolbar">
        <h1>Cluster</h1>
        <p class="note" role="status">{data ? inWords(data) : error ? error.message : 'Loading…'}</p>
      </div>
      {error && <Refusal error={error} what="Nodes" />}
      {!data && !error && <Loading what="Loading…" />}
      {data && (data.cluster ? <Several cluster={data} seen={seen} /> : <Alone node={data.nodes[0]} />)}
    </div>
  )
}

function inWords(c: ClusterState): string {
  if (!c.cluster) return 'One node, which is in no cluster'
  const ready = c.nodes.filter((n) => n.ready).length
  return `${ready} of ${c.nodes.length} nodes ready, ${c.leader ? `${c.leader} leads` : 'no leader'}`
}

function Alone(props: { node?: Node }) {
  return (
    <Panel title="One node" note={props.node && `${props.node.name}, version ${props.node.version}`}>
      {props.node?.scrub && <p>{scrubbed(props.node)}</p>}
      <p>All data are on this machine alone. Three nodes hold three copies, and any one of them may die. To make a cluster, found it in an empty data directory, and let two more nodes join:</p>
      <pre>
        {'freshet cluster secret > cluster-secret\nfreshet cluster init --data-dir DIR --name a\nfreshet serve --data-dir DIR --cluster-node a --cluster-nodes a=HOST:7126,b=HOST:7126,c=HOST:7126 --cluster-secret-file cluster-secret\nfreshet serve ... --cluster-node b --cluster-join\nfreshet serve ... --cluster-node c --cluster-join'}
      </pre>
    </Panel>
  )
}

function Several(props: { cluster: ClusterState; seen: Seen[] }) {
  const { leader, nodes, collectors, tenants } = props.cluster
  const ready = nodes.filter((n) => n.ready).length
  const leaderless = Math.max(0, ...nodes.map((n) => (n.error ? 0 : (n.leaderless_seconds ?? 0))))
  const differs = nodes.filter((n) => n.digest === 'differs')
  const compared = nodes.filter((n) => n.digest === 'agrees')
  const log = Math.max(...nodes.map((n) => n.log_bytes ?? 0))
  const times = props.seen.map((s) => s.time)
  const oldest = Math.max(0, ...[...nodes, ...(collectors ?? [])].map((p) => p.outbox?.oldest_seconds ?? 0))
  const waiting = [...nodes, ...(collectors ?? [])].filter((p) => (p.outbox?.oldest_seconds ?? 0) > 0).map((p) => p.name)
  return (
    <>
      <Figures>
        <Figure name="Leader" value={leader || 'none'} note={leader ? '' : 'writes fail until there is one'} state={leader ? 'good' : 'bad'} />
        <Figure name="Ready" value={`${ready} of ${nodes.length}`} state={ready === nodes.length ? 'good' : 2 * ready > nodes.length ? 'warn' : 'bad'} />
        <Figure name="Without a leader" value={seconds(leaderless)} note={`${seconds(Math.max(0, ...nodes.map((n) => n.leaderless_total_seconds ?? 0)))} since the start`} state={leaderless > 0 ? 'bad' : 'good'} />
        <Figure name="States" value={differs.length > 0 ? 'differ' : compared.length > 1 ? 'agree' : 'unknown'} note={differs.length > 0 ? differs.map((n) => n.name).join(', ') : `${compared.length} of ${nodes.length} compared`} state={differs.length > 0 ? 'bad' : compared.length === nodes.length ? 'good' : 'warn'} />
        <Figure name="Largest log" value={bytes(log)} state={log > largeLog ? 'warn' : 'good'} />
        <Figure name="Outboxes" value={oldest > 0 ? `${seconds(oldest)} behind` : 'empty'} note={waiting.length > 3 ? `of ${count(waiting.length)} processes` : waiting.join(', ')} state={oldest > behind ? 'bad' : oldest > 0 ? 'warn' : 'good'} />
      </Figures>
      {(props.cluster.settings_differ ?? []).map((d) => (
        <p key={d.section} class="hint warn">
          Settings differ in the section {d.section}: {d.nodes.map((names) => names.join(', ')).join(' | ')}
        </p>
      ))}
      {props.cluster.versions_differ && <p class="hint warn">Versions differ: {props.cluster.versions_differ.map((v) => `${v.version}: ${[...(v.nodes ?? []), ...(v.collectors ?? []).map((c) => `collector ${c}`)].join(', ')}`).join(' | ')}</p>}
      {nodes.flatMap((n) => unusual(n).map((text) => (
        <p key={`${n.name} ${text}`} class="hint warn">
          Node {n.name}: {text}
        </p>
      )))}
      <Panel title="Nodes" note={nodes.map(scrubbed).join('')}>
        <Table
          label="Nodes"
          stacks
          rows={nodes}
          columns={[
            { name: 'node', class: 'code', cell: (n) => n.name },
            { name: 'state', cell: (n) => <State node={n} leader={leader} /> },
            { name: 'applied', number: true, cell: (n) => (n.applied === null ? '–' : count(n.applied)) },
            { name: 'lag', number: true, cell: (n) => figure(n.lag_seconds, seconds, lagging) },
            { name: 'log', number: true, cell: (n) => figure(n.log_bytes, bytes, largeLog) },
            { name: 'disk free', number: true, cell: (n) => (n.disk ? <span class={n.disk.short ? 'bad' : undefined}>{bytes(n.disk.free_bytes)}</span> : '–') },
            { name: 'slowest write', number: true, cell: (n) => figure(n.log_append_seconds, seconds, slowAppend) },
            { name: 'clock', number: true, cell: (n) => figure(n.ahead_seconds, (v) => (v > 0 ? '+' : '') + seconds(v), clockOff) },
            { name: 'state is', cell: (n) => <span class={n.digest === 'differs' ? 'bad' : undefined}>{n.digest === 'agrees' ? 'the same' : n.digest === 'differs' ? 'another' : 'not compared'}</span> },
            { name: 'outbox', number: true, cell: (n) => <Waiting outbox={n.outbox} /> },
            { name: 'version', class: 'code', cell: (n) => n.version ?? '–' },
            { name: 'address', class: 'code', cell: (n) => n.address ?? '–' },
          ]}
        />
      </Panel>
      <Panel title="Lag" note="since this page was opened">
        {times.length < 2 && <Loading what="Measuring…" />}
        {times.length > 1 &&
          nodes.map((n) => (
            <div key={n.name}>
              <h3 class="code">{n.name}</h3>
              <Chart label={`Lag of node ${n.name}`} small times={times} range={[times[0], times[times.length - 1]]} height={72} sync="cluster" format={seconds} lines={[{ name: n.name, values: props.seen.map((x) => x.lags[n.name] ?? null) }]} />
            </div>
          ))}
      </Panel>
      {tenants && (
        <Panel title="Tenants on disk" note="what their stores take on the node that answers">
          <Table
            label="Tenants on disk"
            rows={tenants}
            columns={[
              { name: 'tenant', class: 'code', cell: (t) => t.tenant },
              { name: 'on disk', number: true, cell: (t) => bytes(t.bytes) },
            ]}
          />
        </Panel>
      )}
      {collectors && (
        <Panel title="Collectors" note="processes that called a node in the last 10 minutes; what waits in their outboxes, as they told last">
          <Table
            label="Collectors"
            stacks
            rows={collectors}
            columns={[
              { name: 'collector', class: 'code', cell: (c) => c.name },
              { name: 'pushes to', class: 'code', cell: (c) => c.node || '–' },
              { name: 'last push', number: true, cell: (c) => ago(c.pushed_seconds) },
              { name: 'outbox', number: true, cell: (c) => <Waiting outbox={c.outbox} /> },
              { name: 'told', number: true, cell: (c) => ago(c.told_seconds) },
              { name: 'version', class: 'code', cell: (c) => c.version ?? '–' },
            ]}
          />
        </Panel>
      )}
    </>
  )
}

const ago = (v: number | null | undefined) => (v === null || v === undefined ? '–' : `${seconds(v)} ago`)

// Waiting shows how much waits in an outbox, and since when.
function Waiting(props: { outbox?: Outbox }) {
  const { outbox } = props
  if (!outbox) return <>–</>
  if (outbox.oldest_seconds === 0) return <>empty</>
  return (
    <span class={outbox.oldest_seconds > behind ? 'bad' : undefined}>
      {bytes(outbox.bytes)}, {seconds(outbox.oldest_seconds)} behind
    </span>
  )
}

// figure marks a value beyond its bound.
function figure(v: number | null | undefined, format: (v: number) => string, bound: number) {
  if (v === null || v === undefined) return '–'
  return <span class={Math.abs(v) > bound ? 'bad' : undefined}>{format(v)}</span>
}

function State(props: { node: Node; leader: string }) {
  const { node, leader } = props
  if (node.error) return <span class="bad">unreachable</span>
  if (node.damage) return <span class="bad">damaged</span>
  if (node.drained) return <span>drained</span>
  if (!node.ready) return <span class="bad">not ready</span>
  return <span>{node.name === leader ? 'leads' : (node.part ?? 'ready')}</span>
}

// scrubbed says how far the node that answers has read its files in search of damage.
function scrubbed(n: Node): string {
  if (!n.scrub) return ''
  const { bytes: read, of_bytes, begun, last } = n.scrub
  const time = (text: string) => dateTime(Date.parse(text) / 1000)
  return `the scrub of node ${n.name} has read ${bytes(read)} of ${bytes(of_bytes)} since ${time(begun)}; ${last ? `the last pass ended ${time(last)}` : 'no pass has ended since its start'}`
}

// unusual says what a person should know of a node.
function unusual(n: Node): string[] {
  const left = n.part === 'removed' ? ['it was removed, or a spare has taken its place; to join again, it needs an empty data directory'] : []
  if (n.error) return [...left, n.error + (n.seen_seconds === undefined ? '' : `; its figures are ${seconds(n.seen_seconds)} old`)]
  const all = [...left, ...(n.log_pins ?? []).map((pin) => (pin === 'checkpoint' ? 'its log grows until a checkpoint succeeds' : pin.startsWith('fill of ') ? `its log is kept for the ${pin}` : `its log grows until store ${pin} can be synced`))]
  if (n.fill) {
    const { from, bytes: has, of_bytes, eta_seconds, failures, error } = n.fill
    all.push(`it gets the data of ${from ? `node ${from}` : 'another node'}: ${bytes(has)} of ${bytes(of_bytes)}${eta_seconds === null ? '' : `, about ${seconds(eta_seconds)} left`}`)
    if (failures > 0) all.push(`${count(failures)} tries to get the data of a node failed, the last with: ${error}`)
  }
  if ((n.log_append_seconds ?? 0) > slowAppend) all.push(`a write to its log takes ${seconds(n.log_append_seconds!)}: its disk is slow`)
  if (n.drained) all.push(`drained${n.drained_seconds === undefined ? '' : ` for another ${seconds(n.drained_seconds)}`}: it does not lead, and is not ready, until freshet cluster undrain ${n.name}`)
  if (n.disk?.short) all.push(`its disk has ${bytes(n.disk.free_bytes)} left, less than cluster.min_free (${bytes(n.disk.min_free_bytes)}); writes are refused if that is so on too many nodes`)
  if (n.missing_blocks) all.push(`it lacks ${n.missing_blocks === 1 ? 'an imported block' : `${count(n.missing_blocks)} imported blocks`}, which it gets from other nodes; until then, its answers over their times have a warning`)
  if (n.damage) all.push(`damaged since ${dateTime(Date.parse(n.damage.since) / 1000)}: ${n.damage.what}`)
  if (n.digest === 'differs') all.push(`its state differs since entry ${count(n.digest_differed ?? 0)}, or before: do not trust its answers, and report this bug`)
  return all
}
