// Cardinality: the series of a day by metric, then by label with what each label costs, then by value. Counting reads
// all series of the day, so it waits for a click.
import { useState } from 'preact/hooks'
import { ask, usePoll } from './api'
import { count, percent } from './format'
import { Bar, Empty, Loading, Name, Panel, Problem, Table } from './parts'

interface Named {
  name: string
  series: number
}

interface Answer {
  series: number
  short?: string
  metrics?: Named[]
  labels?: { label: string; values: number; series: number; saved: number }[]
  values?: Named[]
  others: number
}

export function Cardinality() {
  const [day, setDay] = useState(new Date().toISOString().slice(0, 10))
  const [metric, setMetric] = useState<string>()
  const [label, setLabel] = useState<string>()
  const [asked, setAsked] = useState(false)
  const show = (metric?: string, label?: string) => (setMetric(metric), setLabel(label))
  return (
    <Panel
      title="Cardinality"
      note="series of a day, in all stores, and what each label costs"
      actions={
        <>
          <input type="date" aria-label="Day, in UTC" value={day} onInput={(e) => e.currentTarget.value && setDay(e.currentTarget.value)} />
          <button type="button" title="Reads all series of the day, for at most 5 s" onClick={() => (setAsked(true), show())}>
            Count
          </button>
        </>
      }
    >
      {!asked && <Empty>“Count” shows the metrics with the most series, and how many series each label of a metric costs.</Empty>}
      {asked && (
        <p class="note">
          <button type="button" class="plain" onClick={() => show()}>All metrics</button>
          {metric && <> › <button type="button" class="plain" onClick={() => show(metric)}><Name text={metric} /></button></>}
          {label && <> › <span class="code">{label}</span></>}
        </p>
      )}
      {asked && <Counted key={`${day}\n${metric}\n${label}`} day={day} metric={metric} label={label} show={show} />}
    </Panel>
  )
}

function Counted(props: { day: string; metric?: string; label?: string; show: (metric?: string, label?: string) => void }) {
  const { day, metric = '', label = '', show } = props
  const { data, error } = usePoll(async (s) => (await ask<Answer>('api/v1/status/cardinality', { day, metric, label, limit: '20' }, s)).data, 0, [])
  if (error) return <Problem error={error} />
  if (!data) return <Loading what="Counting…" />
  const short = data.short && <p class="hint warn">The counts are too low: {data.short}.</p>
  if (data.series === 0) return <>{short}<Empty>No series had samples on {day} (UTC).</Empty></>
  const most = Math.max(1, ...(data.metrics ?? data.values ?? []).map((n) => n.series))
  const bar = (n: number, of: number) => (
    <>
      <Bar part={n / of} />
      <span class="counted">{count(n)}</span>
    </>
  )
  return (
    <>
      {short}
      {data.labels && !label && (
        <Table
          label="Labels by cost"
          rows={data.labels}
          columns={[
            { name: 'label', class: 'code', sort: (l) => l.label, cell: (l) => <button type="button" class="more" onClick={() => show(metric, l.label)}>{l.label}</button> },
            { name: 'values', number: true, sort: (l) => l.values, cell: (l) => count(l.values) },
            { name: 'saved without it', number: true, sort: (l) => l.saved, cell: (l) => bar(l.saved, data.series) },
            { name: 'share', number: true, cell: (l) => percent(l.saved / data.series) },
          ]}
        />
      )}
      {(data.metrics || data.values) && (
        <Table
          label={data.values ? 'Values by series' : 'Metrics by series'}
          rows={data.metrics ?? data.values!}
          columns={[
            { name: data.values ? 'value' : 'metric', class: 'code', sort: (n) => n.name, cell: (n) => (data.values ? n.name : <button type="button" class="more" onClick={() => show(n.name)}><Name text={n.name} /></button>) },
            { name: 'series', number: true, sort: (n) => n.series, cell: (n) => bar(n.series, most) },
            { name: 'share', number: true, cell: (n) => percent(n.series / data.series) },
          ]}
        />
      )}
      <p class="note">
        {count(data.series)} series{data.others > 0 && `, ${count(data.others)} more ${data.values ? 'values' : 'metrics'} are not listed`}.
        {data.labels && ' Rules drop labels of DogStatsD (drop_labels), distributor.relabel those of remote write and OTLP (labeldrop).'}
      </p>
    </>
  )
}
