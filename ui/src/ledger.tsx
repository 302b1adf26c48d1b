// The ledger: how many samples and datagrams are in each state. Each is in exactly one state.
import { useEffect, useState } from 'preact/hooks'
import { ask, usePoll } from './api'
import type { Polled } from './api'
import { compact, count, dateTime, percent, seconds } from './format'
import { Loading, Panel, Problem } from './parts'

type Reasons = Record<string, number>

export interface Books {
  tenant: string
  node?: string // in a cluster, the node that answers
  nodes?: LedgerNode[] // of which the books are the sum
  collectors?: LedgerCollector[] // on other hosts, which are in the sum, too
  started_ms: number
  boundary_ms: number
  samples: {
    received: number
    restored: number
    collected?: number
    handed_over?: number
    malformed: Reasons
    refused: Reasons
    late: Reasons
    unsent: Reasons
    discarded: Reasons
    window: number
    tile: number
    stored: number
    difference: number
    of_which: { folded: number; late_kept: number; ahead: number; respelled: number }
  }
  datagrams: { received: number; read: number; kernel_dropped: number; oversized: number; cut_frames: number; refused_connections: number }
  clients?: Record<string, number>
}

interface LedgerNode {
  name: string
  started_ms: number
  received: number
  handed_over: number
  age_seconds?: number // of the last books of a node that does not answer
  error?: string
}

interface LedgerCollector extends LedgerNode {
  id: string // tells collectors of one name apart
  ended: boolean // it has stopped, and its books are final
}

// Rates look back this many seconds, since tiles are stored in bursts ten seconds apart.
const lookBack = 10

// processes names the processes of which books are. A restarted process counts from 0.
const processes = (b: Books) => JSON.stringify([b.started_ms, (b.nodes ?? []).map((n) => [n.name, n.started_ms]), (b.collectors ?? []).map((c) => [c.id, c.started_ms])])

export interface Ledger extends Polled<Books> {
  before?: Books // earlier books of the same processes
}

export function useLedger(local: boolean): Ledger {
  const polled = usePoll(async (signal) => (await ask<Books>('api/v1/status/ledger', local ? { local: 'true' } : {}, signal)).data, 1000, [local])
  const [seen, setSeen] = useState<Books[]>([])
  useEffect(() => {
    const books = polled.data
    if (books) setSeen((was) => [...was.filter((b) => processes(b) === processes(books)), books].slice(-lookBack - 1))
  }, [polled.data])
  return { ...polled, before: seen[0] }
}

const total = (r: Reasons | undefined) => Object.values(r ?? {}).reduce((a, b) => a + b, 0)

interface Row {
  name: string
  what?: string // explains the name
  of: (b: Books) => number
  kind?: 'sum' | 'lost' | 'reason' | 'way'
}

const lost = [
  ['malformed', 'cannot be read'],
  ['refused', 'read, but will never be stored'],
  ['late', 'arrived after their tile was closed'],
  ['unsent', 'still waiting for the aggregator when the process ended'],
  ['discarded', 'in windows that no aggregator takes'],
] as const

function sampleRows(b: Books): Row[] {
  const rows: Row[] = [{ name: 'received', what: 'values on the wire', of: (x) => x.samples.received, kind: 'sum' }]
  if (b.samples.restored) rows.push({ name: 'in tiles at the start', what: 'left over from the process before', of: (x) => x.samples.restored, kind: 'sum' })
  if (b.samples.collected) rows.push({ name: 'from collectors', what: 'in the log of the cluster, from the collectors of all nodes and hosts', of: (x) => x.samples.collected ?? 0, kind: 'sum' })
  for (const [name, what] of lost) {
    const reasons = Object.keys(b.samples[name] ?? {}).sort()
    if (reasons.length === 0 && (name === 'unsent' || name === 'discarded')) continue
    rows.push({ name, what, of: (x) => total(x.samples[name]), kind: 'lost' })
    for (const reason of reasons) rows.push({ name: reason, of: (x) => x.samples[name]?.[reason] ?? 0, kind: 'reason' })
  }
  if (b.samples.handed_over) rows.push({ name: 'handed over', what: 'acknowledged by the leader of the cluster; all nodes have them from its log', of: (x) => x.samples.handed_over ?? 0 })
  rows.push(
    { name: 'in windows', what: 'in a window of one second; lost if the process dies now', of: (x) => x.samples.window, kind: 'way' },
    { name: 'in tiles', what: 'in the journal and in an open tile', of: (x) => x.samples.tile, kind: 'way' },
    { name: 'stored', of: (x) => x.samples.stored },
  )
  return rows
}

const datagramRows: Row[] = [
  { name: 'received', of: (x) => x.datagrams.received, kind: 'sum' },
  { name: 'read', of: (x) => x.datagrams.read },
  { name: 'dropped by the kernel', of: (x) => x.datagrams.kernel_dropped, kind: 'lost' },
  { name: 'oversized', of: (x) => x.datagrams.oversized, kind: 'lost' },
  { name: 'frames cut off', of: (x) => x.datagrams.cut_frames, kind: 'lost' },
]

