// Explore: PromQL queries, each with its answer as lines, stacks, a heatmap or a table.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { ask, usePoll } from './api'
import type { Mark } from './chart'
import { Events, type EventAnswer } from './events'
import * as explore from './explorestate'
import type { Query, State } from './explorestate'
import { addQuery } from './history'
import { Suggestions } from './metrics'
import { Choice } from './parts'
import { stepFor } from './promql'
import { QueryPanel } from './query'
import { go, parameters, usePlace } from './router'
import { self, useSelf } from './self'
import { CopyLink, TimeRange, TimesDialog } from './timerange'

const refreshes = [0, 2, 10, 60]

export function Explore() {
  const { params } = usePlace()
  const text = params.toString()
  const state = useMemo(() => explore.parse(new URLSearchParams(text)), [text])
  const [drafts, setDrafts] = useState(state.queries.map((q) => q.expr))
  const [runs, setRuns] = useState(0)
  const [choosing, setChoosing] = useState(false) // whether the dialog for a time range is open
  const shown = useRef(text)
  if (shown.current !== text) {
    // The user went back or followed a link: the queries of the address replace the
    // typed text.
    shown.current = text
    drafts.splice(0, drafts.length, ...state.queries.map((q) => q.expr))
    setDrafts([...drafts])
  }

  // Every change of the address includes the text that was typed in the meantime. It begins at the present address: of
  // two changes in a row, the second one may come before the first is drawn.
  const present = () => explore.parse(parameters())
  const typed = () => {
    const { queries } = present()
    return drafts.map((expr, i): Query => ({ ...(queries[i] ?? explore.blank), expr: expr.trim() }))
  }
  const change = (next: Partial<State>) => {
    const before = present()
    const to = explore.format({ ...before, queries: typed(), ...next })
    if (to.toString() === explore.format(before).toString()) setRuns(runs + 1)
    else go('explore', to)
  }
  const changeOne = (i: number, next: Partial<Query>) => change({ queries: typed().map((q, k) => (k === i ? { ...q, ...next } : q)) })
  const run = () => {
    for (const d of drafts) if (d.trim()) addQuery(d.trim())
    change({})
  }
  const setDraft = (i: number, expr: string) => {
    drafts[i] = expr
    setDrafts([...drafts])
  }

  const [now, setNow] = useState(Date.now() / 1000)
  const asked = useRef(`${text} ${runs}`)
  if (asked.current !== `${text} ${runs}`) {
    asked.current = `${text} ${runs}`
    setNow(Date.now() / 1000)
  }
  useEffect(() => {
    if (!state.refresh || state.to !== null) return
    const timer = setInterval(() => document.hidden || setNow(Date.now() / 1000), state.refresh * 1000)
    return () => clearInterval(timer)
  }, [text, runs])
  const to = state.to ?? now
  const from = to - state.range
  const step = state.step || stepFor(state.range, 240)
  const events = usePoll(
    async (signal) => (state.events ? ask<EventAnswer[]>('api/v1/events', { start: from.toFixed(3), end: to.toFixed(3), limit: '200' }, signal) : { data: [], warnings: [], infos: [] }),
    0,
    [from, to, state.events],
  )
  const [seen, setSeen] = useState<EventAnswer[]>([])
  useEffect(() => {
    if (events.data) setSeen(events.data.data)
  }, [events.data])
  const marks: Mark[] = seen.map((e) => ({ time: e.time, title: e.title, text: e.text, kind: e.alert_type || 'info' }))
  const zoom = (a: number, b: number) => {
    if (b - a >= 2) change({ to: Math.round(b), range: Math.max(2, Math.round(b) - Math.round(a)), refresh: 0 })
  }

  const offered = useSelf()
  const base = state.own ? self : ''
  const blank = state.queries.every((q) => !q.expr)
  return (
    <div class="explore">
      <div class="toolbar">
        <h1>Explore</h1>
        {(offered || state.own) && (
          <Choice
            label="Metrics of"
            value={base}
            options={[['', 'This tenant'], [self, 'Freshet itself']]}
            onChange={(of) => change({ own: of === self })}
          />
        )}
        <TimeRange state={state} from={from} to={to} change={change} onChoose={() => setChoosing(true)} />
        <label class="field inline">
          Refresh
          <select value={String(state.refresh)} disabled={state.to !== null} onChange={(e) => change({ refresh: Number(e.currentTarget.value) })}>
            {[...new Set([...refreshes, state.refresh])].sort((a, b) => a - b).map((r) => (
              <option key={r} value={String(r)}>
                {r ? explore.short(r) : 'off'}
              </option>
            ))}
          </select>
        </label>
        <label class="check">
          <input type="checkbox" checked={state.events} onChange={(e) => change({ events: e.currentTarget.checked })} /> Events
        </label>
        <CopyLink state={state} to={to} />
      </div>
      {choosing && <TimesDialog from={from} to={to} onClose={() => setChoosing(false)} onPick={(a, b) => (setChoosing(false), change({ to: b, range: b - a, refresh: 0 }))} />}
      {state.queries.map((query, i) => (
        <QueryPanel
          key={i}
          index={i}
          base={base}
          query={query}
          draft={drafts[i] ?? ''}
          alone={state.queries.length === 1}
          window={{ from, to, step, fixed: state.to !== null, runs }}
          marks={marks}
          onDraft={(expr) => setDraft(i, expr)}
          onRun={run}
          onChange={(next) => changeOne(i, next)}
          address={(expr) => explore.format({ ...state, queries: typed().map((q, k) => (k === i ? { ...q, expr } : q)) })}
          onDuplicate={() => change({ queries: typed().flatMap((q, k) => (k === i ? [q, q] : [q])) })}
          onRemove={() => change({ queries: typed().filter((_, k) => k !== i) })}
          onZoom={zoom}
        />
      ))}
      <p class="more">
        <button type="button" onClick={() => change({ queries: [...typed(), explore.blank] })}>
          + Add query
        </button>
      </p>
      {blank && <Suggestions key={base} base={base} onPick={(expr) => (addQuery(expr), change({ queries: [{ ...explore.blank, expr }] }))} />}
      {state.events && !blank && <Events events={seen} error={events.error?.message} />}
    </div>
  )
}
