// The answer to a query of Explore, as lines, stacks, a heatmap or a table.
import { useEffect, useMemo, useState } from 'preact/hooks'
import { usePoll, type Polled } from './api'
import { Chart, Heatmap, type Line, type Mark } from './chart'
import { dotsOf, exemplarsOf } from './exemplars'
import type { Query, View } from './explorestate'
import { answerJSON, curlOf, instantCSV, rangeCSV, save } from './export'
import { placeIn } from './fault'
import { clock, compact, count, dateTime, day, exact, seconds, shortened } from './format'
import { Choice, Empty, Loading, Problem, Table, type Column } from './parts'
import { NoData, PartTree } from './parttree'
import { common, grid, heat, instantRequest, isClassic, isHistograms, legendName, number, onGrid, rangeRequest, send, seriesName, seriesOf, withNewest, type Cell, type Labels, type Request, type Result, type Series } from './promql'
import { self } from './self'
import { remember, remembered } from './store'
import { seriesColour, seriesColours } from './theme'
import { unitOf, units, type Unit, type UnitName } from './units'

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
  onChange: (next: Partial<Query>) => void
  onZoom: (from: number, to: number) => void
  address: (expr: string) => URLSearchParams // of the page with another expression in this query's place
  onError: (message: string) => void // with an empty message when there is no error
}

interface Loaded {
  window: Window
  instant: boolean
  request: Request
  result: Result
  series: Series[]
  times: number[] // of a range query
  single: [number, string] | null // a scalar or a string
  warnings: string[]
  infos: string[]
  seconds: number // how long the server took to answer
}

// load asks for a range at the times of a grid, whose last one may be a step ago. So it also asks for the present values.
async function load(base: string, expr: string, instant: boolean, w: Window, signal: AbortSignal): Promise<Loaded> {
  const begun = performance.now()
  const times = grid(w.from, w.to, w.step)
  const request = instant ? instantRequest(expr, w.fixed ? w.to : null, base) : rangeRequest(expr, times[0], times[times.length - 1], w.step, base)
  const live = !instant && !w.fixed && w.to > times[times.length - 1]
  const [a, newest] = await Promise.all([
    send({ ...request, params: { ...request.params, stats: 'true' } }, signal),
    live ? send(instantRequest(expr, w.to, base), signal) : null,
  ])
  if (live) times.push(w.to)
  const series = newest ? withNewest(seriesOf(a.data), seriesOf(newest.data)) : seriesOf(a.data)
  return {
    window: w, instant, request, result: a.data, series, times, warnings: a.warnings, infos: a.infos,
    single: a.data.resultType === 'scalar' || a.data.resultType === 'string' ? (a.data.result as [number, string]) : null,
    seconds: (performance.now() - begun) / 1000,
  }
}

// Answered shows the answer to a query, or its error.
export function Answered(props: AnswerProps) {
  const { query, window } = props
  const [options, setOptions] = useState(false)
  const [tree, setTree] = useState(false)
  const asked = { base: props.base, expr: query.expr, from: window.from, to: window.fixed ? Math.floor(window.to / window.step) * window.step : window.to, turn: `${window.runs} ${window.to - window.from} ${window.fixed && window.to}` }
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
          onChange={(view) => props.onChange({ view })}
        />
        <button type="button" class="plain" aria-expanded={options} onClick={() => setOptions(!options)}>
          Options
        </button>
        <button type="button" class="plain" aria-expanded={tree} title="What each part of the query answers" onClick={() => setTree(!tree)}>
          Parts
        </button>
        {fitting && !polled.error && (
          <p class="note">
            {count(fitting.series.length)} series{!instant && `, step ${seconds(fitting.window.step)}`}{read(fitting.result)}, in {seconds(fitting.seconds)}
          </p>
        )}
      </div>
      {options && <Options {...props} view={view} loaded={polled.error ? null : fitting} />}
      {tree && <PartTree {...asked} />}
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
        <NoData {...asked} address={props.address} onTime={(time) => props.onZoom(time - (window.to - window.from) / 2, time + (window.to - window.from) / 2)} />
      ) : instant ? (
        <Instant series={fitting.series} unit={query.unit} />
      ) : view === 'heatmap' ? (
        <Warm {...props} loaded={fitting} />
      ) : (
        <Lines {...props} loaded={fitting} stacked={view === 'stacked'} />
      )}
    </div>
  )
}

// read writes how many samples a query read.
function read(r: Result): string {
  const samples = r.stats?.samples?.totalQueryableSamples
  return samples === undefined ? '' : `, ${count(samples)} samples read`
}

