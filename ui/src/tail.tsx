// Tail: the lines that arrive now, unchanged. The server filters them.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { entered, Failure, fetchAPI } from './api'
import { clock, count, printable } from './format'
import { Empty, Loading, Panel, Problem } from './parts'
import { go, usePlace } from './router'
import { useStore } from './store'

interface Line {
  time: number // Unix nanoseconds
  listener: string
  sender?: string
  type?: string
  name?: string
  line: string
  malformed?: string
  at?: number
  expected?: string
  left_out?: number
  missed?: number
}

// The page holds at most `kept` lines. The server sends at most `rate` lines per second.
const kept = 300
const rate = 50

const fields = [
  ['name', 'Name', 'page_*'],
  ['tag', 'Tag', 'env:prod*'],
  ['sender', 'Sender', '10.0.0.0/8'],
] as const

// filterOf returns the filter for the server, which is a part of the page's address.
function filterOf(params: URLSearchParams): URLSearchParams {
  const out = new URLSearchParams()
  for (const [key] of fields) for (const v of params.getAll(key)) if (v) out.append(key, v)
  if (params.get('malformed') === 'true') out.set('malformed', 'true')
  return out
}

interface Stream {
  lines: (Line & { id: number })[]
  total: number
  leftOut: number
  missed: number
  error?: Failure
  open: boolean
}

const nothing: Stream = { lines: [], total: 0, leftOut: 0, missed: 0, open: false }

// useTail reads the stream, and draws at most four times a second.
function useTail(filter: string, paused: boolean): Stream {
  const token = useStore(entered)
  const [state, setState] = useState<Stream>(nothing)
  const stream = useRef<Stream>(nothing)
  const asked = useRef('')
  useEffect(() => {
    const key = `${filter} ${token}`
    stream.current = asked.current === key ? { ...stream.current, error: undefined, open: false } : nothing
    asked.current = key
    setState(stream.current)
    if (paused) return
    const stop = new AbortController()
    const timer = setInterval(() => setState(stream.current), 250)
    const update = (next: Partial<Stream>) => (stream.current = { ...stream.current, ...next })
    void follow(filter, stop.signal, update, () => stream.current)
      .catch((err) => {
        if (!stop.signal.aborted) update({ error: err instanceof Failure ? err : new Failure(String(err)), open: false })
      })
      .finally(() => {
        if (!stop.signal.aborted) setState(stream.current)
      })
    return () => {
      stop.abort()
      clearInterval(timer)
    }
  }, [filter, paused, token])
  return state
}

async function follow(filter: string, signal: AbortSignal, update: (next: Partial<Stream>) => void, now: () => Stream) {
  const response = await fetchAPI(`api/v1/status/tail?max_rate=${rate}&${filter}`, { signal })
  if (!response.ok || !response.body) throw new Failure((await response.text()).trim(), response.status)
  update({ open: true })
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) throw new Failure('The stream ended: the server stopped, or this page read it too slowly. Reload the page to continue.')
    const texts = (rest + value).split('\n')
    rest = texts.pop()!
    const { lines, total, leftOut, missed } = now()
    const next = { lines: [...lines], total, leftOut, missed }
    for (const text of texts) {
      const line = JSON.parse(text) as Line
      next.leftOut += line.left_out ?? 0
      next.missed += line.missed ?? 0
      if (line.line === undefined) continue
      next.lines.push({ ...line, id: next.total++ })
    }
    next.lines = next.lines.slice(-kept)
    update(next)
  }
}

