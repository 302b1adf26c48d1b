// When an alert was pending or fired, from the series ALERTS, and when its rule waited, from Freshet's
// own metrics.
import { number, type Labels, type Series } from './promql'

export type Phase = 'pending' | 'firing' | 'resolved' | 'waiting'

export interface Period {
  phase: Phase
  from: number // Unix seconds
  to: number
}

// Timeline is one alert over a range of time.
export interface Timeline {
  labels: Labels // without the state
  periods: Period[] // in order of time
  waits?: Period[] // when its rule waited; the evaluations ran afterwards
}

// alertsQuery asks for ALERTS at steps, so that no state between two steps is missed. A rule with an
// interval above the step has a sample in few of the steps; there the state from before holds.
export const alertsQuery = (step: number) => `max_over_time(ALERTS[${step}s]) or ALERTS`

// timelines joins the series of each alert, one for each state, to its periods. Both `from` and `to`
// are steps of the query.
export function timelines(series: Series[], from: number, to: number, step: number): Timeline[] {
  const states = new Map<string, { labels: Labels; at: Phase[] }>()
  for (const { metric, values } of series) {
    const { __name__: _, alertstate, ...labels } = metric
    const key = JSON.stringify(Object.entries(labels).sort())
    const alert = states.get(key) ?? { labels, at: [] }
    states.set(key, alert)
    for (const [t] of values ?? []) {
      const i = Math.round((t - from) / step)
      if (alertstate === 'firing' || alert.at[i] === undefined) alert.at[i] = alertstate as Phase
    }
  }
  return [...states.values()].map(({ labels, at }) => ({ labels, periods: periodsOf(at, from, to, step) }))
}

// periodsOf joins equal states of steps. A step's state holds for the step that ends there. An alert
// that fired is resolved until it is active again.
function periodsOf(at: Phase[], from: number, to: number, step: number): Period[] {
  const all: Period[] = []
  for (let i = 0; from + i * step <= to; i++) {
    const last = all.at(-1)
    const fired = last?.phase === 'firing' || last?.phase === 'resolved'
    const phase = at[i] ?? (fired ? 'resolved' : undefined)
    const end = from + i * step
    if (last && last.phase === phase && last.to >= end - step) last.to = end
    else if (phase) all.push({ phase, from: Math.max(from, end - step), to: end })
  }
  return all.filter((p) => p.to > p.from)
}

// waitsQuery asks Freshet's own metrics how long each group of rules of a tenant had not been evaluated, at
// steps at which its rules waited: for more than two intervals and 30 s, as the server counts.
export function waitsQuery(tenant: string, step: number): string {
  const metric = (name: string) => `prometheus_rule_group_${name}{tenant=${JSON.stringify(tenant)}}`
  const last = metric('last_evaluation_timestamp_seconds')
  const since = `time() - (${last} > 0) > 2 * ${metric('interval_seconds')} + 30`
  return `max_over_time((${since})[${step}s:${Math.max(15, Math.round(step / 20))}s])`
}

// waitsOf returns when each group waited, by its key.
export function waitsOf(series: Series[], from: number, step: number): Map<string, Period[]> {
  const all = new Map<string, Period[]>()
  for (const { metric, values } of series) {
    const periods: Period[] = []
    for (const [t, waited] of values ?? []) {
      const last = periods.at(-1)
      if (last && last.to >= t - step) last.to = t
      else periods.push({ phase: 'waiting', from: Math.max(from, t - number(waited)), to: t })
    }
    all.set(metric.rule_group ?? '', periods.filter((p) => p.to > p.from))
  }
  return all
}

// keyOf is the name of a group in Prometheus' metrics.
export const keyOf = (file: string, group: string) => `${file};${group}`

// until returns periods up to a time. What comes after it is not known yet, since the rule waits.
export const until = (periods: Period[], time: number) => periods.filter((p) => p.from < time).map((p) => ({ ...p, to: Math.min(p.to, time) }))
