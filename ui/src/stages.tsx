// The stages of the pipeline, in the order in which measurements flow. Each has a row, with
// its rate on the left and its latency on the right, for all inputs together and for each.
import { useRef } from 'preact/hooks'
import { usePoll, type Failure } from './api'
import { Chart, type Line } from './chart'
import { dotsOf, exemplarsOf, type Exemplar } from './exemplars'
import { compact, seconds } from './format'
import { Empty, Link, Loading, Panel, Problem, Refusal } from './parts'
import { grid, onGrid, queryRange, seriesOf, type Series } from './promql'
import { self } from './self'

const stages: [name: string, what: string][] = [
  ['read', 'datagrams and requests are read from sockets'],
  ['parse', 'lines and messages become samples'],
  ['window', 'the window of one second becomes batches'],
  ['forward', 'batches go to the aggregator'],
  ['journal', 'batches are written to disk'],
  ['tile', 'batches are folded into tiles of 10 s and 1 min'],
  ['distribute', 'rules and limits are applied to tiles and requests'],
  ['queue', 'requests wait for a writer'],
  ['append', 'samples are written to the store'],
  ['visible', 'the whole way, until a query sees the sample'],
]

// inputs have fixed colours. An input that is not listed comes last.
const inputs = ['dogstatsd', 'remote_write', 'otlp', 'tiles']
const colourOf = (input: string) => `series-${[1, 2, 3, 4][inputs.indexOf(input)] ?? 6}`

const span = 900 // seconds in the charts
const step = 5

// Scope says which nodes of a cluster the page shows: all of them, or with `local` the node that answers.
export interface Scope {
  node?: string // the node that answers; undefined in no cluster
  local: boolean
}

// selected returns the matcher of the series that belong to the scope, in braces.
export const selected = (s: Scope) => (s.node && s.local ? `{instance=${JSON.stringify(s.node)}}` : '')

// rateOf returns the expression of the rate of a metric of stages. In a cluster, collectors on other hosts count, too.
const rateOf = (metric: string, labels: string, over: string, scope: Scope) => {
  const rate = (name: string) => `rate(${name}${labels}[${over}])`
  const own = rate(metric)
  return scope.node && !scope.local ? `(${own} or label_replace(${rate(metric.replace('_stage_', '_collectors_stage_'))}, "of", "collectors", "", ""))` : own
}

// rates returns the expression of samples a second. Samples come in at one node or collector each, so the rates of all
// are added up. But each node stores all tiles, so these are counted at one node.
function rates(over: string, scope: Scope): string {
  const sum = (labels: string) => `sum by (stage, input) (${rateOf('freshet_stage_samples_total', labels, over, scope)})`
  return scope.node && !scope.local ? `${sum('{input!="tiles"}')} or ${sum(`{input="tiles", instance=${JSON.stringify(scope.node)}}`)}` : sum(selected(scope))
}

const questions = (over: string, scope: Scope) => {
  const of = selected(scope)
  const quantile = (q: number, by: string, metric = 'freshet_stage_seconds') => `histogram_quantile(${q}, sum by (${by}) (${rateOf(metric, of, over, scope)}))`
  return {
    rate: rates(over, scope),
    p50: quantile(0.5, 'stage'),
    p90: quantile(0.9, 'stage'),
    p99: quantile(0.99, 'stage'),
    each: quantile(0.99, 'stage, input'),
    age: quantile(0.99, 'stage', 'freshet_stage_age_seconds'),
    budget: `max by (stage) (freshet_stage_budget_seconds${of})`,
  }
}
type Question = keyof ReturnType<typeof questions>

interface Measured {
  times: number[]
  series: Record<Question, Series[]>
  over: string // the range of rates, such as 30s
  scope: Scope
}

// measure requests only values that are newer than the values in `before`. It requests the last
// steps again, since they may have changed. Requesting all values every 2 s would cost the server
// half a core.
async function measure(over: string, scope: Scope, signal: AbortSignal, before?: Measured): Promise<Measured> {
  const now = Date.now() / 1000
  const times = grid(now - span, now, step)
  const kept = before && before.over === over && before.scope.node === scope.node && before.scope.local === scope.local ? before : undefined
  const start = kept ? Math.max(times[0], kept.times[kept.times.length - 1] - 3 * step) : times[0]
  const asked = questions(over, scope)
  const names = Object.keys(asked) as Question[]
  const answers = await Promise.all(names.map((n) => queryRange(asked[n], start, times[times.length - 1], step, signal, self)))
  const joined = names.map((n, i) => [n, join(kept?.series[n] ?? [], seriesOf(answers[i].data), times[0], start)])
  return { times, over, scope, series: Object.fromEntries(joined) as Measured['series'] }
}

