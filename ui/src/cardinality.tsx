// Cardinality: the series of the last days, and of one of them by metric, then by label with what each label costs,
// then by value. Counting reads all series of the days, so it waits for a click.
import { useState } from 'preact/hooks'
import { ask, usePoll } from './api'
import { count, percent } from './format'
import { Bar, Choice, Empty, Loading, Name, Panel, Problem, Table } from './parts'

interface Named {
  name: string
  series: number
}

interface Day {
  day: string
  series: number
  short?: string
}

interface Answer {
  day: string
  series: number
  short?: string
  metrics?: Named[]
  labels?: { label: string; values: number; series: number; saved: number }[]
  values?: Named[]
  others: number
  days?: Day[] // the newest is first
  since?: string
  grown?: { name: string; was: number; series: number }[]
}

type Show = (metric?: string, label?: string) => void

const lengths = [['7', '7 days'], ['31', '31 days']] as const

export function Cardinality() {
  const [last, setLast] = useState(new Date().toISOString().slice(0, 10)) // of the days that have bars
  const [day, setDay] = useState(last) // whose tables are shown
  const [days, setDays] = useState<(typeof lengths)[number][0]>('7')
  const [metric, setMetric] = useState<string>()
  const [label, setLabel] = useState<string>()
  const [asked, setAsked] = useState(false)
  const show: Show = (metric, label) => (setMetric(metric), setLabel(label))
  return (
    <Panel
      title="Cardinality"
      note="series of a day, in all stores, and what each label costs"
      actions={
        <>
          <Choice label="Days with bars" value={days} options={lengths} onChange={setDays} />
          <input type="date" aria-label="Day, in UTC" value={day} onInput={(e) => e.currentTarget.value && (setLast(e.currentTarget.value), setDay(e.currentTarget.value))} />
          <button type="button" title="Reads all series of the days, for at most 5 s" onClick={() => (setAsked(true), show())}>
            Count
          </button>
        </>
      }
    >
      {!asked && <Empty>“Count” shows the metrics with the most series, how they grew in the last days, and how many series each label of a metric costs.</Empty>}
      {asked && (
        <p class="note">
          <button type="button" class="plain" onClick={() => show()}>All metrics</button>
          {metric && <> › <button type="button" class="plain" onClick={() => show(metric)}><Name text={metric} /></button></>}
          {label && <> › <span class="code">{label}</span></>}
        </p>
      )}
      {asked && <Counted key={`${last}\n${days}\n${metric}`} last={last} days={days} day={day} metric={metric} label={label} choose={setDay} show={show} />}
    </Panel>
  )
}

const asks = (of: Record<string, string>) => async (s: AbortSignal) => (await ask<Answer>('api/v1/status/cardinality', { limit: '20', ...of }, s)).data

function Counted(props: { last: string; days: string; day: string; metric?: string; label?: string; choose: (day: string) => void; show: Show }) {
  const { last, days, day, metric = '', label = '', choose, show } = props
  const { data, error } = usePoll(asks({ day: last, days, metric }), 0, [])
  if (error) return <Problem error={error} />
  if (!data) return <Loading what="Counting…" />
  return (
    <>
      <Short why={data.short} />
      {data.days && <Days days={data.days} chosen={day} choose={choose} />}
      {day === last && !label ? <Tables answer={data} metric={metric} show={show} /> : <OfDay key={`${day}\n${label}`} day={day} metric={metric} label={label} show={show} />}
      {data.since && <Grown answer={data} since={data.since} show={show} />}
    </>
  )
}

// OfDay asks for another day than the last one, or for the values of a label.
function OfDay(props: { day: string; metric: string; label: string; show: Show }) {
  const { day, metric, label, show } = props
  const { data, error } = usePoll(asks({ day, metric, label }), 0, [])
  if (error) return <Problem error={error} />
  if (!data) return <Loading what="Counting…" />
  return (
    <>
      <Short why={data.short} />
      <Tables answer={data} metric={metric} show={show} />
    </>
  )
}

