// Why a query has no data: each part of it is asked alone, until one is found whose own parts have data.
import { ask } from './api'
import { parseQuery, parts, renamed, selectorOf, textOf, type Binary, type Node, type Selector, type Window } from './ast'
import { dateTime, exact, shortened } from './format'
import { instantRequest, labelName, number, queryRange, quoted, send, seriesOf, stepFor, type Series } from './promql'

// Part is a part of a query, with its answer at one time.
export interface Part {
  node: Node
  text: string
  series: Series[]
  samples?: number // of a selector with a range: how many samples it has
  seconds: number
  parts: Part[]
}

const most = 40 // parts that are asked, so that a long query does not take long

// dissect asks each part of a query alone.
export async function dissect(base: string, query: string, time: number, signal: AbortSignal): Promise<Part> {
  let left = most
  const of = async (node: Node): Promise<Part> => {
    const begun = performance.now()
    const ranged = node.type === 'matrixSelector' || node.type === 'subquery'
    const text = textOf(node)
    const plain = node.type === 'matrixSelector' ? textOf({ ...node, anchored: false, smoothed: false }) : text
    const answer = await send(instantRequest(ranged ? `count_over_time(${plain})` : text, time, base), signal)
    const series = seriesOf(answer.data)
    const part: Part = { node, text, series, seconds: (performance.now() - begun) / 1000, parts: [] }
    if (ranged) part.samples = series.reduce((sum, s) => sum + number(s.value?.[1] ?? '0'), 0)
    for (const inner of parts(node)) if (left-- > 0) part.parts.push(await of(inner))
    return part
  }
  return of(await parseQuery(base, query, signal))
}

// Reason is why there is no data.
export interface Reason {
  text: string
  names?: { name: string; expr: string }[] // of metrics that may be meant, each with the query that has it
  time?: number // when there was data, Unix seconds
}

// whyEmpty finds the reason for an answer without data at a time.
export async function whyEmpty(base: string, query: string, from: number, time: number, signal: AbortSignal): Promise<Reason | null> {
  let part = await dissect(base, query, time, signal)
  if (part.series.length > 0) return null
  const whole = part.node
  for (let next: Part | undefined = part; next; ) {
    part = next
    next = part.parts.find((p) => p.series.length === 0 && !needless(part.node, p.node))
  }
  const { node } = part
  if (node.type === 'vectorSelector' || node.type === 'matrixSelector') return selectorReason(base, whole, node, from, time, signal)
  if (node.type === 'binaryExpr') return binaryReason(node, part)
  const inner = shortened(part.parts[0]?.text ?? part.text, 200)
  if (node.type === 'call') return { text: callReason(node.func.name, inner, part.parts[0]) }
  return { text: `${inner} has data, but ${shortened(part.text, 200)} has none.` }
}

// needless reports whether an operator has an answer although this side of it has no data.
const needless = (n: Node, side: Node) => n.type === 'binaryExpr' && n.op === 'unless' && side === n.rhs

function callReason(name: string, inner: string, part?: Part): string {
  if (name === 'absent' || name === 'absent_over_time') return `${inner} has data, and ${name} is empty as long as it has.`
  if (/^histogram_/.test(name)) return `${inner} has data, but no histograms: ${name} needs native ones, or buckets with the label le.`
  if (part?.samples !== undefined) return `${inner} has ${exact(part.samples)} samples in ${exact(part.series.length)} series, which is too few: ${name} needs two samples of a series. Use a longer window.`
  return `${inner} has data, but ${name} makes nothing of it.`
}

const comparisons = ['==', '!=', '>', '<', '>=', '<=']

function binaryReason(n: Binary, part: Part): Reason {
  const [left, right] = part.parts
  if (!right) {
    const values = left.series.map((s) => number(s.value?.[1] ?? 'NaN')).filter((v) => !Number.isNaN(v))
    const range = values.length ? `: the smallest is ${exact(Math.min(...values))}, the largest ${exact(Math.max(...values))}` : ''
    return { text: `No value of ${shortened(left.text, 200)} passes the comparison ${n.op}${range}.` }
  }
  if (n.op === 'unless') return { text: 'Each series of the left side has one of the right side with the same labels.' }
  const differ = differences(n, left.series, right.series)
  const sides = `${shortened(left.text, 120)} and ${shortened(right.text, 120)}`
  if (differ.length) return { text: `${sides} have data, but no two series have the same labels: ${differ.join('; ')}. Use on (…) or ignoring (…).` }
  if (comparisons.includes(n.op)) return { text: `${sides} have data, but no value passes the comparison ${n.op}.` }
  return { text: `${sides} have data, but no two series have the same labels.` }
}

// differences says which of the labels that must be equal are not.
function differences({ matching: m }: Binary, left: Series[], right: Series[]): string[] {
  const counts = (name: string) => name !== '__name__' && (m?.on ? m.labels.includes(name) : !m?.labels.includes(name))
  const names = [...new Set([...left, ...right].flatMap((s) => Object.keys(s.metric)))].filter(counts).sort()
  return names.flatMap((name) => {
    const [a, b] = [left, right].map((all) => new Set(all.map((s) => s.metric[name] ?? '')))
    if ([...a].some((v) => b.has(v))) return []
    if (a.size === 1 && a.has('')) return [`only the right side has ${name}`]
    if (b.size === 1 && b.has('')) return [`only the left side has ${name}`]
    return [`${name} is ${shortened(quoted([...a][0]), 60)} on the left and ${shortened(quoted([...b][0]), 60)} on the right`]
  })
}