export function Tail() {
  const { params } = usePlace()
  const filter = useMemo(() => filterOf(params), [params.toString()])
  const [draft, setDraft] = useState(filter)
  useEffect(() => setDraft(filter), [filter])
  const [paused, setPaused] = useState(false)
  const tail = useTail(filter.toString(), paused)
  const set = (key: string, value: string) => {
    const next = new URLSearchParams(draft)
    next.delete(key)
    // The field for tags has several tags, and a line must have all of them.
    for (const v of key === 'tag' ? value.split(/\s+/) : [value]) next.append(key, v)
    setDraft(next)
  }
  return (
    <div class="tail">
      <div class="toolbar">
        <h1>Tail</h1>
        <form
          role="search"
          onSubmit={(e) => {
            e.preventDefault()
            go('tail', filterOf(draft))
          }}
        >
          {fields.map(([key, name, example], i) => (
            <label key={key} class="field inline">
              {name}
              <input type="search" data-slash={i === 0 ? '' : undefined} placeholder={example} value={draft.getAll(key).join(' ')} onInput={(e) => set(key, e.currentTarget.value)} />
            </label>
          ))}
          <label class="check">
            <input
              type="checkbox"
              checked={filter.get('malformed') === 'true'}
              onChange={(e) => {
                const next = new URLSearchParams(draft)
                next.set('malformed', String(e.currentTarget.checked))
                go('tail', filterOf(next))
              }}
            />
            Malformed only
          </label>
          <button type="submit" class="primary">
            Filter
          </button>
          <button type="button" aria-pressed={paused} onClick={() => setPaused(!paused)}>
            {paused ? 'Resume' : 'Pause'}
          </button>
        </form>
      </div>
      <Panel title="Lines" note={<Notice tail={tail} paused={paused} />}>
        {tail.error && <Problem error={tail.error} todo={todo(tail.error)} />}
        {!tail.error && tail.lines.length === 0 && (tail.open ? <Waiting filtered={filter.size > 0} /> : !paused && <Loading what="Opening the stream…" />)}
        <Lines lines={tail.lines} />
      </Panel>
    </div>
  )
}

function todo(error: Failure): string | undefined {
  if (error.status === 403) return 'Only operators may see incoming lines. Run freshet tail on the server’s machine, or open this page there at its loopback address.'
  if (error.status === 503) return 'Too many tails and captures are open. Close one of them.'
  return undefined
}

const Waiting = (props: { filtered: boolean }) => (
  <Empty>
    <p>Waiting for lines…</p>
    <p class="note">{props.filtered ? 'No line has matched the filter yet. * matches any text, ? matches one byte.' : 'Nothing is arriving at the DogStatsD sockets.'}</p>
  </Empty>
)

function Notice(props: { tail: Stream; paused: boolean }) {
  const { tail, paused } = props
  const parts = [paused ? 'paused' : tail.open ? 'live' : '', `${count(tail.total)} lines`]
  if (tail.leftOut) parts.push(`${count(tail.leftOut)} not shown, above ${rate} per second`)
  if (tail.missed) parts.push(`${count(tail.missed)} datagrams missed`)
  return <>{parts.filter(Boolean).join(' · ')}</>
}

function Lines(props: { lines: (Line & { id: number })[] }) {
  const newest = [...props.lines].reverse()
  if (newest.length === 0) return null
  return (
    <div class="lines scroll" tabIndex={0} role="region" aria-label="Lines, newest first">
      <ul>
        {newest.map((l) => (
          <li key={l.id} class={l.malformed ? 'malformed' : ''}>
            <span class="when">{clock(l.time / 1e9, true)}</span>
            <span class="who">{l.sender ?? '–'}</span>
            <span class="what">
              <Text line={l} />
              {l.malformed && (
                <span class="why">
                  {l.malformed.replaceAll('_', ' ')}
                  {l.at !== undefined && ` at byte ${l.at}`}: expected {l.expected}
                </span>
              )}
            </span>
          </li>
        ))}
      </ul>
    </div>
  )
}

// Text marks the name and the tags of a line.
function Text(props: { line: Line }) {
  const { name, malformed } = props.line
  const line = printable(props.line.line)
  if (malformed || !name || !line.startsWith(name + ':')) return <code>{line}</code>
  const rest = line.slice(name.length)
  const hash = rest.indexOf('|#')
  const end = hash < 0 ? -1 : rest.indexOf('|', hash + 2)
  return (
    <code>
      <b>{name}</b>
      {hash < 0 ? rest : rest.slice(0, hash)}
      {hash >= 0 && <span class="tags">{end < 0 ? rest.slice(hash) : rest.slice(hash, end)}</span>}
      {end >= 0 && rest.slice(end)}
    </code>
  )
}
