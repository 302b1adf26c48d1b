// Slow traces: batches that were over their budget in a stage, and slow queries. The
// server holds the newest.
import { useState } from 'preact/hooks'
import { ask, usePoll } from './api'
import { clock, count, day, seconds } from './format'
import { Bar, Empty, Link, Loading, Panel, Refusal, Table } from './parts'
import { go, usePlace } from './router'

export interface Span {
  id: string
  parent?: string
  name: string
  offset_seconds: number
  seconds: number
  attributes?: Record<string, unknown>
  error?: string
}

export interface Trace {
  id: string
  name: string // dogstatsd, remote_write, otlp, tiles or query, or Prometheus' name for a query
  start: string
  seconds: number
  over?: string // the stage that was over its budget
  spans: Span[] // the root first
  spans_left_out?: number
}

// heads returns all traces, newest first, with only their root spans, because the trace of a query
// may have hundreds of spans.
export const heads = async (signal: AbortSignal) => (await ask<Trace[] | null>('api/v1/status/traces', { spans: 'root' }, signal)).data ?? []

// textOf reads an attribute, which may be of any type.
export const textOf = (span: Span | undefined, name: string): string => {
  const value = span?.attributes?.[name]
  return value === undefined || value === null ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value)
}

// kindOf returns the input of a traced batch, or "query". Prometheus has several names for queries.
export const kindOf = (t: Trace) => (t.name.startsWith('promql') ? 'query' : t.name)

// askedOf returns the span that has the text of a query.
export const askedOf = (t: Trace) => t.spans.find((s) => textOf(s, 'freshet.query'))

// when writes a time for a list, with the date unless it is today.
export function when(text: string): string {
  const unix = Date.parse(text) / 1000
  const today = day(Date.now() / 1000) === day(unix)
  return today ? clock(unix, true) : `${day(unix)} ${clock(unix)}`
}

// shownFirst is how many rows are shown until a click on “Show all”.
const shownFirst = 50

export function Traces() {
  const { params } = usePlace()
  const { data, error } = usePoll(heads, 5000, [])
  const [all, setAll] = useState(false)
  const name = params.get('name') ?? ''
  const over = params.get('over') ?? ''
  const filter = (key: string, value: string) => {
    const next = new URLSearchParams(params)
    if (value) next.set(key, value)
    else next.delete(key)
    go('records', next, true)
  }
  const found = (data ?? []).filter((t) => (!name || kindOf(t) === name) && (!over || t.over === over))
  const longest = Math.max(...found.map((t) => t.seconds))
  const leadTo = (t: Trace) => new URLSearchParams([...params, ['trace', t.id]])
  return (
    <Panel
      title="Slow traces"
      note={data && `${count(data.length)} in memory: batches over a stage’s budget, and slow queries`}
      actions={
        data &&
        data.length > 0 && (
          <>
            <Pick label="Kind" any="all" value={name} values={data.map(kindOf)} onPick={(v) => filter('name', v)} />
            <Pick label="Over budget in" any="any stage" value={over} values={data.map((t) => t.over ?? '')} onPick={(v) => filter('over', v)} />
          </>
        )
      }
    >
      {error && <Refusal error={error} what="Slow traces" />}
      {!data && !error && <Loading what="Loading…" />}
      {data && data.length === 0 && (
        <Empty>
          <p>Nothing was slow.</p>
          <p class="note">Since the server started, no stage was over its budget and no query took longer than self.traces.query.</p>
        </Empty>
      )}
      {data && data.length > 0 && found.length === 0 && <Empty>No trace matches the filter.</Empty>}
      {found.length > 0 && (
        <Table
          label="Slow traces"
          rows={found.slice(0, all ? undefined : shownFirst)}
          rowClass={() => 'leads'}
          columns={[
            {
              name: 'started',
              class: 'nowrap',
              cell: (t) => (
                <Link page="records" params={leadTo(t)} title="Show the spans">
                  {when(t.start)}
                </Link>
              ),
            },
            { name: 'kind', cell: (t) => <span class="tag">{kindOf(t)}</span> },
            {
              name: 'duration',
              number: true,
              cell: (t) => (
                <>
                  <Bar part={t.seconds / longest} state={t.over ? 'bad' : ''} />
                  <span class="counted took">{seconds(t.seconds)}</span>
                </>
              ),
            },
            { name: 'over budget', class: 'nowrap', cell: (t) => <OverBudget trace={t} /> },
            { name: 'query or batch', class: 'code what', cell: (t) => textOf(t.spans[0], 'freshet.query') || textOf(t.spans[0], 'query') || carried(t) },
          ]}
        />
      )}
      {found.length > shownFirst && !all && (
        <p class="all">
          <button type="button" onClick={() => setAll(true)}>
            Show all {count(found.length)}
          </button>
        </p>
      )}
    </Panel>
  )
}

function carried(t: Trace): string {
  const samples = Number(textOf(t.spans[0], 'freshet.samples'))
  const tenant = textOf(t.spans[0], 'freshet.tenant')
  if (!tenant) return 'datagrams' // a batch that was read from a socket and is not parsed yet
  return `${count(samples)} ${samples === 1 ? 'sample' : 'samples'} of ${tenant}`
}

// OverBudget shows the stage in which a batch was over its budget, and how long it took.
export function OverBudget(props: { trace: Trace }) {
  const { over, spans } = props.trace
  if (!over) return <span class="note">–</span>
  return (
    <span class="bad">
      <span aria-hidden="true">▲</span> {over} {seconds(Number(textOf(spans[0], 'freshet.over_seconds')))}
    </span>
  )
}

function Pick(props: { label: string; any: string; value: string; values: string[]; onPick: (value: string) => void }) {
  const values = [...new Set([...props.values, props.value])].filter(Boolean).sort()
  return (
    <label class="field inline">
      {props.label}
      <select value={props.value} onChange={(e) => props.onPick(e.currentTarget.value)}>
        <option value="">{props.any}</option>
        {values.map((v) => (
          <option key={v} value={v}>
            {v}
          </option>
        ))}
      </select>
    </label>
  )
}
