// Explore: questions in PromQL, each with its answer as lines, stacks, a heatmap or a table.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { ask, usePoll, type Polled } from './api'
import { Chart, Heatmap, type Line, type Mark } from './chart'
import type { Editor } from './editor'
import * as explore from './explorestate'
import type { Query, State, View } from './explorestate'
import { clock, compact, count, dateTime, exact, seconds } from './format'
import { addQuery, forgetQueries, queries as pastQueries } from './history'
import { Choice, Dialog, Empty, Loading, Panel, Problem, Table, type Column } from './parts'
import { common, firstLook, grid, heat, isClassic, isHistograms, number, onGrid, queryAt, queryRange, seriesName, seriesOf, stepFor, type Cell, type Labels, type Series } from './promql'
import { go, usePlace } from './router'

const presets = [300, 900, 3600, 3 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 30 * 86400]
const refreshes = [0, 2, 10, 60]

// drawn bounds how many series a chart has: more are slow, and nobody tells them apart.
const drawn = 100

// EventAnswer is an event as /api/v1/events has it.
interface EventAnswer {
  id: string
  time: number
  title: string
  text: string
  tags: string[]
  host: string
  alert_type: string
}

export function Explore() {
  const { params } = usePlace()
  const text = params.toString()
  const state = useMemo(() => explore.parse(new URLSearchParams(text)), [text])
  const [drafts, setDrafts] = useState(state.queries.map((q) => q.expr))
  const [runs, setRuns] = useState(0)
  const shown = useRef(text)
  if (shown.current !== text) {
    // Somebody went back, or followed a link: the address counts, not what was typed.
    shown.current = text
    drafts.splice(0, drafts.length, ...state.queries.map((q) => q.expr))
    setDrafts([...drafts])
  }

  // Every change takes along what was typed meanwhile.
  const typed = () => drafts.map((expr, i): Query => ({ expr: expr.trim(), view: state.queries[i]?.view ?? '' }))
  const change = (next: Partial<State>) => {
    const to = explore.format({ ...state, queries: typed(), ...next })
    if (to.toString() === explore.format(state).toString()) setRuns(runs + 1)
    else go('explore', to)
  }
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

  const blank = state.queries.every((q) => !q.expr)
  return (
    <div class="explore">
      <div class="toolbar">
        <h1>Explore</h1>
        <TimeRange state={state} from={from} to={to} change={change} />
        <label class="field inline">
          Refresh
          <select value={String(state.refresh)} disabled={state.to !== null} onChange={(e) => change({ refresh: Number(e.currentTarget.value) })}>
            {refreshes.map((r) => (
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
      {state.queries.map((query, i) => (
        <QueryPanel
          key={i}
          index={i}
          query={query}
          draft={drafts[i] ?? ''}
          alone={state.queries.length === 1}
          window={{ from, to, step, fixed: state.to !== null, runs }}
          marks={marks}
          onDraft={(expr) => setDraft(i, expr)}
          onRun={run}
          onView={(view) => change({ queries: typed().map((q, k) => (k === i ? { ...q, view } : q)) })}
          onRemove={() => change({ queries: typed().filter((_, k) => k !== i) })}
          onZoom={zoom}
        />
      ))}
      <p class="more">
        <button type="button" onClick={() => change({ queries: [...typed(), { expr: '', view: '' }] })}>
          + Add query
        </button>
      </p>
      {blank && <Suggestions onPick={(expr) => (addQuery(expr), change({ queries: [{ expr, view: '' }] }))} />}
      {state.events && !blank && <Events events={seen} error={events.error?.message} />}
    </div>
  )
}

function TimeRange(props: { state: State; from: number; to: number; change: (next: Partial<State>) => void }) {
  const { state, from, to, change } = props
  const [open, setOpen] = useState(false)
  const shift = (by: number) => change({ to: Math.round(to + by * state.range), refresh: 0 })
  return (
    <div class="timerange" role="group" aria-label="Time range">
      <button type="button" aria-label="Earlier" title="Earlier" onClick={() => shift(-0.5)}>
        ◀
      </button>
      <select
        aria-label="Time range"
        value={state.to === null ? String(state.range) : 'fixed'}
        onChange={(e) => (e.currentTarget.value === 'fixed' ? setOpen(true) : change({ range: Number(e.currentTarget.value), to: null }))}
      >
        {[...new Set(state.to === null ? [...presets, state.range] : presets)]
          .sort((a, b) => a - b)
          .map((p) => (
            <option key={p} value={String(p)}>
              Last {explore.short(p)}
            </option>
          ))}
        <option value="fixed">{state.to === null ? 'From … to …' : `${dateTime(from)} – ${dateTime(to)}`}</option>
      </select>
      <button type="button" aria-label="Later" title="Later" disabled={state.to === null} onClick={() => shift(0.5)}>
        ▶
      </button>
      <button type="button" aria-label="Choose times" title="Choose times" onClick={() => setOpen(true)}>
        ⋯
      </button>
      {open && <TimesDialog from={from} to={to} onClose={() => setOpen(false)} onPick={(a, b) => (setOpen(false), change({ to: b, range: b - a, refresh: 0 }))} />}
    </div>
  )
}

// local writes a time for an input of type datetime-local.
function local(unix: number): string {
  return dateTime(unix).replace(' ', 'T')
}

function TimesDialog(props: { from: number; to: number; onClose: () => void; onPick: (from: number, to: number) => void }) {
  const [from, setFrom] = useState(local(props.from))
  const [to, setTo] = useState(local(props.to))
  const a = Math.round(Date.parse(from) / 1000)
  const b = Math.round(Date.parse(to) / 1000)
  const good = b > a
  return (
    <Dialog title="From … to …" onClose={props.onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault()
          if (good) props.onPick(a, b)
        }}
      >
        <label class="field">
          From
          <input type="datetime-local" step="1" value={from} onInput={(e) => setFrom(e.currentTarget.value)} />
        </label>
        <label class="field">
          To
          <input type="datetime-local" step="1" value={to} onInput={(e) => setTo(e.currentTarget.value)} />
        </label>
        <p class="note">Times are those of {Intl.DateTimeFormat().resolvedOptions().timeZone}.</p>
        {!good && <p class="bad">The end must be after the beginning.</p>}
        <button type="submit" class="primary" disabled={!good}>
          Show
        </button>
      </form>
    </Dialog>
  )
}

// CopyLink gives an address that shows the same tomorrow: with its times fixed.
function CopyLink(props: { state: State; to: number }) {
  const [done, setDone] = useState('')
  const copy = async () => {
    const params = explore.format({ ...props.state, to: Math.round(props.to), refresh: 0 })
    const link = new URL('explore?' + params, document.baseURI).href
    try {
      await navigator.clipboard.writeText(link)
      setDone('Copied')
    } catch {
      go('explore', params) // without a clipboard the address bar has it
      setDone('Copy the address')
    }
    setTimeout(() => setDone(''), 2000)
  }
  return (
    <button type="button" aria-live="polite" onClick={copy} title="A link to exactly these times">
      {done || 'Copy link'}
    </button>
  )
}

interface Window {
  from: number
  to: number
  step: number
  fixed: boolean // to is not now
  runs: number
}

interface PanelProps {
  index: number
  query: Query
  draft: string
  alone: boolean
  window: Window
  marks: Mark[]
  onDraft: (expr: string) => void
  onRun: () => void
  onView: (view: View) => void
  onRemove: () => void
  onZoom: (from: number, to: number) => void
}

function QueryPanel(props: PanelProps) {
  const { index, query, window } = props
  const name = String.fromCharCode(65 + (index % 26))
  const [past, setPast] = useState(false)
  return (
    <section class="panel query" aria-label={`Query ${name}`}>
      <div class="ask">
        <span class="letter" aria-hidden="true">
          {name}
        </span>
        <QueryEditor label={`Query ${name}`} text={props.draft} onChange={props.onDraft} onRun={props.onRun} />
        <div class="buttons">
          <button type="button" class="primary" onClick={props.onRun} title="Enter, or Ctrl+Enter">
            Run
          </button>
          <button type="button" onClick={() => setPast(true)}>
            History
          </button>
          {!props.alone && (
            <button type="button" aria-label={`Remove query ${name}`} title="Remove" onClick={props.onRemove}>
              ✕
            </button>
          )}
        </div>
      </div>
      {past && <History onClose={() => setPast(false)} onPick={(expr) => (setPast(false), props.onDraft(expr))} />}
      {query.expr && <Answered {...props} key={query.expr} name={name} window={window} />}
    </section>
  )
}

// QueryEditor is a plain field until the editor is loaded.
function QueryEditor(props: { label: string; text: string; onChange: (text: string) => void; onRun: () => void }) {
  const ref = useRef<HTMLDivElement>(null)
  const editor = useRef<Editor | null>(null)
  const latest = useRef(props)
  latest.current = props
  const recalled = useRef(-1)
  const [loaded, setLoaded] = useState(false)
  useEffect(() => {
    let gone = false
    void import('./editor').then(({ mount }) => {
      if (gone) return
      const field = ref.current!.querySelector('textarea')
      const focused = field !== null && field === document.activeElement
      setLoaded(true)
      editor.current = mount(ref.current!, {
        text: latest.current.text,
        label: latest.current.label,
        onChange: (text) => latest.current.onChange(text),
        onRun: () => {
          recalled.current = -1
          latest.current.onRun()
        },
        onRecall(by) {
          const all = pastQueries()
          recalled.current = Math.min(all.length - 1, Math.max(0, recalled.current + by))
          if (all.length) latest.current.onChange(all[recalled.current])
        },
      })
      if (focused) editor.current.focus()
    })
    return () => {
      gone = true
      editor.current?.destroy()
    }
  }, [])
  // Before the next key is handled: a later effect could set what was typed before it.
  useLayoutEffect(() => editor.current?.set(props.text), [props.text])
  return (
    <div class="editor" ref={ref}>
      {!loaded && (
        <textarea
          aria-label={props.label}
          data-slash
          rows={1}
          spellcheck={false}
          value={props.text}
          placeholder="PromQL, such as rate(page_views[1m])"
          onInput={(e) => props.onChange(e.currentTarget.value)}
          onKeyDown={(e) => {
            if (e.key !== 'Enter' || e.shiftKey) return
            e.preventDefault()
            props.onRun()
          }}
        />
      )}
    </div>
  )
}

function History(props: { onClose: () => void; onPick: (expr: string) => void }) {
  const [all, setAll] = useState(pastQueries())
  return (
    <Dialog title="Queries run in this browser" onClose={props.onClose}>
      {all.length === 0 && <Empty>None yet.</Empty>}
      <ul class="picks">
        {all.map((q) => (
          <li key={q}>
            <button type="button" class="plain code" onClick={() => props.onPick(q)}>
              {q}
            </button>
          </li>
        ))}
      </ul>
      {all.length > 0 && (
        <button type="button" onClick={() => (forgetQueries(), setAll([]))}>
          Forget them
        </button>
      )}
    </Dialog>
  )
}

interface Loaded {
  window: Window
  instant: boolean
  type: string
  series: Series[]
  single: [number, string] | null // a scalar or a string
  warnings: string[]
  infos: string[]
  seconds: number // that it took
}

async function load(expr: string, instant: boolean, w: Window, signal: AbortSignal): Promise<Loaded> {
  const begun = performance.now()
  const times = grid(w.from, w.to, w.step)
  const a = instant ? await queryAt(expr, w.fixed ? w.to : null, signal) : await queryRange(expr, times[0], times[times.length - 1], w.step, signal)
  const series = seriesOf(a.data)
  return {
    window: w, instant, type: a.data.resultType, series, warnings: a.warnings, infos: a.infos,
    single: a.data.resultType === 'scalar' || a.data.resultType === 'string' ? (a.data.result as [number, string]) : null,
    seconds: (performance.now() - begun) / 1000,
  }
}

// Answered is the answer of a query, or why there is none.
function Answered(props: PanelProps & { name: string }) {
  const { query, window, onView } = props
  const instant = query.view === 'table'
  const polled: Polled<Loaded> = usePoll((signal) => load(query.expr, instant, window, signal), 0, [query.expr, instant, window.from, window.to, window.step, window.runs])
  const [last, setLast] = useState<Loaded | null>(null) // stays while a newer is under way
  useEffect(() => {
    if (polled.data) setLast(polled.data)
  }, [polled.data])
  const fitting = last && last.instant === instant ? last : null
  const view: View = query.view || (fitting && !instant && (isHistograms(fitting.series) || isClassic(fitting.series)) ? 'heatmap' : 'lines')
  return (
    <div class="answer" aria-busy={!polled.data && !polled.error}>
      <div class="line">
        <Choice
          label="Show as"
          value={view}
          options={[['lines', 'Lines'], ['stacked', 'Stacked'], ['heatmap', 'Heatmap'], ['table', 'Table']]}
          onChange={onView}
        />
        {fitting && !polled.error && (
          <p class="note">
            {count(fitting.series.length)} series{!instant && `, step ${seconds(fitting.window.step)}`}, in {seconds(fitting.seconds)}
          </p>
        )}
      </div>
      {fitting && !polled.error && [...fitting.warnings, ...fitting.infos].map((w, i) => (
        <p key={i} class={i < fitting.warnings.length ? 'hint warn' : 'hint'}>
          {w}
        </p>
      ))}
      {polled.error ? (
        <Problem error={polled.error} todo={polled.error.kind === 'bad_data' ? 'The editor marks where it goes wrong.' : undefined} />
      ) : !fitting ? (
        <Loading what="Asking…" />
      ) : fitting.single ? (
        <p class="single">{fitting.single[1]}</p>
      ) : fitting.series.length === 0 ? (
        <Empty>
          <p>Nothing is there at these times.</p>
          <p class="note">Is the name right? Completion knows those that exist. A longer range may have more; a window is a second, so what was sent just now is there in a moment.</p>
        </Empty>
      ) : instant ? (
        <Instant series={fitting.series} />
      ) : view === 'heatmap' ? (
        <Warm {...props} loaded={fitting} />
      ) : (
        <Lines {...props} loaded={fitting} stacked={view === 'stacked'} />
      )}
    </div>
  )
}

function Lines(props: PanelProps & { name: string; loaded: Loaded; stacked: boolean }) {
  const { loaded, stacked } = props
  const { window } = loaded
  const [hidden, setHidden] = useState<Set<string>>(new Set())
  const [cursor, setCursor] = useState<number | null>(null)
  const times = useMemo(() => grid(window.from, window.to, window.step), [loaded])
  const shown = loaded.series.slice(0, drawn)
  const alike = useMemo(() => common(loaded.series), [loaded])
  const lines: Line[] = useMemo(
    () => shown.map((s) => ({ name: seriesName(s.metric), values: onGrid(s.values, times, window.step), hidden: hidden.has(seriesName(s.metric)) })),
    [loaded, hidden],
  )
  if (isHistograms(loaded.series)) {
    return (
      <Empty>
        <p>These are native histograms, which are no lines.</p>
        <p class="note">A heatmap shows them; histogram_quantile(0.99, …) makes lines of them.</p>
        <button type="button" onClick={() => props.onView('heatmap')}>
          Show a heatmap
        </button>
      </Empty>
    )
  }
  const toggle = (name: string, alone: boolean) => {
    const next = new Set(hidden)
    if (alone) {
      const only = lines.every((l) => l.hidden === (l.name !== name))
      next.clear()
      if (!only) lines.forEach((l) => l.name !== name && next.add(l.name))
    } else if (!next.delete(name)) next.add(name)
    setHidden(next)
  }
  const at = (l: Line) => (cursor !== null ? (l.values[cursor] ?? null) : l.values.findLast((v) => v !== null) ?? null)
  return (
    <>
      <Chart
        label={`Chart of query ${props.name}`}
        times={times}
        lines={lines}
        stacked={stacked}
        range={[times[0], times[times.length - 1]]}
        height={280}
        marks={props.marks}
        sync="explore"
        onZoom={props.onZoom}
        onCursor={setCursor}
      />
      {loaded.series.length > drawn && (
        <p class="hint warn">
          {drawn} of {count(loaded.series.length)} series are drawn. topk(10, …) or sum by (…) picks those that matter.
        </p>
      )}
      <div class="legend">
        <p class="note">
          {cursor !== null && times[cursor] !== undefined ? dateTime(times[cursor]) : 'Last values'}
          {Object.keys(alike).length > 0 && <> · all: <code>{seriesName(alike)}</code></>}
        </p>
        <ul tabIndex={0} aria-label="Series">
          {lines.map((l, i) => (
            <li key={l.name}>
              <button type="button" class="plain" aria-pressed={!l.hidden} title={`${l.name}\nClick hides it, Shift+click all others`} onClick={(e) => toggle(l.name, e.shiftKey)}>
                <span aria-hidden="true" class={`swatch s${i % 8} ${i >= 8 ? 'dashed' : ''}`} />
                <span class="code">{seriesName(shown[i].metric, alike)}</span>
                <span class="value">{show(at(l))}</span>
              </button>
            </li>
          ))}
        </ul>
      </div>
    </>
  )
}

const show = (v: number | null) => (v === null ? '–' : exact(v))

const rated = /\b(rate|irate|increase|delta|xrate|xincrease)\s*\(/

function Warm(props: PanelProps & { name: string; loaded: Loaded }) {
  const { loaded } = props
  const { window } = loaded
  const [cell, setCell] = useState<(Cell & { time: number }) | null>(null)
  const times = useMemo(() => grid(window.from, window.to, window.step), [loaded])
  const columns = useMemo(() => heat(loaded.series, times, window.step), [loaded])
  if (columns.every((c) => c.length === 0)) {
    return (
      <Empty>
        <p>There are no histograms in this answer.</p>
        <p class="note">A heatmap wants native histograms, or classic ones with their label le: rate(latency[1m]), sum by (le) (rate(latency_bucket[1m])).</p>
        <button type="button" onClick={() => props.onView('lines')}>
          Show lines
        </button>
      </Empty>
    )
  }
  const most = Math.max(...columns.flat().map((c) => c.count))
  return (
    <>
      {!rated.test(props.query.expr) && <p class="hint">Histograms count up since they began. rate({props.query.expr}[1m]) shows what came when.</p>}
      <Heatmap
        label={`Heatmap of query ${props.name}`}
        times={times}
        columns={columns}
        step={window.step}
        range={[times[0], times[times.length - 1]]}
        height={280}
        marks={props.marks}
        sync="explore"
        onZoom={props.onZoom}
        onCursor={() => {}}
        onCell={setCell}
      />
      <p class="scale note">
        <span>0</span>
        <span aria-hidden="true" class="gradient" />
        <span>{compact(most)}</span>
        <span role="status">
          {cell ? `${clock(cell.time)}: ${compact(cell.low)} to ${compact(cell.high)}, ${exact(cell.count)}` : loaded.series.length > 1 ? `${count(loaded.series.length)} series together` : 'Point at a cell'}
        </span>
      </p>
    </>
  )
}

// Instant is the answer at one time.
function Instant(props: { series: Series[] }) {
  const rows = props.series.slice(0, 1000)
  const names = [...new Set(rows.flatMap((s) => Object.keys(s.metric)))].sort((a, b) => Number(b === '__name__') - Number(a === '__name__') || a.localeCompare(b))
  const columns: Column<Series>[] = names.map((n) => ({ name: n === '__name__' ? 'metric' : n, class: 'code', cell: (s: Series) => (s.metric as Labels)[n] ?? '' }))
  columns.push({ name: 'value', number: true, cell: value })
  return (
    <>
      <Table label="Answer" columns={columns} rows={rows} />
      {props.series.length > rows.length && <p class="hint warn">{count(rows.length)} of {count(props.series.length)} rows are shown.</p>}
    </>
  )
}

function value(s: Series): string {
  if (s.value) return exact(number(s.value[1]))
  const h = s.histogram?.[1]
  if (h) return `count ${exact(number(h.count))}, sum ${exact(number(h.sum))}, mean ${exact(number(h.sum) / number(h.count))}`
  return (s.values ?? []).map(([t, v]) => `${exact(number(v))} @${clock(t)}`).join(', ') || `${s.histograms?.length ?? 0} histograms`
}

function Events(props: { events: EventAnswer[]; error?: string }) {
  const columns: Column<EventAnswer>[] = [
    { name: 'time', cell: (e) => dateTime(e.time), class: 'nowrap' },
    { name: 'type', cell: (e) => <span class={'tag ' + e.alert_type}>{e.alert_type || 'info'}</span> },
    { name: 'event', cell: (e) => <b>{e.title}</b> },
    { name: 'text', cell: (e) => e.text },
    { name: 'tags', cell: (e) => e.tags.join(', '), class: 'code' },
  ]
  return (
    <Panel title="Events" note={props.events.length ? `${count(props.events.length)} at these times` : undefined}>
      {props.error ? <p class="bad">{props.error}</p> : props.events.length ? <Table label="Events" columns={columns} rows={props.events} /> : <Empty>No event at these times. Clients send them as _e{'{…}'}:title|text.</Empty>}
    </Panel>
  )
}

interface Named {
  name: string
  type: string // empty if nobody has said it
  help: string
}

// names are all metrics, with what is known of them.
async function names(signal: AbortSignal): Promise<Named[]> {
  const [all, known] = await Promise.all([
    ask<string[]>('api/v1/label/__name__/values', {}, signal),
    ask<Record<string, { type: string; help: string }[]>>('api/v1/metadata', {}, signal),
  ])
  return all.data.map((name) => ({ name, type: known.data[name]?.[0]?.type ?? '', help: known.data[name]?.[0]?.help ?? '' }))
}

// Suggestions are what to begin with: the metrics that there are.
function Suggestions(props: { onPick: (expr: string) => void }) {
  const [filter, setFilter] = useState('')
  const { data, error } = usePoll(names, 30_000, [])
  const all = data ?? []
  const found = all.filter(({ name }) => name.toLowerCase().includes(filter.toLowerCase()))
  return (
    <Panel title="Metrics" note={data && `${count(all.length)}; one click shows it`}>
      {error && <Problem error={error} />}
      {!data && !error && <Loading what="Asking for names…" />}
      {data && all.length === 0 && (
        <Empty>
          <p>No metric is there yet. Send one:</p>
          <pre>echo 'page_views:1|c|#page:home' &gt; /dev/udp/127.0.0.1/8125</pre>
        </Empty>
      )}
      {all.length > 0 && (
        <>
          <label class="field">
            Filter
            <input type="search" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
          </label>
          <ul class="metrics">
            {found.slice(0, 200).map(({ name, type, help }) => (
              <li key={name}>
                <button type="button" class="plain" onClick={() => props.onPick(firstLook(name, type))}>
                  <span class="code">{name}</span>
                  {type && <span class="tag">{type}</span>}
                  {help && <span class="note">{help}</span>}
                </button>
              </li>
            ))}
          </ul>
          {found.length > 200 && <p class="note">200 of {count(found.length)} are listed.</p>}
        </>
      )}
    </Panel>
  )
}
