// Sends PromQL queries, and turns their answers into a form that can be drawn.
import { ask, type Answer } from './api'
import { printable } from './format'

export type Labels = Record<string, string>

// Bucket of a native histogram: a code for which bounds are inclusive (ignored here), the lower
// and the upper bound, and the count.
type Bucket = [number, string, string, string]
interface Histogram {
  count: string
  sum: string
  buckets?: Bucket[]
}

export interface Series {
  metric: Labels
  value?: [number, string]
  values?: [number, string][]
  histogram?: [number, Histogram]
  histograms?: [number, Histogram][]
}

export interface Result {
  resultType: 'vector' | 'matrix' | 'scalar' | 'string'
  result: Series[] | [number, string]
  stats?: { samples?: { totalQueryableSamples: number } }
}

// Request is a query as the API takes it.
export interface Request {
  path: string
  params: Record<string, string>
}

// rangeRequest asks for values from `start` to `end`. `base` is the path of another tenant's API.
export const rangeRequest = (query: string, start: number, end: number, step: number, base = ''): Request => ({
  path: `${base}api/v1/query_range`,
  params: { query, start: String(start), end: String(end), step: String(step) },
})

// instantRequest asks for values at a time, or for the present ones.
export const instantRequest = (query: string, time: number | null, base = ''): Request => ({
  path: `${base}api/v1/query`,
  params: time === null ? { query } : { query, time: String(time) },
})

export const send = (r: Request, signal?: AbortSignal): Promise<Answer<Result>> => ask(r.path, r.params, signal)

export function queryRange(query: string, start: number, end: number, step: number, signal?: AbortSignal, base = ''): Promise<Answer<Result>> {
  return send(rangeRequest(query, start, end, step, base), signal)
}

export function queryAt(query: string, time: number | null, signal?: AbortSignal, base = ''): Promise<Answer<Result>> {
  return send(instantRequest(query, time, base), signal)
}

export const seriesOf = (r: Result): Series[] => (r.resultType === 'vector' || r.resultType === 'matrix' ? (r.result as Series[]) : [])

// number reads a value as Prometheus writes it.
export const number = (text: string) => (text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text))

const niceSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400]

// stepFor returns the finest step that gives at most `points` points.
export const stepFor = (range: number, points: number) => niceSteps.find((s) => range / s <= points) ?? 86400

// grid returns the times of a range query. All are multiples of the step, so that lines do not
// change shape when a chart is drawn again.
export function grid(from: number, to: number, step: number): number[] {
  const times = []
  for (let t = Math.floor(from / step) * step; t <= to; t += step) times.push(t)
  return times
}

// placeOf returns the place of a time in `times`, a grid that may have the present time behind it.
const placeOf = (t: number, times: number[], step: number) => (t === times[times.length - 1] ? times.length - 1 : Math.round((t - times[0]) / step))

// withNewest adds an answer for the present time to one for the times of a grid.
export function withNewest(series: Series[], newest: Series[]): Series[] {
  const key = (s: Series) => JSON.stringify(Object.entries(s.metric).sort())
  const all = new Map(series.map((s) => [key(s), s]))
  for (const n of newest) {
    const s = { ...(all.get(key(n)) ?? { metric: n.metric }) }
    if (n.value) s.values = [...(s.values ?? []), n.value]
    if (n.histogram) s.histograms = [...(s.histograms ?? []), n.histogram]
    all.set(key(n), s)
  }
  return [...all.values()]
}

// onGrid puts values at their places in `times`, and null at times without a value.
export function onGrid(values: [number, string][] | undefined, times: number[], step: number): (number | null)[] {
  const out: (number | null)[] = new Array(times.length).fill(null)
  for (const [t, text] of values ?? []) {
    const v = number(text)
    const i = placeOf(t, times, step)
    if (i >= 0 && i < out.length && Number.isFinite(v)) out[i] = v
  }
  return out
}

export interface Cell {
  low: number
  high: number
  count: number
}

// isHistograms reports whether the answer to a range query has native histograms. isClassic reports
// whether it has buckets of classic histograms.
export const isHistograms = (all: Series[]) => all.length > 0 && all.every((s) => s.histograms?.length && !s.values?.length)
export const isClassic = (all: Series[]) => all.length > 1 && all.every((s) => s.metric.le !== undefined)

