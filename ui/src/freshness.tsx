// Freshness: how long a sample takes from being sent until a query returns it. The server
// measures it with a probe every two seconds, for each tenant and input.
import { ask, usePoll } from './api'
import { Chart } from './chart'
import { count, seconds } from './format'
import { Table } from './parts'
import { grid, number, onGrid, queryRange, seriesOf, type Series } from './promql'
import { self } from './self'
import { selected, type Scope } from './stages'

const span = 900 // seconds in the charts
const step = 15

interface Measured {
  times: number[]
  median: Series[]
  high: Series[]
  lost: Record<string, number> // probes that no query returned in time, by tenant and path
}

async function measure(over: string, scope: Scope, signal: AbortSignal): Promise<Measured> {
  const of = selected(scope)
  const now = Date.now() / 1000
  const times = grid(now - span, now, step)
  const quantile = (q: number) => `histogram_quantile(${q}, sum by (tenant, path) (rate(freshet_freshness_seconds${of}[${over}])))`
  const range = async (query: string) => seriesOf((await queryRange(query, times[0], times[times.length - 1], step, signal, self)).data)
  const missed = ask<{ result: Series[] }>(`${self}api/v1/query`, { query: `sum by (tenant, path) (increase(freshet_freshness_lost_total${of}[${span}s])) > 0` }, signal)
  const [median, high, lost] = await Promise.all([range(quantile(0.5)), range(quantile(0.99)), missed])
  return { times, median, high, lost: Object.fromEntries(lost.data.result.map((s) => [key(s), number(s.value![1])])) }
}

const key = (s: Series) => JSON.stringify([s.metric.tenant, s.metric.path])

const ways: Record<string, string> = { dogstatsd: 'DogStatsD', remote_write: 'Remote write' }

interface Row {
  tenant: string
  median: (number | null)[]
  high: (number | null)[]
  now: number | null // p99
  usual: number | null // p50
  lost: number
}

const last = (values: (number | null)[]) => values.slice(-4).findLast((v) => v !== null) ?? null

// rowsOf returns the tenants that are probed by `path`, the slowest first.
function rowsOf(data: Measured, path: string): Row[] {
  return data.high
    .filter((s) => s.metric.path === path)
    .map((s) => {
      const high = onGrid(s.values, data.times, step)
      const median = onGrid(data.median.find((m) => key(m) === key(s))?.values, data.times, step)
      return { tenant: s.metric.tenant ?? '', median, high, now: last(high), usual: last(median), lost: data.lost[key(s)] ?? 0 }
    })
    .sort((a, b) => (b.now ?? 0) - (a.now ?? 0) || a.tenant.localeCompare(b.tenant))
}

// Freshness shows nothing if there are no measurements. Stages then shows the reason.
export function Freshness(props: { over: string; scope: Scope }) {
  const { over, scope } = props
  const { data } = usePoll((signal) => measure(over, scope, signal), 5000, [over, scope.node, scope.local])
  if (!data || data.high.length === 0) return null
  const paths = [...new Set(data.high.map((s) => s.metric.path))].sort()
  return (
    <section class="freshness" aria-label="Freshness">
      {paths.map((path) => (
        <Way key={path} path={path} rows={rowsOf(data, path)} times={data.times} />
      ))}
    </section>
  )
}

const Swatch = (props: { of: string }) => <span aria-hidden="true" class={`swatch inline ${props.of}`} />

function Way(props: { path: string; rows: Row[]; times: number[] }) {
  const { path, rows, times } = props
  const slowest = rows[0]
  const lost = rows.reduce((n, r) => n + r.lost, 0)
  const name = ways[path] ?? path
  return (
    <div class="panel fresh">
      <div>
        <h2>{name}: fresh after</h2>
        <p class="large">{slowest.now === null ? '–' : seconds(slowest.now)}</p>
        <p class="note">
          <Swatch of="high" /> p99 from sending to a query’s answer
          {slowest.usual !== null && (
            <>
              , <Swatch of="low" /> p50 {seconds(slowest.usual)}
            </>
          )}
          {rows.length > 1 ? `; the slowest of ${count(rows.length)} tenants, ${slowest.tenant}` : `; tenant ${slowest.tenant}`}
        </p>
        {lost > 0 && (
          <p class="bad">
            <span aria-hidden="true">▲</span> {count(Math.ceil(lost))} of the last probes had no answer within 10 s
          </p>
        )}
      </div>
      <Chart
        label={`Freshness by ${name}`}
        small
        times={times}
        range={[times[0], times[times.length - 1]]}
        height={96}
        sync="flow"
        format={seconds}
        lines={[{ name: 'p50', colour: 'low', values: slowest.median }, { name: 'p99', colour: 'high', values: slowest.high }]}
      />
      {rows.length > 1 && (
        <details>
          <summary>All tenants</summary>
          <Table
            label={`Freshness of all tenants by ${name}`}
            rows={rows}
            columns={[
              { name: 'tenant', class: 'code', cell: (r) => r.tenant },
              { name: 'p50', number: true, cell: (r) => (r.usual === null ? '–' : seconds(r.usual)) },
              { name: 'p99', number: true, cell: (r) => (r.now === null ? '–' : seconds(r.now)) },
              { name: 'no answer', number: true, cell: (r) => (r.lost ? <span class="bad">{count(Math.ceil(r.lost))}</span> : '0') },
            ]}
          />
        </details>
      )}
    </div>
  )
}
