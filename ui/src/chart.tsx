// Charts: uPlot draws on a canvas. Legends, marks and names around it are text.
import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import { clock, compact, dateTime, ticks } from './format'
import { Link } from './parts'
import { useStore } from './store'
import { colour, seriesColour, seriesColours, shades } from './theme'
import { zone, zoneName } from './zone'
import type { Cell } from './promql'

export interface Line {
  name: string
  values: (number | null)[]
  hidden?: boolean
  colour?: string // name of a CSS variable, in place of the series' own
  thin?: boolean // for a line among several, or for a budget
  dashed?: boolean // for a bound
}

// Mark is an event on the time axis.
export interface Mark {
  time: number
  title: string
  text: string
  kind: string // info, success, warning or error
}

// Dot is a single measurement in the plot, which leads to its trace.
export interface Dot {
  time: number
  value: number
  title: string
  trace: string
}

// Margins of the plot, in pixels. They are fixed, so that marks can be placed without
// asking uPlot.
const left = 56
const smallLeft = 48
const right = 12
const top = 8
const bottom = 40 // a time, and the date below it
const smallBottom = 20

interface Frame {
  label: string
  times: number[]
  range: [number, number]
  height: number
  marks?: Mark[]
  dots?: Dot[]
  sync?: string // charts with the same key share a cursor
  onZoom?: (from: number, to: number) => void
  onCursor?: (index: number | null) => void
  onNear?: (line: number | null) => void // the line nearest to the cursor
}

function axes(format: (v: number) => string, small: boolean): uPlot.Axis[] {
  const font = `${small ? 10 : 11}px system-ui, sans-serif`
  const line = { stroke: colour('grid'), width: 1 }
  const both = { font, stroke: colour('muted'), grid: line, ticks: { ...line, size: 4 } }
  return [
    { ...both, size: small ? smallBottom : bottom, gap: small ? 2 : 5, space: small ? 90 : 70, values: (_u, splits, _i, _s, incr) => ticks(splits, incr, small ? 'midnight' : '\n') },
    { ...both, size: small ? smallLeft : left, gap: small ? 2 : 5, space: small ? 20 : 34, values: (_u, splits) => splits.map(format) },
  ]
}

// options returns the options that all charts share. `at` returns the latest properties.
function options(element: HTMLElement, small: boolean, format: (v: number) => string, at: () => Frame): uPlot.Options {
  const frame = at()
  return {
    width: Math.max(100, element.clientWidth),
    height: frame.height,
    padding: [top, right, 0, 0],
    tzDate: (unix) => (zone.get() === 'local' ? new Date(unix * 1000) : uPlot.tzDate(new Date(unix * 1000), zoneName())),
    legend: { show: false },
    axes: axes(format, small),
    scales: { x: { range: () => at().range } },
    series: [{}],
    cursor: {
      y: false,
      drag: { x: Boolean(frame.onZoom), y: false, setScale: false },
      points: { show: !small, size: 6 },
      sync: frame.sync ? { key: frame.sync, scales: ['x', null] } : undefined,
    },
    hooks: {
      setSelect: [
        (u) => {
          if (u.select.width < 4) return
          const from = u.posToVal(u.select.left, 'x')
          const to = u.posToVal(u.select.left + u.select.width, 'x')
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
          at().onZoom?.(from, to)
        },
      ],
      setCursor: [(u) => at().onCursor?.(u.cursor.idx ?? null)],
    },
  }
}

// usePlot keeps one uPlot in an element. It makes a new one when `structure` changes, and calls
// `draw` when `data` change.
function usePlot(make: (element: HTMLElement) => uPlot, draw: (u: uPlot) => void, structure: string, data: unknown[]) {
  const ref = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const shade = useStore(shades)
  const clockZone = useStore(zone)
  useEffect(() => {
    const element = ref.current!
    const u = make(element)
    plot.current = u
    const resize = new ResizeObserver(() => {
      if (element.clientWidth > 0 && element.clientWidth !== u.width) u.setSize({ width: element.clientWidth, height: u.height })
    })
    resize.observe(element)
    return () => {
      resize.disconnect()
      u.destroy()
      plot.current = null
    }
  }, [structure, shade, clockZone])
  useEffect(() => {
    if (plot.current) draw(plot.current)
  }, [structure, shade, clockZone, ...data])
  return { ref, plot }
}

