// A query of Explore: its editor, the history, and its answer.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Answered, type AnswerProps } from './answer'
import { ask, Failure } from './api'
import type { Editor } from './editor'
import { placeIn } from './fault'
import { forgetQueries, queries as pastQueries } from './history'
import { Dialog, Empty, Problem } from './parts'

interface PanelProps extends Omit<AnswerProps, 'name' | 'onError'> {
  index: number
  draft: string
  alone: boolean
  onDraft: (expr: string) => void
  onRun: () => void
  onDuplicate: () => void
  onRemove: () => void
}

export function QueryPanel(props: PanelProps) {
  const { index, query } = props
  const name = String.fromCharCode(65 + (index % 26))
  const [past, setPast] = useState(false)
  const [failed, setFailed] = useState({ expr: '', error: '' }) // the last answered query, and its error or ''
  const formatter = useFormatter(props)
  return (
    <section class="panel query" aria-label={`Query ${name}`}>
      <div class="ask">
        <span class="letter" aria-hidden="true">
          {name}
        </span>
        <QueryEditor key={props.base} base={props.base} label={`Query ${name}`} text={props.draft} fault={faultOf(props.draft, failed.expr, failed.error) ?? faultOf(props.draft, props.draft.trim(), formatter.error?.message ?? '')} onChange={props.onDraft} onRun={props.onRun} />
        <div class="buttons">
          <button type="button" class="primary" onClick={props.onRun} title="Enter, or Ctrl+Enter">
            Run
          </button>
          <button type="button" disabled={!formatter.format} title={hasComment(props.draft) ? 'Comments would be lost' : 'Puts parts of the query below each other, and spaces in their places'} onClick={formatter.format}>
            Format
          </button>
          <button type="button" onClick={() => setPast(true)}>
            History
          </button>
          <button type="button" aria-label={`Query ${name} is on`} aria-pressed={!query.off} title={query.off ? 'Ask it again' : 'Do not ask it for now'} onClick={() => props.onChange({ off: !query.off })}>
            <Sign path="M8 2v6M4.5 4.5a5 5 0 1 0 7 0" />
          </button>
          <button type="button" aria-label={`Duplicate query ${name}`} title="Duplicate" onClick={props.onDuplicate}>
            <Sign path="M6 6h7v7H6zM3 10V3h7" />
          </button>
          {!props.alone && (
            <button type="button" aria-label={`Remove query ${name}`} title="Remove" onClick={props.onRemove}>
              ✕
            </button>
          )}
        </div>
      </div>
      {formatter.error && <Problem error={formatter.error} todo="The query stays as it is." />}
      {past && <History onClose={() => setPast(false)} onPick={(expr) => (setPast(false), props.onDraft(expr))} />}
      {query.off && <p class="note">This query is off.</p>}
      {query.expr && !query.off && <Answered {...props} key={props.base + query.expr} name={name} onError={(error) => setFailed({ expr: query.expr, error })} />}
    </section>
  )
}

// useFormatter lets the server's parser format the draft. It has the error of a draft that cannot be parsed, until the
// draft changes, and no function for a draft that cannot be formatted.
function useFormatter(props: PanelProps): { format?: () => void; error?: Failure } {
  const [failed, setFailed] = useState<{ draft: string; error: Failure }>()
  const latest = useRef(props)
  latest.current = props
  const { draft, base } = props
  const error = failed?.draft === draft ? failed.error : undefined
  if (!draft.trim() || hasComment(draft)) return { error }
  const format = async () => {
    const query = draft.trim()
    try {
      const { data } = await ask<string>(base + 'api/v1/format_query', { query })
      if (latest.current.draft === draft) latest.current.onDraft(data)
    } catch (err) {
      setFailed({ draft, error: err instanceof Failure ? err : new Failure(String(err)) })
    }
  }
  return { error, format: () => void format() }
}

// hasComment reports whether a query has a comment, which the server's formatter would leave out. A # in a string is none.
const hasComment = (query: string) => query.replace(/"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`/gs, '').includes('#')

const Sign = (props: { path: string }) => (
  <svg class="sign" viewBox="0 0 16 16" aria-hidden="true">
    <path d={props.path} />
  </svg>
)

// faultOf returns the place of the error in a draft, if the draft is the query that failed.
function faultOf(draft: string, expr: string, error: string): number | null {
  if (draft.trim() !== expr) return null
  const place = placeIn(expr, error)
  return place === null ? null : draft.indexOf(expr) + place
}

// QueryEditor shows a plain input field until the editor is loaded.
function QueryEditor(props: { base: string; label: string; text: string; fault: number | null; onChange: (text: string) => void; onRun: () => void }) {
  const ref = useRef<HTMLDivElement>(null)
  const editor = useRef<Editor | null>(null)
  const latest = useRef(props)
  latest.current = props
  const recalled = useRef(-1)
  const focused = useRef(false)
  const [loaded, setLoaded] = useState<typeof import('./editor')>()
  useEffect(() => {
    void import('./editor').then((module) => {
      focused.current = ref.current !== null && ref.current.contains(document.activeElement)
      setLoaded(module)
    })
  }, [])
  // This runs in the same turn in which the field disappears, so that a key press always finds
  // either the field or the editor.
  useLayoutEffect(() => {
    if (!loaded) return
    editor.current = loaded.mount(ref.current!, {
      text: latest.current.text,
      base: latest.current.base,
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
    if (focused.current) editor.current.focus()
    return () => editor.current?.destroy()
  }, [loaded])
  // This runs before the next key press is handled: a later effect could set an older text.
  useLayoutEffect(() => editor.current?.set(props.text), [props.text])
  useLayoutEffect(() => editor.current?.mark(props.fault), [loaded, props.fault])
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
      {all.length === 0 && <Empty>No queries yet. Queries that you run are listed here.</Empty>}
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
          Clear the history
        </button>
      )}
    </Dialog>
  )
}
