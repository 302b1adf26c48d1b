// Exemplars of freshet_stage_seconds: batches that were over their budget, each with a
// trace that Records shows.
import { ask } from './api'
import type { Dot } from './chart'
import { clock, seconds } from './format'
import { number, type Labels } from './promql'
import { self } from './self'
import { heads } from './traces'

export interface Exemplar {
  labels: Labels // labels of its series
  trace: string
  time: number
  value: number // seconds
}

interface Answered {
  seriesLabels: Labels
  exemplars: { labels: Labels; value: string; timestamp: number }[]
}

// exemplarsOf returns the exemplars of the series in `expr` whose traces the server still has. It
// does not request exemplars that are older than the oldest trace, because there may be many.
export async function exemplarsOf(expr: string, from: number, to: number, signal: AbortSignal): Promise<Exemplar[]> {
  const held = new Map((await heads(signal)).map((t) => [t.id, Date.parse(t.start) / 1000]))
  const start = Math.max(from, Math.min(...held.values()))
  if (held.size === 0 || start > to) return []
  const answer = await ask<Answered[]>(`${self}api/v1/query_exemplars`, { query: expr, start: start.toFixed(3), end: to.toFixed(3) }, signal)
  return (answer.data ?? []).flatMap((s) =>
    s.exemplars.filter((e) => held.has(e.labels.trace_id)).map((e) => ({ labels: s.seriesLabels, trace: e.labels.trace_id, time: e.timestamp, value: number(e.value) })),
  )
}

// dotsOf returns the exemplars as dots. Of exemplars that would overlap, it keeps only
// the slowest.
export function dotsOf(all: Exemplar[], [from, to]: [number, number], places: number): Dot[] {
  const slowest = new Map<number, Exemplar>()
  for (const e of all) {
    const place = Math.floor(((e.time - from) / (to - from)) * places)
    const there = slowest.get(place)
    if (place >= 0 && place < places && !(there && there.value >= e.value)) slowest.set(place, e)
  }
  return [...slowest.values()]
    .sort((a, b) => a.time - b.time)
    .map((e) => ({ time: e.time, value: e.value, trace: e.trace, title: `Trace: ${e.labels.stage} of ${e.labels.input}, ${seconds(e.value)} at ${clock(e.time)}` }))
}