// accumulate adds to each line the lines before it, for stacks.
function accumulate(lines: Line[]): (number | null)[][] {
  let below: number[] = []
  return lines.map((l) => {
    if (l.hidden) return l.values.map(() => null)
    below = l.values.map((v, i) => (below[i] ?? 0) + (v ?? 0))
    return below
  })
}

// Chart draws lines or stacks of them. A logarithmic scale leaves out values of 0 or less.
export function Chart(props: Frame & { lines: Line[]; stacked?: boolean; small?: boolean; log?: boolean; format?: (v: number) => string; binary?: boolean }) {
  const latest = useRef(props)
  const [scale, setScale] = useState<[number, number]>([0, 1])
  latest.current = props
  const format = props.format ?? compact
  const make = (element: HTMLElement) => {
    const { lines, stacked, small, log } = latest.current
    const o = options(element, Boolean(small), format, () => latest.current)
    // The scale starts at 0, unless the values vary little around a large one.
    o.scales!.y = {
      range: (_u, min, max) => {
        if (min === null || max === null) return [0, 1]
        const low = min >= 0 && (stacked || small || min < max * 0.6 || min === max) ? 0 : min
        const [from, to] = uPlot.rangeNum(low, max === low ? low + 1 : max, { min: { pad: low === 0 ? 0 : 0.1, soft: 0, mode: low === 0 ? 1 : 0 }, max: { pad: 0.08, soft: 0, mode: 0 } })
        return [low === 0 ? 0 : from!, to!]
      },
    }
    if (latest.current.binary) o.axes![1].incrs = powersOfTwo
    if (log) {
      o.scales!.y = { distr: 3, log: 10, range: (_u, min, max) => decades(min, max) }
      o.axes![1].splits = (_u, _i, min, max) => tens(min, max)
      o.axes![1].filter = (_u, splits) => splits
    }
    // Dots are not on the canvas, so they need to know the canvas's scale.
    o.hooks!.draw = [(u) => setScale((was) => (was[0] === u.scales.y.min && was[1] === u.scales.y.max ? was : [u.scales.y.min ?? 0, u.scales.y.max ?? 1]))]
    lines.forEach((l, i) => {
      const stroke = colour(l.colour ?? seriesColour(i))
      o.series.push({
        label: l.name,
        show: !l.hidden,
        stroke,
        width: l.thin ? 1 : small ? 1.25 : 1.5,
        dash: l.dashed ? [4, 4] : i < seriesColours || l.colour ? undefined : [6, 3],
        fill: stacked ? stroke + '66' : small && lines.length === 1 ? stroke + '22' : undefined,
        points: { show: false, filter: alone, size: small ? 3 : 4, fill: stroke },
      })
    })
    if (latest.current.onNear) o.hooks!.setCursor!.push((u) => focus(u, nearest(u), latest.current.onNear!))
    if (stacked) {
      const shown = lines.map((_, i) => i).filter((i) => !lines[i].hidden)
      o.bands = shown.slice(1).map((i, n) => ({ series: [i + 1, shown[n] + 1] }))
    }
    return new uPlot(o, [[]], element)
  }
  const draw = (u: uPlot) => {
    const { times, lines, stacked, log } = latest.current
    const values = log ? lines.map((l) => l.values.map((v) => (v !== null && v > 0 ? v : null))) : stacked ? accumulate(lines) : lines.map((l) => l.values)
    u.setData([times, ...values] as uPlot.AlignedData)
  }
  const structure = JSON.stringify([props.stacked, props.log, props.binary, format(1234.5), props.height, props.lines.map((l) => [l.name, l.hidden, l.colour, l.thin, l.dashed])])
  const { ref, plot } = usePlot(make, draw, structure, [props.times, props.lines, props.range[0], props.range[1]])
  return (
    <Framed {...props} plot={plot} scale={scale}>
      <div ref={ref} />
    </Framed>
  )
}

const near = 40 // pixels between the cursor and a line that it may mean

