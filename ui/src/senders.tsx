// Senders: who sends, how much, how late, and what of it is refused, by all inputs and at all nodes.
import { useRef, useState } from 'preact/hooks'
import { ask, usePoll } from './api'
import { compact, count, dateTime, span } from './format'
import { Empty, Loading, Panel, Problem, Table } from './parts'
import { inputName, senderName, type Sender } from './series'

interface Source extends Sender {
  input: string
  node?: string
  name?: string // of a collector, or of the sender's token
  id?: string
  user_agent?: string
  samples_per_second: number
  last_seen: number
  lag_seconds?: number
  refused?: Record<string, number>
  history?: number[]
}

interface Answer {
  counting: boolean
  senders: Source[]
  others: { senders: number; samples_per_second: number }
  nodes?: { name: string; error?: string }[]
}

const nameOf = (s: Source) => {
  const known = [s.name, s.address || s.process || s.container ? senderName(s) : '', s.user_agent].filter(Boolean)
  return known.join(', ') || 'unknown'
}
const keyOf = (s: Source) => [s.input, s.node, s.id, nameOf(s)].join('\n')
const inputs = (all: Source[]) => [...new Set(all.map((s) => s.input))].sort()

const every = 3 // seconds between two answers
const kept = 100 // values of a history that the page keeps itself

// useHistories keeps the rates that the page has seen of senders for which the server keeps no history.
function useHistories(all: Source[] | undefined) {
  const seen = useRef(new Map<string, number[]>())
  const last = useRef(all)
  if (all && all !== last.current) {
    last.current = all
    const now = new Map<string, number[]>()
    for (const s of all) if (!s.history) now.set(keyOf(s), [...(seen.current.get(keyOf(s)) ?? []), s.samples_per_second].slice(-kept))
    seen.current = now
  }
  return (s: Source) => s.history ?? seen.current.get(keyOf(s)) ?? []
}

export function Senders() {
  const { data, error } = usePoll(async (s) => (await ask<Answer>('api/v1/status/senders', { limit: '100' }, s)).data, every * 1000, [])
  const [filter, setFilter] = useState('')
  const historyOf = useHistories(data?.senders)
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean)
  const text = (s: Source) => [nameOf(s), inputName(s.input), s.node, ...Object.keys(s.refused ?? {})].join(' ').toLowerCase()
  const rows = (data?.senders ?? []).filter((s) => words.every((w) => text(s).includes(w)))
  return (
    <div class="senders">
      <div class="toolbar">
        <h1>Senders</h1>
        <p class="note">Who sends, how much, how late, and what of it is refused{data?.nodes && ', at all nodes of the cluster'}</p>
      </div>
      {data?.nodes?.filter((n) => n.error).map((n) => (
        <p key={n.name} class="hint warn">
          Senders may be missing: node {n.name} does not say its own: {n.error}
        </p>
      ))}
      {error && <Problem error={error} />}
      {data && (
        <label class="field">
          Filter
          <input type="search" data-slash value={filter} placeholder="address, program, input, reason" onInput={(e) => setFilter(e.currentTarget.value)} />
        </label>
      )}
      <Panel title="All senders" note="most samples first: of remote write and OTLP in the last 15 minutes, of DogStatsD in the last ten seconds">
        {!data && !error && <Loading what="Asking who sends…" />}
        {data && !data.counting && <Loading what="Watching senders of DogStatsD. This takes a second or two…" />}
        {data && data.counting && data.senders.length === 0 && <Empty>Nobody has sent anything in the last minutes. Explore shows how to send a metric.</Empty>}
        {data && data.senders.length > 0 && rows.length === 0 && <Empty>No sender matches the filter. There are {inputs(data.senders).map(inputName).join(', ')}.</Empty>}
        {rows.length > 0 && <SenderTable rows={rows} nodes={data!.nodes !== undefined} historyOf={historyOf} />}
        {data && data.others.senders > 0 && (
          <p class="note">
            {count(data.others.senders)} more senders, with {compact(data.others.samples_per_second)} samples a second together, are not listed.
          </p>
        )}
      </Panel>
    </div>
  )
}

function SenderTable(props: { rows: Source[]; nodes: boolean; historyOf: (s: Source) => number[] }) {
  const now = Date.now() / 1000
  return (
    <Table
      label="All senders"
      stacks
      rows={props.rows}
      columns={[
        { name: 'sender', class: 'code', sort: nameOf, cell: nameOf },
        { name: 'input', class: 'nowrap', sort: (s) => inputName(s.input), cell: (s) => inputName(s.input) },
        ...(props.nodes ? [{ name: 'node', class: 'code', sort: (s: Source) => s.node, cell: (s: Source) => s.node ?? '' }] : []),
        { name: 'samples/s', number: true, sort: (s) => s.samples_per_second, cell: (s) => compact(s.samples_per_second) },
        { name: 'lately', class: 'nowrap', cell: (s) => <Sparkline values={props.historyOf(s)} /> },
        { name: 'last seen', number: true, sort: (s) => now - s.last_seen, cell: (s) => <time title={dateTime(s.last_seen)}>{span(Math.max(0, Math.round(now - s.last_seen)))} ago</time> },
        { name: 'lag', number: true, sort: (s) => s.lag_seconds, cell: (s) => (s.lag_seconds === undefined ? '–' : span(Math.max(0, Math.round(s.lag_seconds)))) },
        { name: 'refused', sort: (s) => Object.values(s.refused ?? {}).reduce((a, b) => a + b, 0), cell: (s) => <Refused reasons={s.refused ?? {}} /> },
      ]}
    />
  )
}

function Refused(props: { reasons: Record<string, number> }) {
  const all = Object.entries(props.reasons).sort(([a, x], [b, y]) => y - x || a.localeCompare(b))
  if (all.length === 0) return <>–</>
  return (
    <>
      {all.map(([reason, n], i) => (
        <span key={reason}>
          {i > 0 && ', '}
          <b class="warn">{count(n)}</b> <span class="code">{reason}</span>
        </span>
      ))}
    </>
  )
}

const width = 120
const height = 24

// Sparkline draws values beside a number. Its highest value is in its description.
function Sparkline(props: { values: number[] }) {
  const { values } = props
  const most = Math.max(...values, 0)
  if (values.length < 2) return <span class="note">–</span>
  const x = (i: number) => ((i * width) / (values.length - 1)).toFixed(1)
  const y = (v: number) => (height - 1 - (most > 0 ? (v / most) * (height - 2) : 0)).toFixed(1)
  return (
    <svg class="sparkline" viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label={`at most ${compact(most)} samples a second`}>
      <polyline points={values.map((v, i) => `${x(i)},${y(v)}`).join(' ')} />
    </svg>
  )
}
