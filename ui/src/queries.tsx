// Queries: which of them run now, and which cost most in the last hour, at all nodes.
import { useState } from 'preact/hooks'
import { ask, usePoll } from './api'
import { blank, format, parse } from './explorestate'
import { compact, count, dateTime, printable, seconds, shortened, span } from './format'
import { Choice, Empty, Link, Loading, Panel, Problem, Table, type Column } from './parts'
import { ownTenant } from './self'

interface Asked {
  tenant: string
  query: string
  range_seconds?: number
  step_seconds?: number
}

interface Active extends Asked {
  node?: string
  begun: number
  waiting: boolean
  steps: number // 0 for a look-up of series or labels
  asker: string
}

interface Costly extends Asked {
  lookup?: boolean
  queries: number
  failed: number
  active: number
  running_seconds: number
  waited_seconds: number
  longest_seconds: number
  samples: number
  series: number
  example?: string // the query that ran longest
  askers: string[]
}

interface Answer {
  tenant: string // of this page
  all: boolean // the queries are of all tenants
  span_seconds: number
  active: Active[]
  more_active: number
  queries: Costly[]
  others: { expressions: number; queries: number; running_seconds: number; samples: number; dropped: number }
  nodes?: { name: string; error?: string }[]
}

const orders = [['time', 'Time'], ['count', 'Number'], ['longest', 'Longest'], ['samples', 'Samples']] as const
type Order = (typeof orders)[number][0]

const every = 3 // seconds between two answers
const cut = 1000 // bytes; the server cuts longer queries, which are then no PromQL

export function Queries() {
  const [by, setBy] = useState<Order>('time')
  const { data, error } = usePoll(async (s) => (await ask<Answer>('api/v1/status/queries', { limit: '50', sort: by }, s)).data, every * 1000, [by])
  return (
    <div class="queries">
      <div class="toolbar">
        <h1>Queries</h1>
        <p class="note">
          What is asked over HTTP{data && (data.all ? ', by all tenants' : `, by tenant ${data.tenant}`)}
          {data?.nodes && ', at all nodes of the cluster'}. <Link page="rules">Rules</Link> have their own times.
        </p>
      </div>
      {data?.nodes?.filter((n) => n.error).map((n) => (
        <p key={n.name} class="hint warn">
          Queries may be missing: node {n.name} does not say its own: {n.error}
        </p>
      ))}
      {error && <Problem error={error} />}
      <Panel title="Running now" note="the oldest first; one that waits has not had its first turn yet">
        {!data && !error && <Loading what="Asking which queries run…" />}
        {data && data.active.length === 0 && <Empty>No query runs.</Empty>}
        {data && data.active.length > 0 && <Running answer={data} />}
        {data && data.more_active > 0 && <p class="note">{count(data.more_active)} more are not listed.</p>}
      </Panel>
      <Panel
        title="The last hour"
        note="queries that differ only in numbers and in values of labels are one"
        actions={<Choice label="What comes first" value={by} options={orders} onChange={setBy} />}
      >
        {!data && !error && <Loading what="Asking what queries cost…" />}
        {data && data.queries.length === 0 && <Empty>No query was asked in the last hour. Explore asks one.</Empty>}
        {data && data.queries.length > 0 && <LastHour answer={data} />}
        {data && data.others.expressions > 0 && (
          <p class="note">
            {count(data.others.expressions)} more, asked {count(data.others.queries)} times, ran {seconds(data.others.running_seconds)} together and are not listed
            {data.others.dropped > 0 && `; ${count(data.others.dropped)} of them cost so little that the server forgot them`}.
          </p>
        )}
      </Panel>
    </div>
  )
}

function Running(props: { answer: Answer }) {
  const { answer } = props
  const now = Date.now() / 1000
  const columns: Column<Active>[] = [
    { name: 'query', class: 'code', cell: (q) => <Linked answer={answer} of={q} expr={q.steps > 0 ? q.query : ''} text={q.query} /> },
    ...whose<Active>(answer),
    ...(answer.nodes ? [{ name: 'node', class: 'code', cell: (q: Active) => q.node ?? '' }] : []),
    { name: 'from', cell: (q) => q.asker },
    { name: 'state', cell: (q) => <span class={q.waiting ? 'warn' : undefined}>{q.waiting ? 'waits' : 'runs'}</span> },
    { name: 'steps', number: true, sort: (q) => q.steps, cell: (q) => (q.steps > 0 ? count(q.steps) : '–') },
    { name: 'since', number: true, sort: (q) => now - q.begun, cell: (q) => <time title={dateTime(q.begun)}>{seconds(Math.max(0, now - q.begun))}</time> },
  ]
  return <Table label="Running now" stacks rows={answer.active} columns={columns} />
}

function LastHour(props: { answer: Answer }) {
  const { answer } = props
  const columns: Column<Costly>[] = [
    { name: 'query', class: 'code', sort: (q) => q.query, cell: (q) => <Linked answer={answer} of={q} expr={q.lookup ? '' : (q.example ?? '')} text={q.query} /> },
    ...whose<Costly>(answer),
    { name: 'from', cell: (q) => <From askers={q.askers} /> },
    { name: 'number', number: true, sort: (q) => q.queries, cell: (q) => count(q.queries) },
    { name: 'failed', number: true, sort: (q) => q.failed, cell: (q) => (q.failed > 0 ? <b class="warn">{count(q.failed)}</b> : '–') },
    { name: 'time', number: true, sort: (q) => q.running_seconds, cell: (q) => seconds(q.running_seconds) },
    { name: 'longest', number: true, sort: (q) => q.longest_seconds, cell: (q) => seconds(q.longest_seconds) },
    { name: 'waited', number: true, sort: (q) => q.waited_seconds, cell: (q) => seconds(q.waited_seconds) },
    { name: 'samples', number: true, sort: (q) => q.samples, cell: (q) => compact(q.samples) },
  ]
  return <Table label="The last hour" stacks rows={answer.queries} columns={columns} />
}

// whose is a column of tenants, if there may be several.
function whose<Row extends Asked>(a: Answer): Column<Row>[] {
  return a.all ? [{ name: 'tenant', class: 'code', sort: (q) => q.tenant, cell: (q) => q.tenant }] : []
}

// Linked is a query. It leads to Explore with an expression, if this page may ask it.
function Linked(props: { answer: Answer; of: Asked; expr: string; text: string }) {
  const { answer, of, expr } = props
  const text = shortened(printable(props.text), 300)
  const own = of.tenant === ownTenant
  if (!expr || new TextEncoder().encode(expr).length >= cut || (of.tenant !== answer.tenant && !own)) return <>{text}</>
  const range = of.range_seconds ? { range: Math.max(1, Math.round(of.range_seconds)), step: of.step_seconds ?? 0 } : {}
  const params = format({ ...parse(new URLSearchParams()), own, queries: [{ ...blank, expr, view: of.range_seconds ? '' : 'table' }], ...range })
  const title = of.range_seconds ? `Explore it over ${span(of.range_seconds)}` : 'Explore it'
  return (
    <Link page="explore" params={params} title={title}>
      {text}
    </Link>
  )
}

function From(props: { askers: string[] }) {
  const [first, ...more] = props.askers
  if (first === undefined) return <>–</>
  return (
    <span title={props.askers.join('\n')}>
      {printable(first)}
      {more.length > 0 && ` and ${count(more.length)} more`}
    </span>
  )
}