// Options are how values are written, and ways to take the answer along.
function Options(props: AnswerProps & { view: View; loaded: Loaded | null }) {
  const { query, loaded, view, onChange } = props
  const [copied, setCopied] = useState('')
  const file = (l: Loaded) => `query-${props.name}-${day(l.window.to)}-${clock(l.window.to).replaceAll(':', '')}`
  const copy = async (l: Loaded) => {
    const command = curlOf(l.request.path, l.request.params)
    try {
      await navigator.clipboard.writeText(command)
      setCopied('Copied')
    } catch {
      setCopied(command) // without a clipboard, the user can copy the text
    }
  }
  const csv = (l: Loaded) => (l.instant ? instantCSV(l.series) : rangeCSV(l.series, l.series.map((s) => nameOf(query, s.metric))))
  return (
    <div class="options">
      <label class="field inline">
        Unit
        <select value={query.unit} onChange={(e) => onChange({ unit: units.find((u) => u === e.currentTarget.value) })}>
          {units.map((u) => (
            <option key={u} value={u}>
              {unitOf[u].title}
            </option>
          ))}
        </select>
      </label>
      {view === 'lines' && (
        <label class="check">
          <input type="checkbox" checked={query.log} onChange={(e) => onChange({ log: e.currentTarget.checked })} /> Logarithmic
        </label>
      )}
      {(view === 'lines' || view === 'stacked') && (
        <label class="field inline">
          Legend
          <input type="text" value={query.legend} placeholder="{{label}}" onChange={(e) => onChange({ legend: e.currentTarget.value })} />
        </label>
      )}
      <div class="buttons" role="group" aria-label="Take along">
        <button type="button" disabled={!loaded || loaded.single !== null || isHistograms(loaded.series)} onClick={() => save(file(loaded!) + '.csv', 'text/csv', csv(loaded!))}>
          CSV
        </button>
        <button type="button" disabled={!loaded} onClick={() => save(file(loaded!) + '.json', 'application/json', answerJSON(loaded!.result))}>
          JSON
        </button>
        <button type="button" disabled={!loaded} aria-live="polite" onClick={() => void copy(loaded!)}>
          {copied === 'Copied' ? copied : 'Copy as curl'}
        </button>
      </div>
      {copied && copied !== 'Copied' && <pre>{copied}</pre>}
    </div>
  )
}

const nameOf = (query: Query, metric: Labels) => (query.legend ? legendName(query.legend, metric) : seriesName(metric))

const sortKey = 'freshet.legend' // in this browser: whether legends are sorted by name

function Lines(props: AnswerProps & { loaded: Loaded; stacked: boolean }) {
  const { loaded, stacked, query } = props
  const { window, times } = loaded
  const unit = unitOf[query.unit]
  const [byName, setByName] = useState(remembered(sortKey) === 'name')
  const [hidden, setHidden] = useState<Set<string>>(new Set())
  const [cursor, setCursor] = useState<number | null>(null)
  const [near, setNear] = useState<number | null>(null) // the line nearest to the cursor
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
        <button type="button" onClick={() => props.onChange({ view: 'heatmap' })}>
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
  const last = (l: Line) => l.values.findLast((v) => v !== null) ?? null
  const at = (l: Line) => (cursor !== null ? (l.values[cursor] ?? null) : last(l))
  const label = (i: number) => shortened(query.legend ? legendName(query.legend, shown[i].metric) : seriesName(shown[i].metric, alike), 500)
  const nearest = near !== null && cursor !== null && lines[near] ? near : null
  const places = lines.map((_, i) => i)
  if (!byName) places.sort((a, b) => (last(lines[b]) ?? -Infinity) - (last(lines[a]) ?? -Infinity) || a - b)
  const sort = () => {
    remember(sortKey, byName ? 'value' : 'name')
    setByName(!byName)
  }
  return (
    <>
      <Chart
        label={`Chart of query ${props.name}`}
        times={times}
        lines={lines}
        stacked={stacked}
        log={query.log && !stacked}
        format={unit.axis}
        binary={unit.binary}
        range={range}
        height={280}
        marks={props.marks}
        dots={dots.data && dotsOf(dots.data, range, 40)}
        sync="explore"
        onZoom={props.onZoom}
        onCursor={setCursor}
        onNear={setNear}
      />
      {loaded.series.length > drawn && (
        <p class="hint warn">
          Only {drawn} of {count(loaded.series.length)} series are drawn. Use topk(10, …) or sum by (…) to get fewer.
        </p>
      )}
      {query.log && !stacked && lines.some((l) => l.values.some((v) => v !== null && v <= 0)) && <p class="hint">A logarithmic scale has no place for values of 0 or less.</p>}
      <div class="legend">
        <p class="nearest">
          {nearest !== null && (
            <>
              <Swatch line={nearest} />
              <span class="code">{label(nearest)}</span>
              <b>{show(at(lines[nearest]), unit)}</b>
            </>
          )}
          <span class="note">{cursor !== null && times[cursor] !== undefined ? dateTime(times[cursor]) : 'Last values'}</span>
        </p>
        <p class="note">
          {Object.keys(alike).length > 0 && <>In all series: <code>{shortened(seriesName(alike), 500)}</code></>}
          {lines.length > 1 && (
            <>
              {' '}
              <button type="button" class="more" onClick={sort}>
                {byName ? 'sort by last value' : 'sort by name'}
              </button>
            </>
          )}
        </p>
        <ul tabIndex={0} aria-label="Series">
          {places.map((i) => {
            const l = lines[i]
            return (
              <li key={l.name}>
                <button type="button" class={i === nearest ? 'plain near' : 'plain'} aria-pressed={!l.hidden} title={`${shortened(l.name, 2000)}\nClick to hide, Shift+click to hide all others`} onClick={(e) => toggle(l.name, e.shiftKey)}>
                  <Swatch line={i} />
                  <span class="code">{label(i)}</span>
                  <span class="value">{show(at(l), unit)}</span>
                </button>
              </li>
            )
          })}
        </ul>
      </div>
    </>
  )
}

