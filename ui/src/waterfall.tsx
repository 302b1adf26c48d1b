// One trace as a waterfall: its spans below each other, each placed by its time in the trace.
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, usePoll } from './api'
import { count, printable, seconds } from './format'
import { Empty, Figure, Figures, Link, Loading, Panel, Refusal, Text } from './parts'
import { askedOf, kindOf, textOf, when, type Span, type Trace } from './traces'

interface Row {
  span: Span
  level: number
  parts: number // how many child spans it has
  own: number // seconds in which none of its child spans runs
}

// rowsOf puts each span below its parent. The root's parent is a span of the sender. A span
// whose parent the server did not keep becomes a child of the root.
function rowsOf(t: Trace): Row[] {
  const known = new Set(t.spans.map((s) => s.id))
  const parts = new Map<string, Span[]>()
  for (const s of t.spans.slice(1)) {
    const in_ = s.parent && known.has(s.parent) && s.parent !== s.id ? s.parent : t.spans[0].id
    parts.set(in_, [...(parts.get(in_) ?? []), s])
  }
  const rows: Row[] = []
  const seen = new Set<string>()
  const add = (span: Span, level: number) => {
    if (seen.has(span.id)) return
    seen.add(span.id)
    const below = parts.get(span.id) ?? []
    rows.push({ span, level, parts: below.length, own: span.seconds - covered(below) })
    for (const s of below) add(s, level + 1)
  }
  if (t.spans.length) add(t.spans[0], 1)
  return rows
}

// covered returns how much time the spans cover. Time that several spans cover counts once. The
// spans must be sorted by their start.
function covered(spans: Span[]): number {
  let sum = 0
  let until = -Infinity
  for (const s of spans) {
    const end = s.offset_seconds + s.seconds
    sum += Math.max(0, end - Math.max(until, s.offset_seconds))
    until = Math.max(until, end)
  }
  return sum
}

export function TraceView(props: { id: string }) {
  const { id } = props
  const { data, error } = usePoll(async (signal) => ((await ask<Trace[] | null>('api/v1/status/traces', { id }, signal)).data ?? []).find((t) => t.id === id) ?? null, 0, [id])
  if (error) return <Refusal error={error} what="Slow traces" />
  if (data === undefined) return <Loading what="Loading…" />
  if (data === null) {
    return (
      <Empty>
        <p>The server no longer has this trace.</p>
        <p class="note">It holds the newest self.traces.keep traces in memory. To keep traces longer, send them to another place with self.traces.endpoint.</p>
      </Empty>
    )
  }
  return <Whole trace={data} />
}

function Whole(props: { trace: Trace }) {
  const t = props.trace
  const root = t.spans[0]
  const asked = askedOf(t)
  const query = textOf(asked, 'freshet.query')
  const tenant = textOf(root, 'freshet.tenant') || textOf(asked, 'freshet.tenant')
  const samples = textOf(root, 'freshet.samples')
  return (
    <>
      <Figures>
        <Figure name="Duration" value={seconds(t.seconds)} note={`${kindOf(t)}, started ${when(t.start)}`} />
        {t.over && <Figure name="Over its budget" state="bad" value={<>▲ {t.over}</>} note={`took ${seconds(Number(textOf(root, 'freshet.over_seconds')))}`} />}
        <Figure name="Tenant" value={<span class="long">{tenant || '–'}</span>} note={samples ? `${count(Number(samples))} ${samples === '1' ? 'sample' : 'samples'}` : undefined} />
        <Figure name="Spans" value={count(t.spans.length)} note={t.spans_left_out ? `the server did not keep ${count(t.spans_left_out)} more` : 'complete'} />
      </Figures>
      {query && (
        <Panel title="Query" class="asked" actions={<Link page="explore" params={new URLSearchParams(tenant === 'freshet' ? { q: query, of: 'self' } : { q: query })}>Open in Explore</Link>}>
          <pre class="scroll" tabIndex={0} role="region" aria-label="Text of the query">
            {query}
          </pre>
          <p class="note">
            {textOf(asked, 'freshet.start')}
            {textOf(asked, 'freshet.start') !== textOf(asked, 'freshet.end') && ` to ${textOf(asked, 'freshet.end')}, step ${textOf(asked, 'freshet.step')}`}
          </p>
        </Panel>
      )}
      <Waterfall trace={t} />
    </>
  )
}

// quarters are the places where the time axis is labelled.
const quarters = [0, 0.25, 0.5, 0.75, 1]