const Short = (props: { why?: string }) => (props.why ? <p class="hint warn">The counts are too low: {props.why}.</p> : null)

// Days has a bar for each day. CSS puts the newest at the right end, which stays in sight where there is no room for all.
function Days(props: { days: Day[]; chosen: string; choose: (day: string) => void }) {
  const most = Math.max(1, ...props.days.map((d) => d.series))
  const text = (d: Day) => `${d.day}: ${d.short ? 'at least ' : ''}${count(d.series)} series`
  return (
    <div class="days" role="group" aria-label="Series by day, in UTC">
      {props.days.map((d) => (
        <button key={d.day} type="button" aria-pressed={d.day === props.chosen} aria-label={text(d)} title={text(d)} onClick={() => props.choose(d.day)}>
          <span class={d.short ? 'column short' : 'column'}>
            <span style={{ height: `${((100 * d.series) / most).toFixed(2)}%` }} />
          </span>
          {d.day.slice(8)}
        </button>
      ))}
    </div>
  )
}

const barOf = (n: number, of: number) => (
  <>
    <Bar part={n / of} />
    <span class="counted">{count(n)}</span>
  </>
)

function Tables(props: { answer: Answer; metric: string; show: Show }) {
  const { answer, metric, show } = props
  const { day, series, metrics, labels, values, others } = answer
  if (series === 0) return <Empty>No series had samples on {day} (UTC).</Empty>
  const named = values ?? metrics
  const most = Math.max(1, ...(named ?? []).map((n) => n.series))
  return (
    <>
      {labels && !values && (
        <Table
          label="Labels by cost"
          rows={labels}
          columns={[
            { name: 'label', class: 'code', sort: (l) => l.label, cell: (l) => <button type="button" class="more" onClick={() => show(metric, l.label)}>{l.label}</button> },
            { name: 'values', number: true, sort: (l) => l.values, cell: (l) => count(l.values) },
            { name: 'saved without it', number: true, sort: (l) => l.saved, cell: (l) => barOf(l.saved, series) },
            { name: 'share', number: true, cell: (l) => percent(l.saved / series) },
          ]}
        />
      )}
      {named && (
        <Table
          label={values ? 'Values by series' : 'Metrics by series'}
          rows={named}
          columns={[
            { name: values ? 'value' : 'metric', class: 'code', sort: (n) => n.name, cell: (n) => (values ? n.name : <button type="button" class="more" onClick={() => show(n.name)}><Name text={n.name} /></button>) },
            { name: 'series', number: true, sort: (n) => n.series, cell: (n) => barOf(n.series, most) },
            { name: 'share', number: true, cell: (n) => percent(n.series / series) },
          ]}
        />
      )}
      <p class="note">
        {count(series)} series on {day} (UTC){others > 0 && `, ${count(others)} more ${values ? 'values' : 'metrics'} are not listed`}.
        {labels && ' Rules drop labels of DogStatsD (drop_labels), distributor.relabel those of remote write and OTLP (labeldrop).'}
      </p>
    </>
  )
}

function Grown(props: { answer: Answer; since: string; show: Show }) {
  const { answer, since, show } = props
  if (!answer.grown) return <p class="note">No metric has more series than on {since}.</p>
  return (
    <>
      <h3>Grown since {since}</h3>
      <Table
        label="Grown metrics"
        rows={answer.grown}
        columns={[
          { name: 'metric', class: 'code', cell: (m) => <button type="button" class="more" onClick={() => show(m.name)}><Name text={m.name} /></button> },
          { name: since, number: true, cell: (m) => count(m.was) },
          { name: answer.day, number: true, cell: (m) => count(m.series) },
          { name: 'change', number: true, cell: (m) => <span class="up">+{count(m.series - m.was)}</span> },
        ]}
      />
    </>
  )
}
