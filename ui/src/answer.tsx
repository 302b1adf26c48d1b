// The answer to a query of Explore, as lines, stacks, a heatmap or a table.
import { useEffect, useMemo, useState } from 'preact/hooks'
import { usePoll, type Polled } from './api'
import { Chart, Heatmap, type Line, type Mark } from './chart'
import { dotsOf, exemplarsOf } from './exemplars'
import type { Query, View } from './explorestate'
import { placeIn } from './fault'
import { clock, compact, count, dateTime, exact, seconds, shortened } from './format'
import { Choice, Empty, Loading, Problem, Table, type Column } from './parts'
import { common, grid, heat, isClassic, isHistograms, number, onGrid, queryAt, queryRange, seriesName, seriesOf, type Cell, type Labels, type Series } from './promql'
import { self } from './self'

// drawn is the maximum number of series in a chart: with more, a chart would be slow, and its
// lines could not be distinguished.
const drawn = 100

// Window is the time range and the step of all queries.
export interface Window {
  from: number
  to: number
  step: number
  fixed: boolean // true if the range does not end at the present time
  runs: number
}

export interface AnswerProps {
  base: string // path of the API for the query
  name: string
  query: Query
  window: Window
  marks: Mark[]
  onView: (view: View) => void
  onZoom: (from: number, to: number) => void
  onError: (message: string) => void // with an empty message when there is no error
}

interface Loaded {
  window: Window
  instant: boolean
  type: string
  series: Series[]
  single: [number, string] | null // a scalar or a string
  warnings: string[]
  infos: string[]
  seconds: number // how long the server took to answer
}

async function load(base: string, expr: string, instant: boolean, w: Window, signal: AbortSignal): Promise<Loaded> {
  const begun = performance.now()
  const times = grid(w.from, w.to, w.step)
  const a = instant ? await queryAt(expr, w.fixed ? w.to : null, signal, base) : await queryRange(expr, times[0], times[times.length - 1], w.step, signal, base)
  const series = seriesOf(a.data)
  return {
    window: w, instant, type: a.data.resultType, series, warnings: a.warnings, infos: a.infos,
    single: a.data.resultType === 'scalar' || a.data.resultType === 'string' ? (a.data.result as [number, string]) : null,
    seconds: (performance.now() - begun) / 1000,
  }
}

// Answered shows the answer to a query, or its error.
export function Answered(props: AnswerProps) {
  const { query, window, onView } = props
  const instant = query.view === 'table'
  const polled: Polled<Loaded> = usePoll((signal) => load(props.base, query.expr, instant, window, signal), 0, [query.expr, instant, window.from, window.to, window.step, window.runs])
  const [last, setLast] = useState<Loaded | null>(null) // stays on the page while a newer one loads
  useEffect(() => {
    if (polled.data) setLast(polled.data)
  }, [polled.data])
  useEffect(() => props.onError(polled.error?.message ?? ''), [polled.error])
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
        <Problem error={polled.error} todo={placeIn(query.expr, polled.error.message) !== null ? 'The error is marked in the query.' : undefined} />
      ) : !fitting ? (
        <Loading what="Loading…" />
      ) : fitting.single ? (
        <p class="single">{fitting.single[1]}</p>
      ) : fitting.series.length === 0 ? (
        <Empty>
          <p>No data in this time range.</p>
          <p class="note">Check the name: completion lists the names that exist. Or try a longer time range. A new sample takes about a second to appear.</p>
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

function Lines(props: AnswerProps & { loaded: Loaded; stacked: boolean }) {
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
  // Only the stages' latencies have exemplars whose traces this server holds.
  const traced = props.base === self && props.query.expr.includes('freshet_stage_seconds')
  const dots = usePoll(async (signal) => (traced ? exemplarsOf(props.query.expr, times[0], window.to, signal) : []), 0, [loaded, traced])
  if (isHistograms(loaded.series)) {
    return (
      <Empty>
        <p>Native histograms cannot be drawn as lines.</p>
        <p class="note">Show them as a heatmap, or query histogram_quantile(0.99, …).</p>
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
  const range: [number, number] = [times[0], times[times.length - 1]]
  const at = (l: Line) => (cursor !== null ? (l.values[cursor] ?? null) : l.values.findLast((v) => v !== null) ?? null)
  return (
    <>
      <Chart
        label={`Chart of query ${props.name}`}
        times={times}
        lines={lines}
        stacked={stacked}
        range={range}
        height={280}
        marks={props.marks}
        dots={dots.data && dotsOf(dots.data, range, 40)}
        sync="explore"
        onZoom={props.onZoom}
        onCursor={setCursor}
      />
      {loaded.series.length > drawn && (
        <p class="hint warn">
          Only {drawn} of {count(loaded.series.length)} series are drawn. Use topk(10, …) or sum by (…) to get fewer.
        </p>
      )}
      <div class="legend">
        <p class="note">
          {cursor !== null && times[cursor] !== undefined ? dateTime(times[cursor]) : 'Last values'}
          {Object.keys(alike).length > 0 && <> · in all series: <code>{shortened(seriesName(alike), 500)}</code></>}
        </p>
        <ul tabIndex={0} aria-label="Series">
          {lines.map((l, i) => (
            <li key={l.name}>
              <button type="button" class="plain" aria-pressed={!l.hidden} title={`${shortened(l.name, 2000)}\nClick to hide, Shift+click to hide all others`} onClick={(e) => toggle(l.name, e.shiftKey)}>
                <span aria-hidden="true" class={`swatch s${i % 8} ${i >= 8 ? 'dashed' : ''}`} />
                <span class="code">{shortened(seriesName(shown[i].metric, alike), 500)}</span>
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

function Warm(props: AnswerProps & { loaded: Loaded }) {
  const { loaded } = props
  const { window } = loaded
  const [cell, setCell] = useState<(Cell & { time: number }) | null>(null)
  const times = useMemo(() => grid(window.from, window.to, window.step), [loaded])
  const columns = useMemo(() => heat(loaded.series, times, window.step), [loaded])
  if (columns.every((c) => c.length === 0)) {
    return (
      <Empty>
        <p>This answer has no histograms.</p>
        <p class="note">A heatmap needs native histograms, as in rate(latency[1m]), or classic ones with the label le, as in sum by (le) (rate(latency_bucket[1m])).</p>
        <button type="button" onClick={() => props.onView('lines')}>
          Show lines
        </button>
      </Empty>
    )
  }
  const most = Math.max(...columns.flat().map((c) => c.count))
  return (
    <>
      {!rated.test(props.query.expr) && <p class="hint">This histogram has counted up since it started. Use rate({props.query.expr}[1m]) to see when values came.</p>}
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
          {cell ? `${clock(cell.time)}: ${compact(cell.low)} to ${compact(cell.high)}, ${exact(cell.count)}` : loaded.series.length > 1 ? `${count(loaded.series.length)} series together` : 'Point at a cell to see its count'}
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
      {props.series.length > rows.length && <p class="hint warn">Only {count(rows.length)} of {count(props.series.length)} rows are shown.</p>}
    </>
  )
}

function value(s: Series): string {
  if (s.value) return exact(number(s.value[1]))
  const h = s.histogram?.[1]
  if (h) return `count ${exact(number(h.count))}, sum ${exact(number(h.sum))}, mean ${exact(number(h.sum) / number(h.count))}`
  return (s.values ?? []).map(([t, v]) => `${exact(number(v))} @${clock(t)}`).join(', ') || `${s.histograms?.length ?? 0} histograms`
}