const values = async (base: string, label: string, match: string, signal: AbortSignal) =>
  (await ask<string[]>(`${base}api/v1/label/${encodeURIComponent(label)}/values`, { 'match[]': match || undefined }, signal)).data

async function selectorReason(base: string, query: Node, n: Selector | Window, from: number, time: number, signal: AbortSignal): Promise<Reason> {
  const others = n.matchers.filter((m) => m.name !== '__name__')
  const named = selectorOf(n, others)
  if (n.name && (await values(base, '__name__', named, signal)).length === 0) {
    const all = await values(base, '__name__', '', signal)
    const part = await histogramPart(base, n.name, all, signal)
    if (part) return { text: `No metric is named ${n.name}. ${part}` }
    const names = near(n.name, all).map((name) => ({ name, expr: renamed(query, n.name, name) }))
    return { text: `No metric is named ${n.name}.`, names }
  }
  // A server refuses a selector without a name that fits series without the label.
  for (const m of n.name ? others : n.matchers.filter((o) => o.type[0] === '=')) {
    const alone = selectorOf(n, n.matchers.filter((o) => o !== m))
    if ((await values(base, '__name__', alone, signal)).length > 0) continue
    const known = await values(base, m.name, n.name && named, signal)
    const there = known.length ? `It is ${known.slice(0, 5).map((v) => shortened(quoted(v), 60)).join(', ')}${known.length > 5 ? ` and ${exact(known.length - 5)} more` : ''}` : 'There is no such label'
    return { text: `No series${n.name && ` of ${n.name}`} has ${labelName(m.name)}${m.type}${quoted(m.value)}. ${there}.` }
  }
  const whole = selectorOf(n)
  if ((await values(base, '__name__', whole, signal)).length === 0) return { text: `Each matcher of ${whole} fits some series, but no series fits all of them.` }
  const last = await lastSeen(base, whole, from, time, signal)
  if (last === null) return { text: `${shortened(whole, 200)} had data, but not in the 30 days before this time range.` }
  // It may have data now, and none at the time of its own that offset and @ give it, or in its window.
  const asked = shortened(textOf(n), 200)
  const moved = n.offset || n.offsetExpr || n.startOrEnd || n.timestamp != null
  if (moved) return { text: `${asked} has no data: offset and @ say when. ${shortened(whole, 200)} last had some at about ${dateTime(last)}.` }
  if (n.type === 'matrixSelector' && last >= from) return { text: `${asked} has no samples at the end of this time range. ${shortened(whole, 200)} last had some at about ${dateTime(last)}. Use a longer window.`, time: last }
  return { text: `${shortened(whole, 200)} has no data in this time range. It last had some at about ${dateTime(last)}.`, time: last }
}

// histogramPart says what to write in place of a series that a classic histogram has, if the histogram is a native
// one, as timers are.
async function histogramPart(base: string, name: string, all: string[], signal: AbortSignal): Promise<string> {
  const forms: [RegExp, (of: string) => string][] = [
    [/_count$/, (of) => `histogram_count(${of})`],
    [/_sum$/, (of) => `histogram_sum(${of})`],
    [/_bucket$/, (of) => `histogram_quantile(0.99, rate(${of}[5m]))`],
  ]
  for (const [suffix, form] of forms) {
    const of = name.replace(suffix, '')
    if (of === name || !all.includes(of)) continue
    const known = await ask<Record<string, { type: string }[]>>(`${base}api/v1/metadata`, { metric: of }, signal)
    if (known.data[of]?.[0]?.type === 'histogram') return `${of} is a native histogram: write ${form(of)}.`
  }
  return ''
}

// lastSeen returns when a selector last had data, in the 30 days before a time.
async function lastSeen(base: string, selector: string, from: number, time: number, signal: AbortSignal): Promise<number | null> {
  // Each step looks back to the one before, which may be longer ago than a sample is the present value.
  const last = async (start: number, end: number, step: number) => {
    const answer = await queryRange(`count(last_over_time(${selector}[${step}s]))`, start, end, step, signal, base)
    return seriesOf(answer.data)[0]?.values?.at(-1)?.[0]
  }
  for (const range of [time - from + 86_400, 30 * 86_400]) {
    const step = stepFor(range, 300)
    const found = await last(time - range, time, step)
    if (found) return (await last(found - step, found, stepFor(step, 300))) ?? found
  }
  return null
}

// near returns the names that are most like a name.
function near(name: string, all: string[]): string[] {
  const plain = (text: string) => text.toLowerCase().replace(/[^a-z0-9]+/g, '_')
  const wanted = plain(name)
  const far = Math.max(2, Math.floor(wanted.length / 4))
  return all
    .map((other) => {
      const is = plain(other)
      const extended = is.startsWith(wanted) || wanted.startsWith(is)
      return { other, distance: extended ? Math.min(1, Math.abs(is.length - wanted.length)) : edits(wanted, is, far) }
    })
    .filter((x) => x.distance <= far)
    .sort((a, b) => a.distance - b.distance || a.other.length - b.other.length)
    .slice(0, 5)
    .map((x) => x.other)
}

// edits counts the letters to change, insert or remove between two texts. Above `far` it stops counting.
function edits(a: string, b: string, far: number): number {
  if (Math.abs(a.length - b.length) > far) return far + 1
  let above = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) row.push(Math.min(above[j] + 1, row[j - 1] + 1, above[j - 1] + Number(a[i - 1] !== b[j - 1])))
    above = row
  }
  return above[b.length]
}