// nearest returns which line is nearest to the cursor: its place among the lines, or null if none is near. A cursor
// that another chart has moved is near no line.
function nearest(u: uPlot): number | null {
  const { idx, top } = u.cursor
  if (idx === null || idx === undefined || top === undefined || !u.root.closest('.chart')!.matches(':hover, :focus')) return null
  let found: number | null = null
  let least = near
  for (const at of positions(u, idx)) {
    if (Math.abs(at.top - top) < least) [found, least] = [at.line, Math.abs(at.top - top)]
  }
  return found
}

// positions returns where the lines are at a time, from the top.
function positions(u: uPlot, idx: number): { line: number; top: number }[] {
  const all = []
  for (let i = 1; i < u.series.length; i++) {
    const v = u.data[i]?.[idx]
    if (u.series[i].show && v != null) all.push({ line: i - 1, top: u.valToPos(v, 'y') })
  }
  return all.sort((a, b) => a.top - b.top)
}

// focus makes all lines but one paler, or none.
function focus(u: uPlot, line: number | null, tell: (line: number | null) => void) {
  const was = u.series.findIndex((s, i) => i > 0 && (s as { _focus?: boolean | null })._focus)
  if (was === (line === null ? -1 : line + 1)) return
  u.setSeries(line === null ? null : line + 1, { focus: true }, false)
  tell(line)
}

// powersOfTwo are the distances between two ticks of an axis of bytes.
const powersOfTwo = Array.from({ length: 70 }, (_, i) => 2 ** (i - 10))

// alone returns the values without neighbours. No line connects such values, so each is
// drawn as a point.
function alone(u: uPlot, series: number): number[] | null {
  const values = u.data[series] as (number | null)[]
  const found = values.flatMap((v, i) => (v != null && values[i - 1] == null && values[i + 1] == null ? [i] : []))
  return found.length > 0 ? found : null
}

// tens returns a few round values between min and max: powers of ten, if at least two fit.
function tens(min: number, max: number): number[] {
  const [from, to] = [Math.ceil(Math.log10(min)), Math.floor(Math.log10(max))]
  if (to <= from) return powers(Math.log2(min), Math.log2(max)).map((p) => 2 ** p)
  const apart = Math.ceil((to - from + 1) / 4)
  return Array.from({ length: Math.floor((to - from) / apart) + 1 }, (_, i) => 10 ** (from + i * apart))
}

// decades returns the bounds of a logarithmic scale. The bounds are far enough apart that noise
// does not look like a change.
function decades(min: number | null, max: number | null): [number, number] {
  if (min === null || max === null || min <= 0) return [0.001, 1]
  const few = Math.max(1, Math.sqrt(8 / (max / min))) * 1.2
  return [min / few, max * few]
}

// Framed adds a name, keys and marks to a canvas.
function Framed(props: Frame & { plot: { current: uPlot | null }; scale?: [number, number]; small?: boolean; log?: boolean; children: preact.ComponentChildren }) {
  const { plot, times, range } = props
  const key = (e: KeyboardEvent) => {
    const u = plot.current
    if (!u || times.length === 0 || e.target !== e.currentTarget) return
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[e.key]
    const down = { ArrowUp: -1, ArrowDown: 1 }[e.key]
    if (by !== undefined) {
      const now = u.cursor.idx ?? (by > 0 ? -1 : times.length)
      const next = Math.min(times.length - 1, Math.max(0, now + by))
      u.setCursor({ left: u.valToPos(times[next], 'x'), top: u.cursor.top !== undefined && u.cursor.top >= 0 ? u.cursor.top : 10 })
    } else if (down !== undefined && props.onNear) {
      const idx = u.cursor.idx ?? times.length - 1
      const now = u.cursor.idx == null ? -1 : u.cursor.top!
      const all = positions(u, idx).map((p) => p.top)
      const next = down > 0 || now < 0 ? all.find((at) => at > now + 1) : all.findLast((at) => at < now - 1)
      u.setCursor({ left: u.valToPos(times[idx], 'x'), top: next ?? now })
    } else return
    e.preventDefault()
  }
  const leave = () => plot.current?.setCursor({ left: -10, top: -10 })
  return (
    <div class="chart" role="group" aria-label={props.label} tabIndex={props.onCursor ? 0 : undefined} onKeyDown={key} onBlur={leave}>
      {props.children}
      {props.marks && (
        <div class="marks">
          {gather(props.marks, range).map((all, i) => {
            const part = (all[0].time - range[0]) / (range[1] - range[0])
            const kind = severities.find((k) => all.some((m) => m.kind === k)) ?? 'info'
            return (
              <span key={i} class={`mark ${kind} ${part > 0.6 ? 'end' : ''}`} style={{ left: `calc(${left}px + ${part} * (100% - ${left + right}px))`, top: `${top}px`, height: `${props.height - bottom - top}px` }}>
                <button type="button" aria-label={`Events at ${dateTime(all[0].time)}: ${all.map((m) => m.title).join('; ')}`} />
                <span class="tip" aria-hidden="true">
                  {all.slice(0, 5).map((m, k) => (
                    <span key={k}>
                      <b>{m.title}</b> <time>{clock(m.time)}</time>
                      <br />
                      {m.text}
                    </span>
                  ))}
                  {all.length > 5 && <span>and {all.length - 5} more</span>}
                </span>
              </span>
            )
          })}
        </div>
      )}
      {props.dots && props.dots.length > 0 && props.scale && <Dots {...props} dots={props.dots} scale={props.scale} />}
    </div>
  )
}