// heat returns the data of a heatmap: for each time the buckets that are not empty, summed over all
// series.
export function heat(all: Series[], times: number[], step: number): Cell[][] {
  const columns: Map<string, Cell>[] = times.map(() => new Map())
  const add = (i: number, low: number, high: number, n: number) => {
    if (i < 0 || i >= columns.length || !(n > 0) || !Number.isFinite(n)) return
    const key = `${low} ${high}`
    const cell = columns[i].get(key)
    if (cell) cell.count += n
    else columns[i].set(key, { low, high, count: n })
  }
  const at = (t: number) => placeOf(t, times, step)
  if (isClassic(all)) {
    classic(all, (t, low, high, n) => add(at(t), low, high, n))
  } else {
    for (const s of all) {
      for (const [t, h] of s.histograms ?? []) {
        for (const [, low, high, n] of h.buckets ?? []) add(at(t), number(low), number(high), number(n))
      }
    }
  }
  return columns.map((c) => [...c.values()])
}

// classic turns the cumulative buckets of each label set without le into buckets that
// count only their own range.
function classic(all: Series[], add: (t: number, low: number, high: number, n: number) => void) {
  const groups = new Map<string, { le: number; values: Map<number, number> }[]>()
  for (const s of all) {
    const { le, ...rest } = s.metric
    const key = JSON.stringify(Object.entries(rest).sort())
    const group = groups.get(key) ?? []
    groups.set(key, group)
    group.push({ le: number(le), values: new Map((s.values ?? []).map(([t, v]) => [t, number(v)])) })
  }
  for (const group of groups.values()) {
    group.sort((a, b) => a.le - b.le)
    group.forEach((bucket, i) => {
      const below = group[i - 1]
      const low = below ? below.le : Math.min(0, bucket.le)
      for (const [t, v] of bucket.values) add(t, low, bucket.le, v - (below?.values.get(t) ?? 0))
    })
  }
}

// seriesName writes a series as PromQL does, and leaves out the labels in `but`.
export function seriesName(metric: Labels, but: Labels = {}): string {
  const pairs = Object.entries(metric).filter(([k]) => k !== '__name__' && !(k in but))
  const name = '__name__' in but ? '' : (metric.__name__ ?? '')
  if (pairs.length === 0) return name || '{}'
  return `${name}{${pairs.map(([k, v]) => `${labelName(k)}=${quoted(v)}`).join(', ')}}`
}

export const quoted = (text: string) => printable(JSON.stringify(text))

const plainName = /^[a-zA-Z_][a-zA-Z0-9_]*$/

export const labelName = (name: string) => (plainName.test(name) ? name : quoted(name))

// legendName fills the labels of a series into a template such as {{pod}}.
export const legendName = (template: string, metric: Labels) => printable(template.replace(/\{\{\s*([^{}\s]+)\s*\}\}/g, (_, label: string) => metric[label] ?? ''))

// common returns the labels that all series share, which need to be shown only once.
export function common(all: Series[]): Labels {
  if (all.length < 2) return {}
  return Object.fromEntries(Object.entries(all[0].metric).filter(([k, v]) => all.every((s) => s.metric[k] === v)))
}

const colonName = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/

// selector returns the expression for all series with these labels.
export function selector(metric: Labels): string {
  const { __name__: name, ...rest } = metric
  const plain = name !== undefined && colonName.test(name)
  const pairs = Object.entries(rest).map(([k, v]) => `${labelName(k)}=${quoted(v)}`)
  if (name !== undefined && !plain) pairs.unshift(quoted(name))
  return (plain ? name : '') + (pairs.length ? `{${pairs.join(', ')}}` : '')
}

// firstLook returns a first query for a metric of the given type. If the type is unknown, firstLook
// guesses it from the name.
export function firstLook(name: string, type: string): string {
  const s = selector({ __name__: name })
  if (name.endsWith('_bucket')) return `sum by (le) (rate(${s}[2m]))`
  if (type === 'counter' || type === 'histogram' || (type === '' && /_(total|count|sum)$/.test(name))) return `rate(${s}[2m])`
  return s
}