function Waterfall(props: { trace: Trace }) {
  const t = props.trace
  const rows = rowsOf(t)
  const slow = rows.findIndex((r) => r.level > 1 && r.span.name === t.over)
  const [at, setAt] = useState(Math.max(0, slow))
  const [closer, setCloser] = useState(false) // zoomed in to the selected span
  const tree = useRef<HTMLDivElement>(null)
  const chosen = rows[Math.min(at, rows.length - 1)]
  // Some time before and after the span stays visible.
  const [from, length] = closer ? [chosen.span.offset_seconds - 0.1 * chosen.span.seconds, 1.2 * chosen.span.seconds] : [0, t.seconds]
  const choose = (i: number) => {
    const next = Math.min(rows.length - 1, Math.max(0, i))
    setAt(next)
    tree.current?.children[next]?.scrollIntoView({ block: 'nearest' })
    ;(tree.current?.children[next] as HTMLElement | undefined)?.focus({ preventScroll: true })
  }
  useEffect(() => choose(at), [t.id]) // gives the list the focus, so that the arrow keys work at once
  const key = (e: KeyboardEvent) => {
    const above = rows.slice(0, at).findLastIndex((r) => r.level < rows[at].level)
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1, ArrowLeft: Math.max(0, above), ArrowRight: rows[at].parts ? at + 1 : at }[e.key]
    if (to !== undefined) choose(to)
    else if (e.key === 'Enter' || e.key === ' ') setCloser(!closer)
    else if (e.key === 'Escape' && closer) setCloser(false)
    else return
    e.preventDefault()
  }
  const part = (s: number) => (length > 0 ? (s - from) / length : 0)
  return (
    <Panel
      title="Spans"
      class="waterfall"
      note="↑ ↓ move, ← goes to the parent, Enter zooms"
      actions={
        <button type="button" aria-pressed={closer} onClick={() => setCloser(!closer)}>
          {closer ? 'Zoom out' : 'Zoom in'}
        </button>
      }
    >
      <div class="spans">
        <div>
          <p class="axis note" aria-hidden="true">
            <span class="ticks">
              {quarters.map((q) => (
                <span key={q} style={{ left: `${100 * q}%` }}>
                  {seconds(from + q * length)}
                </span>
              ))}
            </span>
          </p>
          <div class="tree" role="tree" aria-label="Spans" ref={tree} onKeyDown={key}>
            {rows.map((r, i) => {
              const { span } = r
              const slow = r.level > 1 && span.name === t.over
              const [a, b] = [part(span.offset_seconds), part(span.offset_seconds + span.seconds)]
              return (
                <div
                  key={i}
                  role="treeitem"
                  aria-level={r.level}
                  aria-selected={r === chosen}
                  tabIndex={r === chosen ? 0 : -1}
                  class={`span ${slow || span.error ? 'bad' : ''}`}
                  onClick={() => choose(i)}
                  onDblClick={() => setCloser(!closer)}
                >
                  <span class="name" style={{ '--level': String(Math.min(r.level - 1, 12)) }} title={span.name}>
                    {slow && <span aria-hidden="true">▲ </span>}
                    {span.error && <span aria-hidden="true">✕ </span>}
                    {span.name}
                  </span>
                  <span class="track">
                    {b >= 0 && a <= 1 && <span class="time" style={{ left: `min(${100 * Math.max(0, a)}%, 100% - 3px)`, width: `${100 * (Math.min(1, b) - Math.max(0, a))}%` }} />}
                  </span>
                  <span class="took">
                    {seconds(span.seconds)}
                    {slow && <span class="heard"> over its budget</span>}
                    {span.error && <span class="heard"> an error</span>}
                  </span>
                </div>
              )
            })}
          </div>
        </div>
        <Details row={chosen} whole={t.seconds} slow={chosen.level > 1 && chosen.span.name === t.over} />
      </div>
    </Panel>
  )
}

function Details(props: { row: Row; whole: number; slow: boolean }) {
  const { span, own, parts } = props.row
  const share = props.whole > 0 ? (100 * span.seconds) / props.whole : 0
  const rows: [string, string][] = [
    ['start', `+${seconds(span.offset_seconds)}`],
    ['duration', `${seconds(span.seconds)}, ${share < 0.1 ? '<0.1' : share.toFixed(1)} %`],
  ]
  if (parts) rows.push(['own time', seconds(Math.max(0, own))])
  for (const name of Object.keys(span.attributes ?? {}).sort()) rows.push([name, textOf(span, name)])
  return (
    <aside class="details" aria-label="Selected span" aria-live="polite">
      <h3 class="code">{printable(span.name)}</h3>
      {props.slow && (
        <p class="bad">
          <span aria-hidden="true">▲</span> over its budget
        </p>
      )}
      {span.error && <p class="bad">✕ {span.error}</p>}
      <dl class="pairs">
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd class="code">
              <Text text={value} />
            </dd>
          </div>
        ))}
      </dl>
    </aside>
  )
}