// Dots lead to traces. A dot above the plot is drawn at the upper edge, because a scale that
// includes the dot would compress the lines. Tab reaches only the last dot, because there are
// many, and Records lists them all.
function Dots(props: Frame & { dots: Dot[]; scale: [number, number]; small?: boolean; log?: boolean }) {
  const { range, scale, log } = props
  const [x, y] = props.small ? [smallLeft, smallBottom] : [left, bottom]
  const of = (v: number) => (log ? Math.log(Math.max(v, 1e-12)) : v)
  return (
    <div class="marks">
      {props.dots
        .filter((d) => d.time >= range[0] && d.time <= range[1])
        .map((d, i, all) => {
          const across = (d.time - range[0]) / (range[1] - range[0])
          const up = (of(d.value) - of(scale[0])) / (of(scale[1]) - of(scale[0]))
          return (
            <Link
              key={d.trace}
              page="records"
              params={new URLSearchParams({ trace: d.trace })}
              class="dot"
              title={d.title}
              label={d.title}
              tabIndex={i === all.length - 1 ? 0 : -1}
              style={{ left: `calc(${x}px + ${across} * (100% - ${x + right}px))`, top: `${top + (1 - Math.min(1, Math.max(0, up))) * (props.height - y - top)}px` }}
            />
          )
        })}
    </div>
  )
}

const severities = ['error', 'warning', 'success', 'info']

// gather groups marks that would overlap.
function gather(marks: Mark[], [from, to]: [number, number]): Mark[][] {
  const all: Mark[][] = []
  for (const m of marks.filter((m) => m.time >= from && m.time <= to).sort((a, b) => a.time - b.time)) {
    const last = all.at(-1)
    if (last && m.time - last[0].time < (to - from) * 0.015) last.push(m)
    else all.push([m])
  }
  return all
}

// Heatmap draws how many values fell into each bucket at each time.
export function Heatmap(props: Frame & { columns: Cell[][]; step: number; format: (v: number) => string; onCell?: (cell: (Cell & { time: number }) | null) => void }) {
  const latest = useRef(props)
  latest.current = props
  const make = (element: HTMLElement) => {
    const o = options(element, false, (v) => latest.current.format(2 ** v), () => latest.current)
    o.series.push({ paths: () => null, points: { show: false } })
    o.scales!.y = { range: () => extent(latest.current.columns).range }
    o.axes![1].splits = (_u, _i, min, max) => powers(min, max)
    o.cursor!.points = { show: false }
    o.hooks!.draw = [(u) => paint(u, latest.current)]
    o.hooks!.setCursor!.push((u) => latest.current.onCell?.(cellAt(u, latest.current)))
    return new uPlot(o, [[]], element)
  }
  const draw = (u: uPlot) => {
    const { times } = latest.current
    u.setData([times, times.map(() => null)])
  }
  const { ref, plot } = usePlot(make, draw, `${props.height} ${props.format(1234.5)}`, [props.times, props.columns, props.range[0], props.range[1]])
  return (
    <Framed {...props} plot={plot}>
      <div ref={ref} />
    </Framed>
  )
}

