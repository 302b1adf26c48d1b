// The state of Explore is in the page's address, so that a copied address shows the
// same queries.
//
//   q=QUERY           once for each query, and in the same order, if any query has it:
//     v=VIEW          without it, the view that fits
//     u=UNIT, y=log   the unit and the scale of the values
//     n=NAME          how the legend names a series, such as {{pod}}
//     off=1           the query is not asked
//   of=self           Freshet's own metrics in place of the tenant's
//   range=1h          up to now; or from=UNIX&to=UNIX
//   refresh=10s       how often all queries run again
//   step=30           seconds; without it, a step that fits the range
//   events=0          no events
import { units, type UnitName } from './units'

export const views = ['', 'lines', 'stacked', 'heatmap', 'table'] as const
export type View = (typeof views)[number]

export interface Query {
  expr: string
  view: View
  unit: UnitName
  log: boolean // the scale is logarithmic
  legend: string // how a series is named; empty is by its labels
  off: boolean
}

export const blank: Query = { expr: '', view: '', unit: '', log: false, legend: '', off: false }

// options are the parameters of a query beside its expression. An empty text is the default.
const options: [string, (q: Query) => string][] = [
  ['v', (q) => q.view],
  ['u', (q) => q.unit],
  ['y', (q) => (q.log ? 'log' : '')],
  ['n', (q) => q.legend],
  ['off', (q) => (q.off ? '1' : '')],
]

export interface State {
  queries: Query[]
  own: boolean // Freshet's own metrics
  range: number // seconds before `to`
  to: number | null // Unix seconds; null is now
  refresh: number // seconds; 0 is never
  step: number // seconds; 0 is one that fits the range
  events: boolean
}

export const defaultRange = 3600

export function parse(p: URLSearchParams): State {
  const [vs, us, ys, ns, offs] = options.map(([name]) => p.getAll(name))
  const queries = p.getAll('q').map((expr, i): Query => ({
    expr,
    view: views.find((v) => v === vs[i]) ?? '',
    unit: units.find((u) => u === us[i]) ?? '',
    log: ys[i] === 'log',
    legend: ns[i] ?? '',
    off: offs[i] === '1',
  }))
  const from = Number(p.get('from'))
  const to = Number(p.get('to'))
  const fixed = p.has('from') && p.has('to') && to > from
  return {
    queries: queries.length ? queries : [blank],
    own: p.get('of') === 'self',
    range: fixed ? to - from : (duration(p.get('range')) ?? defaultRange),
    to: fixed ? to : null,
    refresh: duration(p.get('refresh')) ?? 0,
    step: Math.max(0, Number(p.get('step')) || 0),
    events: p.get('events') !== '0',
  }
}

export function format(s: State): URLSearchParams {
  const p = new URLSearchParams()
  const used = options.filter(([, of]) => s.queries.some((q) => of(q) !== ''))
  for (const q of s.queries) {
    p.append('q', q.expr)
    for (const [name, of] of used) p.append(name, of(q))
  }
  if (s.own) p.set('of', 'self')
  if (s.to !== null) {
    p.set('from', String(Math.round(s.to - s.range)))
    p.set('to', String(Math.round(s.to)))
  } else if (s.range !== defaultRange) p.set('range', short(s.range))
  if (s.refresh) p.set('refresh', short(s.refresh))
  if (s.step) p.set('step', String(s.step))
  if (!s.events) p.set('events', '0')
  return p
}

const lengths = { s: 1, m: 60, h: 3600, d: 86400 }

// duration reads 90s, 15m, 2h or 7d.
export function duration(text: string | null): number | null {
  const [, n, unit] = text?.match(/^(\d+)([smhd])$/) ?? []
  return n && Number(n) > 0 ? Number(n) * lengths[unit as keyof typeof lengths] : null
}

// short writes a duration in its largest whole unit.
export function short(seconds: number): string {
  for (const unit of ['d', 'h', 'm'] as const) {
    if (seconds % lengths[unit] === 0) return seconds / lengths[unit] + unit
  }
  return Math.round(seconds) + 's'
}