export function LedgerPanel(props: Ledger) {
  const { data, error } = props
  const before = data && props.before && processes(props.before) === processes(data) ? props.before : undefined
  return (
    <Panel title="Ledger" class="ledger" note={data && titleOf(data)}>
      {error && <Problem error={error} />}
      {!data && !error && <Loading what="Loading…" />}
      {data?.nodes?.filter((n) => n.error).map((n) => <Short key={n.name} part="node" node={n} />)}
      {data?.collectors?.filter((c) => c.error).map((c) => <Short key={c.id} part="collector" node={c} />)}
      {data && <Balance books={data} />}
      {data && <BookTable title="Samples" rows={sampleRows(data)} now={data} before={before} whole={data.samples.received + data.samples.restored + (data.samples.collected ?? 0)} />}
      {data && <OfWhich books={data} />}
      {data && <Negative books={data} />}
      {data && <BookTable title="Datagrams" rows={datagramRows} now={data} before={before} whole={data.datagrams.received} />}
      {data?.clients && <Clients counts={data.clients} />}
      {data?.nodes && <Processes title="Nodes" all={data.nodes} />}
      {data?.nodes && <p class="note">“From collectors” and what became of it is counted once, as node {data.node} has it.</p>}
      {data?.collectors && <Processes title="Collectors" all={data.collectors} />}
    </Panel>
  )
}

function titleOf(b: Books): string {
  const whose = b.nodes ? `, the sum of all nodes${b.collectors ? ' and collectors' : ''}` : b.node ? `, node ${b.node} alone` : ''
  return `tenant ${b.tenant}${whose}${b.nodes ? '' : `, since ${dateTime(b.started_ms / 1000)}`}`
}

function Short(props: { part: string; node: LedgerNode }) {
  const { name, error, age_seconds } = props.node
  return (
    <p class="hint warn">
      The sum may be short: the books of {props.part} {name} are {age_seconds === undefined ? 'missing' : `${seconds(age_seconds)} old`}: {error}
    </p>
  )
}

// stateOf says how a collector is.
const stateOf = (c: Partial<LedgerCollector>) => (c.ended ? 'stopped' : c.error ? 'silent' : 'runs')

// Processes shows what each node or collector added to the sum.
function Processes(props: { title: string; all: (LedgerNode & Partial<LedgerCollector>)[] }) {
  return (
    <table class="books">
      <thead>
        <tr>
          <th scope="col">{props.title}</th>
          <th scope="col" class="number">
            received
          </th>
          <th scope="col" class="number">
            handed over
          </th>
          <th scope="col" class="number">
            {props.title === 'Nodes' ? 'since' : 'state'}
          </th>
        </tr>
      </thead>
      <tbody>
        {props.all.map((n) => (
          <tr key={n.id ?? n.name} class={n.error ? 'lost some' : ''}>
            <th scope="row">{n.name}</th>
            <td class="number">{n.started_ms ? count(n.received) : '–'}</td>
            <td class="number">{n.started_ms ? count(n.handed_over) : '–'}</td>
            <td class="number">{n.id ? stateOf(n) : n.started_ms ? dateTime(n.started_ms / 1000) : '–'}</td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

function Balance(props: { books: Books }) {
  const { difference } = props.books.samples
  if (difference === 0) return <p class="balance good">The books close: the difference is 0.</p>
  return (
    <p class="balance bad" role="alert">
      The books do not close: the difference is {count(difference)}. This is a bug in Freshet. Please report it with the output of freshet ledger --json.
    </p>
  )
}

function BookTable(props: { title: string; rows: Row[]; now: Books; before?: Books; whole: number }) {
  const { now, before, whole } = props
  const passed = before ? (now.boundary_ms - before.boundary_ms) / 1000 : 0
  return (
    <table class="books">
      <thead>
        <tr>
          <th scope="col">{props.title}</th>
          <th scope="col" class="number">
            total
          </th>
          <th scope="col" class="number">
            share
          </th>
          <th scope="col" class="number">
            per second
          </th>
        </tr>
      </thead>
      <tbody>
        {props.rows.map((r) => {
          const n = r.of(now)
          const rate = before && passed > 0 && r.kind !== 'way' ? Math.max(0, n - r.of(before)) / passed : null
          return (
            <tr key={r.name} class={[r.kind ?? '', r.kind === 'lost' && n > 0 ? 'some' : ''].join(' ')}>
              <th scope="row" title={r.what}>
                {r.name}
              </th>
              <td class="number">{count(n)}</td>
              <td class="number">{whole > 0 && n > 0 && r.kind !== 'sum' ? percent(n / whole) : ''}</td>
              <td class="number">{rate === null ? '' : compact(rate)}</td>
            </tr>
          )
        })}
      </tbody>
    </table>
  )
}

function OfWhich(props: { books: Books }) {
  const w = props.books.samples.of_which
  const parts = [
    [w.folded, 'folded into overflow series'],
    [w.late_kept, 'late but kept'],
    [w.ahead, 'ahead of the clock'],
    [w.respelled, 'respelled'],
  ].filter(([n]) => n)
  return parts.length ? <p class="note">Of these samples, {parts.map(([n, what]) => `${count(n as number)} ${what}`).join(', ')}.</p> : null
}

// Negative shows what to do about negative increments of counters, which StatsD clients
// may send.
function Negative(props: { books: Books }) {
  const n = props.books.samples.refused.negative ?? 0
  return n > 0 ? (
    <p class="note">
      Refused: {count(n)} negative increments, since a counter cannot go down. To store them, add a mapping rule with <code>updown: true</code>, which makes an up/down counter.
    </p>
  ) : null
}

function Clients(props: { counts: Record<string, number> }) {
  const rows = Object.entries(props.counts).filter(([, n]) => n > 0)
  if (rows.length === 0) return null
  return (
    <table class="books">
      <thead>
        <tr>
          <th scope="col">Reported by clients</th>
          <th scope="col" class="number">
            total
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map(([name, n]) => (
          <tr key={name} class={name.includes('dropped') ? 'lost some' : ''}>
            <th scope="row">{name}</th>
            <td class="number">{count(n)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}
