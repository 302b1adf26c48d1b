// The state of Explore is in the page's address, so that a copied address shows the
// same queries.
//
//   q=QUERY&v=VIEW    once for each query, in this order; without v, the view that fits
//   of=self           Freshet's own metrics in place of the tenant's
//   range=1h          up to now; or from=UNIX&to=UNIX
//   refresh=10s       how often all queries run again
//   step=30           seconds; without it, a step that fits the range
//   events=0          no events

export const views = ['', 'lines', 'stacked', 'heatmap', 'table'] as const
export type View = (typeof views)[number]

export interface Query {
  expr: string
  view: View
}

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
  const exprs = p.getAll('q')
  const chosen = p.getAll('v')
  const queries = exprs.map((expr, i) => ({ expr, view: views.find((v) => v === chosen[i]) ?? ('' as View) }))
  const from = Number(p.get('from'))
  const to = Number(p.get('to'))
  const fixed = p.has('from') && p.has('to') && to > from
  return {
    queries: queries.length ? queries : [{ expr: '', view: '' }],
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
  const plain = s.queries.every((q) => q.view === '')
  for (const q of s.queries) {
    p.append('q', q.expr)
    if (!plain) p.append('v', q.view)
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

const units = { s: 1, m: 60, h: 3600, d: 86400 }

// duration reads 90s, 15m, 2h or 7d.
export function duration(text: string | null): number | null {
  const [, n, unit] = text?.match(/^(\d+)([smhd])$/) ?? []
  return n && Number(n) > 0 ? Number(n) * units[unit as keyof typeof units] : null
}

// short writes a duration in its largest whole unit.
export function short(seconds: number): string {
  for (const unit of ['d', 'h', 'm'] as const) {
    if (seconds % units[unit] === 0) return seconds / units[unit] + unit
  }
  return Math.round(seconds) + 's'
}