// Swatch is drawn as the line is.
const Swatch = (props: { line: number }) => <span aria-hidden="true" class={props.line < seriesColours ? 'swatch' : 'swatch dashed'} style={{ '--c': `var(--${seriesColour(props.line)})` }} />

const show = (v: number | null, unit: Unit) => (v === null ? '–' : unit.value(v))

const rated = /\b(rate|irate|increase|delta|xrate|xincrease)\s*\(/

function Warm(props: AnswerProps & { loaded: Loaded }) {
  const { loaded } = props
  const { window, times } = loaded
  const { axis } = unitOf[props.query.unit]
  const [cell, setCell] = useState<(Cell & { time: number }) | null>(null)
  const columns = useMemo(() => heat(loaded.series, times, window.step), [loaded])
  if (columns.every((c) => c.length === 0)) {
    return (
      <Empty>
        <p>This answer has no histograms.</p>
        <p class="note">A heatmap needs native histograms, as in rate(latency[1m]), or classic ones with the label le, as in sum by (le) (rate(latency_bucket[1m])).</p>
        <button type="button" onClick={() => props.onChange({ view: 'lines' })}>
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
        format={axis}
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
          {cell ? `${clock(cell.time)}: ${axis(cell.low)} to ${axis(cell.high)}, ${exact(cell.count)}` : loaded.series.length > 1 ? `${count(loaded.series.length)} series together` : 'Point at a cell to see its count'}
        </span>
      </p>
    </>
  )
}

// Instant is the answer at one time.
function Instant(props: { series: Series[]; unit: UnitName }) {
  const write = unitOf[props.unit].value
  const rows = props.series.slice(0, 1000)
  const names = [...new Set(rows.flatMap((s) => Object.keys(s.metric)))].sort((a, b) => Number(b === '__name__') - Number(a === '__name__') || a.localeCompare(b))
  const columns: Column<Series>[] = names.map((n) => ({ name: n === '__name__' ? 'metric' : n, class: 'code', sort: (s: Series) => (s.metric as Labels)[n], cell: (s: Series) => (s.metric as Labels)[n] ?? '' }))
  columns.push({ name: 'value', number: true, sort: (s) => s.value && number(s.value[1]), cell: (s) => value(s, write) })
  return (
    <>
      <Table label="Answer" stacks={columns.length > 2} columns={columns} rows={rows} />
      {props.series.length > rows.length && <p class="hint warn">Only {count(rows.length)} of {count(props.series.length)} rows are shown.</p>}
    </>
  )
}

function value(s: Series, write: (v: number) => string): string {
  if (s.value) return write(number(s.value[1]))
  const h = s.histogram?.[1]
  if (h) return `count ${exact(number(h.count))}, sum ${write(number(h.sum))}, mean ${write(number(h.sum) / number(h.count))}`
  return (s.values ?? []).map(([t, v]) => `${write(number(v))} @${clock(t)}`).join(', ') || `${s.histograms?.length ?? 0} histograms`
}