// join returns the older values from `first` until `start`, followed by the newer ones.
function join(older: Series[], newer: Series[], first: number, start: number): Series[] {
  const key = (s: Series) => JSON.stringify([s.metric.stage, s.metric.input])
  const all = new Map(older.map((s) => [key(s), { metric: s.metric, values: (s.values ?? []).filter(([t]) => t >= first && t < start) }]))
  for (const s of newer) all.set(key(s), { metric: s.metric, values: [...(all.get(key(s))?.values ?? []), ...(s.values ?? [])] })
  return [...all.values()].filter((s) => s.values.length > 0)
}

// Stages shows nothing until `over`, the range of its rates, and the scope are known.
export function Stages(props: { over?: string; scope?: Scope }) {
  const { over, scope } = props
  const before = useRef<Measured | undefined>(undefined)
  const { data, error } = usePoll(async (signal) => (over && scope ? (before.current = await measure(over, scope, signal, before.current)) : undefined), 2000, [over, scope?.node, scope?.local, !scope])
  const slow = usePoll(async (signal) => (over ? exemplarsOf('freshet_stage_seconds', Date.now() / 1000 - span, Date.now() / 1000, signal) : []), 10_000, [over])
  return (
    <Panel title="Stages" class="stages" note={data && <Key dots={Boolean(slow.data?.length)} scope={data.scope} />}>
      <State data={data} error={error} />
      <ol class={data ? '' : 'idle'}>
        {stages.map(([name, what]) => (
          <Stage key={name} name={name} what={what} data={data} slow={slow.data?.filter((e) => e.labels.stage === name) ?? []} />
        ))}
      </ol>
    </Panel>
  )
}

// State shows the reason if there are no stages to show.
function State(props: { data?: Measured; error?: Failure }) {
  const { data, error } = props
  if (!error) return data ? null : <Loading what="Loading…" />
  if (error.status === 403) return <Refusal error={error} what="Stages" />
  if (![404, 501].includes(error.status)) return <Problem error={error} />
  return (
    <Empty>
      <p>Freshet’s own metrics are off.</p>
      <p class="note">To see the stages here, set self.metrics to true and restart Freshet. The ledger, /metrics and freshet top work without it.</p>
    </Empty>
  )
}

// Key explains the lines.
const Key = (props: { dots: boolean; scope: Scope }) => (
  <>
    {props.scope.node && !props.scope.local && `Of all nodes and collectors; tiles, which each node stores, as node ${props.scope.node} counts them. `}
    Left: samples per second. Right: time per batch, on a logarithmic scale; with several inputs, the p99 of each.{' '}
    {[['low', 'p50'], ['middle', 'p90'], ['high', 'p99'], ['budget', 'budget']].map(([colour, name]) => (
      <span key={name} class="key">
        <span aria-hidden="true" class={`swatch ${colour}`} /> {name}
      </span>
    ))}
    {props.dots && (
      <span class="key">
        <span aria-hidden="true" class="dot still" /> trace of a slow batch
      </span>
    )}
  </>
)

// Input is the rate and the latency of one input in a stage.
interface Input {
  name: string
  rates: (number | null)[]
  p99s: (number | null)[]
  rate: number | null // the newest value, like p99
  p99: number | null
  over: boolean // p99 is over the budget
}

// last returns the newest value, or null if it is older than three steps.
const last = (values: (number | null)[]) => values.slice(-3).findLast((v) => v !== null) ?? null

const valuesOf = (data: Measured, q: Question, stage: string, input?: string) =>
  onGrid(data.series[q].find((s) => s.metric.stage === stage && (input === undefined || s.metric.input === input))?.values, data.times, step)

// inputsOf returns the inputs that had any measurements in the time that is shown.
function inputsOf(data: Measured, stage: string, budget: number | null): Input[] {
  const names = data.series.rate.filter((s) => s.metric.stage === stage).map((s) => s.metric.input ?? '')
  return names
    .sort((a, b) => (inputs.indexOf(a) + 5) % 5 - ((inputs.indexOf(b) + 5) % 5))
    .map((name) => {
      const rates = valuesOf(data, 'rate', stage, name)
      const p99s = valuesOf(data, 'each', stage, name)
      const p99 = last(p99s)
      return { name, rates, p99s, rate: last(rates), p99, over: Boolean(budget && p99 !== null && p99 > budget) }
    })
    .filter((i) => i.rates.some((r) => r !== null && r > 0) || i.p99s.some((v) => v !== null))
}

