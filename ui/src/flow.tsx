// Flow: one row for each stage in the order in which measurements flow, its rate on the
// left and its latency on the right, and the books of what became of them beside.
import { usePoll, type Failure } from './api'
import { Chart } from './chart'
import { compact, seconds } from './format'
import { LedgerPanel } from './ledger'
import { Empty, Loading, Panel, Problem } from './parts'
import { grid, onGrid, queryRange, seriesOf, type Series } from './promql'

// Own metrics are those of the tenant freshet, behind an API of their own.
const self = 'self/'

const stages: [name: string, what: string][] = [
  ['read', 'datagrams and requests from sockets'],
  ['parse', 'lines and messages into samples'],
  ['window', 'increments of one second are counted'],
  ['forward', 'windows, cut by shard, to their aggregator'],
  ['journal', 'batches on disk, before they count'],
  ['tile', 'windows folded into tiles of 10 s and 1 min'],
  ['distribute', 'tiles and requests to their ingesters'],
  ['queue', 'waiting for a writer'],
  ['append', 'written to the store'],
  ['visible', 'seen by a query'],
]

const span = 900 // seconds that are shown
const step = 5

const questions = {
  rate: 'sum by (stage) (rate(freshet_stage_samples_total[30s]))',
  p50: 'histogram_quantile(0.5, sum by (stage) (rate(freshet_stage_seconds[30s])))',
  p90: 'histogram_quantile(0.9, sum by (stage) (rate(freshet_stage_seconds[30s])))',
  p99: 'histogram_quantile(0.99, sum by (stage) (rate(freshet_stage_seconds[30s])))',
  age: 'histogram_quantile(0.99, sum by (stage) (rate(freshet_stage_age_seconds[30s])))',
  budget: 'max by (stage) (freshet_stage_budget_seconds)',
}
type Question = keyof typeof questions

interface Measured {
  times: number[]
  series: Record<Question, Series[]>
}

async function measure(signal: AbortSignal): Promise<Measured> {
  const now = Date.now() / 1000
  const times = grid(now - span, now, step)
  const names = Object.keys(questions) as Question[]
  const answers = await Promise.all(names.map((n) => queryRange(questions[n], times[0], times[times.length - 1], step, signal, self)))
  return { times, series: Object.fromEntries(names.map((n, i) => [n, seriesOf(answers[i].data)])) as Measured['series'] }
}

export function Flow() {
  const { data, error } = usePoll(measure, 2000, [])
  return (
    <div class="flow">
      <div class="toolbar">
        <h1>Flow</h1>
        <p class="note">The last 15 minutes, every 2 s</p>
      </div>
      <div class="columns">
        <Stages data={data} error={error} />
        <LedgerPanel />
      </div>
    </div>
  )
}

function Stages(props: { data?: Measured; error?: Failure }) {
  const { data, error } = props
  const off = error && [404, 501].includes(error.status)
  return (
    <Panel
      title="Stages"
      class="stages"
      note={data && <Key />}
    >
      {off ? (
        <Empty>
          <p>Own metrics are off.</p>
          <p class="note">This server does not keep what its own stages take, so there is nothing to draw. The ledger beside counts all the same, and so do /metrics and freshet top.</p>
        </Empty>
      ) : error ? (
        <Problem error={error} todo={error.status === 403 ? 'What all tenants together cost is shown on the server’s own machine only.' : undefined} />
      ) : (
        !data && <Loading what="Asking…" />
      )}
      <ol class={data ? '' : 'idle'}>
        {stages.map(([name, what]) => (
          <Stage key={name} name={name} what={what} data={data} />
        ))}
      </ol>
    </Panel>
  )
}

// Key says what the lines are.
const Key = () => (
  <>
    samples a second, and what a batch takes:{' '}
    {[['low', 'p50'], ['middle', 'p90'], ['high', 'p99']].map(([colour, name]) => (
      <span key={name} class="key">
        <span aria-hidden="true" class={`swatch ${colour}`} /> {name}
      </span>
    ))}
  </>
)

function Stage(props: { name: string; what: string; data?: Measured }) {
  const { name, what, data } = props
  const seen = data && series(data).some((s) => s.metric.stage === name)
  const p99 = seen ? last(data, 'p99', name) : null
  const budget = seen ? last(data, 'budget', name) : null
  const over = Boolean(budget && p99 !== null && p99 > budget)
  return (
    <li class={over ? 'over' : ''}>
      <div class="name">
        <h3>{name}</h3>
        <p class="note">{what}</p>
        {over && <p class="bad">over budget</p>}
      </div>
      {data && !seen && <p class="note nothing">Nothing came by.</p>}
      {seen && <Rate name={name} data={data} />}
      {seen && <Latency name={name} data={data} p99={p99} budget={budget} over={over} />}
    </li>
  )
}

// series are all that say that something came by; a budget is there all the same.
const series = (data: Measured): Series[] => Object.entries(data.series).flatMap(([q, all]) => (q === 'budget' ? [] : all))

const valuesOf = (data: Measured, q: Question, stage: string) => onGrid(data.series[q].find((s) => s.metric.stage === stage)?.values, data.times, step)

// last is the newest value of a stage, if it is of the last steps.
const last = (data: Measured, q: Question, stage: string) => valuesOf(data, q, stage).slice(-3).findLast((v) => v !== null) ?? null

const rangeOf = (data: Measured): [number, number] => [data.times[0], data.times[data.times.length - 1]]

function Rate(props: { name: string; data: Measured }) {
  const { name, data } = props
  const now = last(data, 'rate', name)
  return (
    <div class="plot">
      <p class="now">
        <b>{now === null ? '–' : compact(now)}</b> samples/s
      </p>
      <Chart label={`Rate of ${name}`} small times={data.times} range={rangeOf(data)} height={84} sync="flow" lines={[{ name: 'rate', colour: 'series-0', values: valuesOf(data, 'rate', name) }]} />
    </div>
  )
}

function Latency(props: { name: string; data: Measured; p99: number | null; budget: number | null; over: boolean }) {
  const { name, data, p99, budget, over } = props
  const age = last(data, 'age', name)
  const line = (q: Question, colour: string) => ({ name: q, colour, values: valuesOf(data, q, name) })
  return (
    <div class="plot">
      <p class="now">
        p99 <b class={over ? 'bad' : ''}>{p99 === null ? '–' : seconds(p99)}</b>
        {budget ? ` of ${seconds(budget)}` : ''}
        <span class="age">
          age p99 <b>{age === null ? '–' : seconds(age)}</b>
        </span>
      </p>
      <Chart
        label={`Latency of ${name}`}
        small
        times={data.times}
        range={rangeOf(data)}
        height={84}
        sync="flow"
        format={seconds}
        lines={[line('p50', 'low'), line('p90', 'middle'), line('p99', over ? 'bad' : 'high')]}
      />
    </div>
  )
}
