// The timeline of each alert over a chosen range: when it was pending, fired, was resolved, and when its
// rule waited for late data.
import { useState } from 'preact/hooks'
import { Failure, usePoll } from './api'
import * as explore from './explorestate'
import { clock, count, dateTime, shortened, span, ticks } from './format'
import { Empty, Link, Loading, Panel, Problem } from './parts'
import { alertsQuery, keyOf, timelines, until, waitsOf, waitsQuery, type Period, type Phase, type Timeline } from './periods'
import { queryRange, seriesOf, stepFor, type Labels } from './promql'
import { go, usePlace } from './router'
import { matchers, type Rules } from './rulesapi'
import { self, useSelf } from './self'
import { TimeRange, TimesDialog } from './timerange'

interface Shown {
  from: number
  to: number
  lines: Timeline[]
  warnings: string[]
}

const phases: Phase[] = ['pending', 'firing', 'resolved', 'waiting']

export function Timelines(props: { rules: Rules; wanted: (labels: Labels) => boolean }) {
  const { params } = usePlace()
  const state = explore.parse(params)
  const [choosing, setChoosing] = useState(false)
  const own = useSelf()
  const { rules } = props
  const { data, error } = usePoll((signal) => load(state, rules, own, signal), state.to === null ? 15_000 : 0, [state.range, state.to, own])
  const change = (next: Partial<explore.State>) => {
    const times = explore.format({ ...state, ...next })
    const to = new URLSearchParams(params)
    for (const name of ['range', 'from', 'to']) {
      const value = times.get(name)
      if (value === null) to.delete(name)
      else to.set(name, value)
    }
    go('alerts', to)
  }
  const to = state.to ?? data?.to ?? Date.now() / 1000
  const from = to - state.range
  return (
    <Panel title="Timeline" note="of each alert that was active" actions={<TimeRange state={state} from={from} to={to} change={change} onChoose={() => setChoosing(true)} />}>
      {choosing && <TimesDialog from={from} to={to} onClose={() => setChoosing(false)} onPick={(a, b) => (setChoosing(false), change({ to: b, range: b - a }))} />}
      {error && <Problem error={error} />}
      {!data && !error && <Loading what="Loading…" />}
      {data && <Lines shown={data} lines={data.lines.filter((l) => props.wanted(l.labels))} />}
    </Panel>
  )
}

// load asks for the states of all alerts, and if the user may see Freshet's own metrics, for the times
// at which rules waited.
async function load(state: explore.State, rules: Rules, own: boolean, signal: AbortSignal): Promise<Shown> {
  const to = Math.floor(state.to ?? Date.now() / 1000)
  const step = stepFor(state.range, 240)
  const from = to - Math.ceil(state.range / step) * step // so that `to` is a step
  const [answer, waits] = await Promise.all([
    queryRange(alertsQuery(step), from, to, step, signal),
    own ? queryRange(waitsQuery(rules.waits.tenant, step), from, to, step, signal, self) : undefined,
  ])
  if (answer.data.resultType !== 'matrix') throw new Failure('the server answered ALERTS with ' + answer.data.resultType)
  const waited = waitsOf(waits ? seriesOf(waits.data) : [], from, step)
  const lines = timelines(seriesOf(answer.data), from, to, step).map((line) => withWaits(line, rules, waited, to))
  const rank = (l: Timeline) => [l.periods.at(-1)?.phase === 'firing' ? 1 : 0, Math.max(...l.periods.filter((p) => p.phase !== 'resolved').map((p) => p.to))]
  lines.sort((a, b) => rank(b)[0] - rank(a)[0] || rank(b)[1] - rank(a)[1])
  return { from: to - state.range, to, lines, warnings: answer.warnings }
}

// withWaits adds when the rule of an alert waited. Several rules may have the alert's name.
function withWaits(line: Timeline, rules: Rules, waited: Map<string, Period[]>, to: number): Timeline {
  const groups = rules.groups.filter((g) => g.rules.some((r) => r.name === line.labels.alertname))
  const waits = groups.flatMap((g) => waited.get(keyOf(g.file, g.name)) ?? [])
  const now = rules.waits.waiting.filter((w) => groups.some((g) => g.file === w.file && g.name === w.name)).map((w) => w.slot_ms / 1000)
  if (now.length === 0) return { ...line, waits }
  const since = Math.min(...now)
  return { ...line, periods: until(line.periods, since), waits: [...until(waits, since), ...(since < to ? [{ phase: 'waiting' as const, from: since, to }] : [])] }
}

// shownFirst is how many alerts are shown until a click on “Show all”.
const shownFirst = 50

function Lines(props: { shown: Shown; lines: Timeline[] }) {
  const [whole, setWhole] = useState(false)
  const { shown, lines } = props
  if (lines.length === 0) return <Empty>No alert was active in this range.</Empty>
  return (
    <>
      {shown.warnings.map((w) => (
        <p key={w} class="hint warn">
          {w}
        </p>
      ))}
      <p class="phases note">
        {phases.map((phase) => (
          <span key={phase}>
            <span class={`period ${phase}`} aria-hidden="true" /> {phase}
          </span>
        ))}
      </p>
      <Axis from={shown.from} to={shown.to} />
      <ul class="timelines" aria-label="Timelines">
        {(whole ? lines : lines.slice(0, shownFirst)).map((l) => (
          <Line key={matchers(l.labels)} line={l} from={shown.from} to={shown.to} />
        ))}
      </ul>
      {lines.length > shownFirst && !whole && (
        <p class="all">
          <button type="button" onClick={() => setWhole(true)}>
            Show all {count(lines.length)}
          </button>
        </p>
      )}
    </>
  )
}

const quarters = [0, 0.25, 0.5, 0.75, 1]

function Axis(props: { from: number; to: number }) {
  const length = props.to - props.from
  const times = quarters.map((q) => Math.round(props.from + q * length))
  return (
    <p class="timeline note" aria-hidden="true">
      <span class="ticks">
        {ticks(times, length / 4, ' ').map((text, i) => (
          <span key={i} style={{ left: `${100 * quarters[i]}%` }}>
            {text}
          </span>
        ))}
      </span>
    </p>
  )
}

// inWords says a period for people who do not see it.
const inWords = (p: Period) => `${p.phase} ${dateTime(p.from)} – ${clock(p.to)} (${span(p.to - p.from)})`

function Line(props: { line: Timeline; from: number; to: number }) {
  const { line, from, to } = props
  const { alertname = '', ...rest } = line.labels
  const labels = matchers(rest)
  const expr = `ALERTS${matchers(line.labels)}`
  const range = new URLSearchParams({ q: expr, from: String(Math.round(from)), to: String(Math.round(to)) })
  const place = (p: Period) => ({ left: `${(100 * (Math.max(p.from, from) - from)) / (to - from)}%`, width: `${(100 * (p.to - Math.max(p.from, from))) / (to - from)}%` })
  const periods = [...line.periods, ...(line.waits ?? [])].filter((p) => p.to > from)
  return (
    <li class="timeline">
      <span class="name" title={`${alertname} ${labels}`}>
        <Link page="explore" params={range}>
          {alertname}
        </Link>{' '}
        {labels !== '{}' && <code>{shortened(labels, 300)}</code>}
      </span>
      <span class="track" role="img" aria-label={`${alertname}: ${periods.map(inWords).join(', ')}`}>
        {periods.map((p) => (
          <span key={`${p.phase} ${p.from}`} class={`period ${p.phase}`} style={place(p)} title={inWords(p)} />
        ))}
      </span>
    </li>
  )
}