function Stage(props: { name: string; what: string; data?: Measured; slow: Exemplar[] }) {
  const { name, what, data, slow } = props
  const budget = data ? last(valuesOf(data, 'budget', name)) : null
  const all = data ? inputsOf(data, name, budget) : []
  const over = all.filter((i) => i.over)
  return (
    <li class={over.length ? 'over' : ''}>
      <div class="name">
        <h3>{name}</h3>
        <p class="note">{what}</p>
        {over.length > 0 && (
          <p class="bad">
            <span aria-hidden="true">▲</span> over budget{all.length > 1 && `: ${over.map((i) => i.name).join(', ')}`}
          </p>
        )}
      </div>
      {data && all.length === 0 && <p class="note nothing">No samples in the last 15 minutes.</p>}
      {data && all.length > 0 && <Rate name={name} data={data} inputs={all} />}
      {data && all.length > 0 && <Latency name={name} data={data} inputs={all} budget={budget} slow={slow} />}
      {all.length > 0 && <Inputs all={all} alone={all.length === 1} />}
    </li>
  )
}

// Inputs is the legend. It shows each input with its rate and its p99.
const Inputs = (props: { all: Input[]; alone: boolean }) => (
  <ul class="inputs" aria-label="By input">
    {props.all.map((i) => (
      <li key={i.name}>
        {!props.alone && <span aria-hidden="true" class="swatch" style={{ '--c': `var(--${colourOf(i.name)})` }} />}
        <span>{i.name}</span>
        <span class="number">{i.rate === null ? '–' : compact(i.rate)}/s</span>
        <span class={`number ${i.over ? 'bad' : ''}`}>
          {i.over && <span aria-hidden="true">▲ </span>}
          p99 {i.p99 === null ? '–' : seconds(i.p99)}
        </span>
      </li>
    ))}
  </ul>
)

const shortest = 60 // seconds

// rangeOf returns the time range to draw: the last 15 minutes, or the time since the server started
// if that is shorter.
function rangeOf(data: Measured): [number, number] {
  const end = data.times[data.times.length - 1]
  const first = Math.min(...data.series.rate.map((s) => s.values?.[0]?.[0] ?? end))
  return [Math.max(data.times[0], Math.min(first - step, end - shortest)), end]
}

function Rate(props: { name: string; data: Measured; inputs: Input[] }) {
  const { name, data, inputs } = props
  const sum = data.times.map((_, t) => inputs.reduce<number | null>((n, i) => (i.rates[t] === null ? n : (n ?? 0) + i.rates[t]!), null))
  const now = last(sum)
  const lines: Line[] = inputs.length > 1 ? inputs.map((i) => ({ name: i.name, colour: colourOf(i.name), thin: true, values: i.rates })) : []
  return (
    <div class="plot">
      <p class="now">
        <b>{now === null ? '–' : compact(now)}</b> samples/s
      </p>
      <Chart label={`Rate of ${name}`} small times={data.times} range={rangeOf(data)} height={84} sync="flow" lines={[...lines, { name: 'all', colour: 'high', values: sum }]} />
    </div>
  )
}

function Latency(props: { name: string; data: Measured; inputs: Input[]; budget: number | null; slow: Exemplar[] }) {
  const { name, data, inputs, budget, slow } = props
  const p99s = valuesOf(data, 'p99', name)
  const [p99, age] = [last(p99s), last(valuesOf(data, 'age', name))]
  const over = inputs.some((i) => i.over)
  // A median over all inputs means little if one input takes a second and another a millisecond. So
  // if there are several inputs, each has its own line.
  const lines: Line[] =
    inputs.length > 1
      ? inputs.map((i) => ({ name: `p99 of ${i.name}`, colour: colourOf(i.name), values: i.p99s }))
      : [
          { name: 'p50', colour: 'low', values: valuesOf(data, 'p50', name) },
          { name: 'p90', colour: 'middle', values: valuesOf(data, 'p90', name) },
          { name: 'p99', colour: over ? 'bad' : 'high', values: p99s },
        ]
  // A budget far above the lines would compress the lines, so it is left out.
  const highest = Math.max(0, ...lines.flatMap((l) => l.values.map((v) => v ?? 0)))
  if (budget && budget < 10 * highest) lines.push({ name: 'budget', colour: 'bad', thin: true, dashed: true, values: data.times.map(() => budget) })
  const asked = new URLSearchParams({ of: 'self', range: '15m', q: `histogram_quantile(0.99, sum by (input) (rate(freshet_stage_seconds{stage="${name}"${data.scope.node && data.scope.local ? `, instance=${JSON.stringify(data.scope.node)}` : ''}}[${data.over}])))` })
  return (
    <div class="plot">
      <p class="now">
        <Link page="explore" params={asked} title="Open in Explore">
          p99
        </Link>{' '}
        <b class={over ? 'bad' : ''}>{p99 === null ? '–' : seconds(p99)}</b>
        {budget ? ` of ${seconds(budget)}` : ''}
        <span class="age">
          age p99 <b>{age === null ? '–' : seconds(age)}</b>
        </span>
      </p>
      <Chart
        label={`Latency of ${name}`}
        small
        log
        times={data.times}
        range={rangeOf(data)}
        height={84}
        sync="flow"
        format={seconds}
        lines={lines}
        dots={dotsOf(slow, rangeOf(data), 16)}
      />
    </div>
  )
}