// extent is the range of the buckets' logarithms. Values of 0 or less have no logarithm, so one
// strip at the bottom shows them all.
function extent(columns: Cell[][]): { range: [number, number]; bottom: number; most: number } {
  let low = Infinity
  let high = -Infinity
  let most = 0
  let strip = false
  for (const cells of columns) {
    for (const c of cells) {
      most = Math.max(most, c.count)
      if (c.low > 0) low = Math.min(low, c.low)
      else strip = true
      if (c.high > 0 && Number.isFinite(c.high)) high = Math.max(high, c.high)
      else if (c.low > 0) high = Math.max(high, c.low * 2)
    }
  }
  if (!Number.isFinite(low)) low = Number.isFinite(high) && high > 0 ? high / 2 : 0.5
  if (!Number.isFinite(high) || high <= low) high = low * 2
  const bottom = Math.log2(low)
  const top = Math.log2(high)
  return { range: [strip ? bottom - Math.max(0.25, (top - bottom) * 0.06) : bottom, top], bottom, most }
}

const lowOf = (c: Cell, range: [number, number]) => (c.low > 0 ? Math.log2(c.low) : range[0])
const highOf = (c: Cell, e: { range: [number, number]; bottom: number }) =>
  c.low <= 0 ? e.bottom : Number.isFinite(c.high) ? Math.log2(c.high) : e.range[1]

// powers returns round values between two logarithms: 1, 2 and 5 times powers of ten, or only the
// powers.
function powers(min: number, max: number): number[] {
  const factors = max - min < 12 ? [1, 2, 5] : [1]
  const out = []
  for (let k = Math.floor(min * Math.log10(2)); k <= max * Math.log10(2) + 1; k++) {
    for (const f of factors) out.push(Math.log2(f * 10 ** k))
  }
  const inside = out.filter((v) => v >= min && v <= max)
  return inside.length > 1 ? inside : [min, (min + max) / 2, max]
}

// warmth is the place of a count on the colour scale, from 0 to 1. The scale is logarithmic,
// so that small counts have different colours.
export const warmth = (count: number, most: number) => Math.log(1 + (15 * count) / most) / Math.log(16)

function mix(part: number): string {
  const rgb = (name: string) => colour(name).match(/\w\w/g)!.map((h) => parseInt(h, 16))
  const [few, some, many] = ['heat-0', 'heat-1', 'heat-2'].map(rgb)
  const [from, to, at] = part < 0.5 ? [few, some, part * 2] : [some, many, part * 2 - 1]
  return `rgb(${from.map((c, i) => Math.round(c + (to[i] - c) * at)).join(' ')})`
}

function paint(u: uPlot, p: { columns: Cell[][]; times: number[]; step: number }) {
  const e = extent(p.columns)
  const colours = Array.from({ length: 33 }, (_, i) => mix(i / 32))
  const { ctx, bbox } = u
  ctx.save()
  ctx.beginPath()
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height)
  ctx.clip()
  p.columns.forEach((cells, i) => {
    const x = Math.round(u.valToPos(p.times[i] - p.step / 2, 'x', true))
    const width = Math.max(1, Math.round(u.valToPos(p.times[i] + p.step / 2, 'x', true)) - x)
    for (const c of cells) {
      const y = Math.round(u.valToPos(highOf(c, e), 'y', true))
      const height = Math.max(1, Math.round(u.valToPos(lowOf(c, e.range), 'y', true)) - y)
      ctx.fillStyle = colours[Math.round(32 * warmth(c.count, e.most))]
      ctx.fillRect(x, y, width, height)
    }
  })
  ctx.restore()
}

function cellAt(u: uPlot, p: { columns: Cell[][]; times: number[] }): (Cell & { time: number }) | null {
  const { idx, top } = u.cursor
  if (idx === null || idx === undefined || top === undefined || top < 0) return null
  const e = extent(p.columns)
  const y = u.posToVal(top, 'y')
  const cell = p.columns[idx]?.find((c) => y >= lowOf(c, e.range) && y < highOf(c, e))
  return cell ? { ...cell, time: p.times[idx] } : null
}
