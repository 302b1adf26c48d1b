// Growth: how the number of a tenant's series changes. The numbers come from Freshet's own metrics,
// which are cheap to query. Counting by metric reads all series, so the page does it only after a
// click.
import { useState } from 'preact/hooks'
import { usePoll } from './api'
import { Chart } from './chart'
import { count, dateTime } from './format'
import { Empty, Loading, Panel, Problem, Table } from './parts'
import { grid, number, onGrid, queryAt, queryRange, seriesOf } from './promql'
import { self } from './self'

const hour = 3600
const step = 60

interface Counted {
  times: number[]
  stored: (number | null)[]
}

// ofStores returns the number of series in the heads of the stores. The sum counts no series
// twice, because no series is in two stores. All nodes of a cluster have the same stores.
async function ofStores(tenant: string, signal: AbortSignal): Promise<Counted> {
  const now = Date.now() / 1000
  const times = grid(now - 6 * hour, now, step)
  const query = `sum(max by (store) (prometheus_tsdb_head_series{tenant=${JSON.stringify(tenant)}, store=~"raw|10s"}))`
  const answer = await queryRange(query, times[0], times[times.length - 1], step, signal, self)
  return { times, stored: onGrid(seriesOf(answer.data)[0]?.values, times, step) }
}

export function Growth(props: { tenant: string }) {
  const { data } = usePoll((signal) => ofStores(props.tenant, signal), 30_000, [props.tenant])
  const [asked, setAsked] = useState(0) // clicks on “Count by metric”
  const drawn = data !== undefined && data.stored.filter((v) => v !== null).length > 1 // one value makes no line
  return (
    <Panel
      title="Growth"
      note={drawn && 'series in the stores’ heads, which start anew about every two hours'}
      actions={
        <button type="button" title="Compares the present number of series with the number an hour ago. This reads all series, so it may take a while." onClick={() => setAsked(asked + 1)}>
          Count by metric
        </button>
      }
    >
      {drawn && (
        <Chart label="Series in the last 6 hours" small times={data.times} range={[data.times[0], data.times[data.times.length - 1]]} height={130} lines={[{ name: 'series', values: data.stored }]} />
      )}
      {asked > 0 ? <ByMetric key={asked} /> : !drawn && <Empty>“Count by metric” shows which metrics grow. It reads all series, so it may take a while.</Empty>}
    </Panel>
  )
}

const all = '{__name__!=""}'

interface Grown {
  at: number
  metrics: { name: string; now: number; was: number }[]
}

// compare counts the series with samples in the last minutes, now and an hour ago.
async function compare(signal: AbortSignal): Promise<Grown> {
  const counted = async (offset: string) => {
    const answer = await queryAt(`count by (__name__) (${all}${offset})`, null, signal)
    return new Map(seriesOf(answer.data).map((s) => [s.metric.__name__, number(s.value![1])]))
  }
  const [now, was] = await Promise.all([counted(''), counted(' offset 1h')])
  const metrics = [...new Set([...now.keys(), ...was.keys()])].map((name) => ({ name, now: now.get(name) ?? 0, was: was.get(name) ?? 0 }))
  return { at: Date.now() / 1000, metrics: metrics.filter((m) => m.now !== m.was).sort((a, b) => Math.abs(b.now - b.was) - Math.abs(a.now - a.was)).slice(0, 10) }
}

function ByMetric() {
  const { data, error } = usePoll(compare, 0, [])
  if (error) return <Problem error={error} />
  if (!data) return <Loading what="Counting…" />
  if (data.metrics.length === 0) return <Empty>No metric has more or fewer series than an hour ago.</Empty>
  return (
    <>
      <Table
        label="Growth by metric"
        rows={data.metrics}
        columns={[
          { name: 'metric', class: 'code', sort: (m) => m.name, cell: (m) => m.name },
          { name: 'an hour ago', number: true, sort: (m) => m.was, cell: (m) => count(m.was) },
          { name: 'now', number: true, sort: (m) => m.now, cell: (m) => count(m.now) },
          { name: 'change', number: true, sort: (m) => m.now - m.was, cell: (m) => <span class={m.now > m.was ? 'up' : 'down'}>{(m.now > m.was ? '+' : '−') + count(Math.abs(m.now - m.was))}</span> },
        ]}
      />
      <p class="note">Series with samples in the five minutes before {dateTime(data.at)}.</p>
    </>
  )
}
