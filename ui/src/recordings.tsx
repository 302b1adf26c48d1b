// Recordings: what was known of moments in which a stage was over its budget, or of
// others because somebody asked. The server keeps the last of them.
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, Failure, fetchAPI, usePoll } from './api'
import { bytes, compact, count, seconds } from './format'
import { Empty, Link, Loading, Panel, Refusal, Table, Text } from './parts'
import { when } from './traces'

export interface Recording {
  id: string
  reason: string
  stage?: string // that was over its budget
  spent_seconds?: number
  budget_seconds?: number
  began: string
  ended: string
  bytes: number
  not_kept?: string // why it is only in memory, until another is made
  error?: string // it cannot be read
}

export const recordings = async (signal: AbortSignal) => (await ask<Recording[]>('api/v1/status/records', {}, signal)).data

export const leadsTo = (id: string) => new URLSearchParams({ record: id })

export function Recordings() {
  const [again, setAgain] = useState(0)
  const { data, error } = usePoll(recordings, 10_000, [again])
  const [last, setLast] = useState<Recording[]>() // stays while a newer list is under way
  useEffect(() => {
    if (data) setLast(data)
  }, [data])
  const all = data ?? last
  const [whole, setWhole] = useState(false)
  return (
    <Panel title="Recordings" note="profiles, metrics and a trace of some seconds" actions={all && !error && <RecordNow onMade={() => setAgain(again + 1)} />}>
      {error && <Refusal error={error} what="Recordings" />}
      {!all && !error && <Loading what="Asking…" />}
      {all && all.length === 0 && (
        <Empty>
          <p>There is no recording yet.</p>
          <p class="note">One is made by itself when a stage is over its budget, as self.recorder says, or now by the button.</p>
        </Empty>
      )}
      {all && all.length > 0 && (
        <Table
          label="Recordings"
          rows={whole ? all : all.slice(0, shownFirst)}
          rowClass={() => 'leads'}
          columns={[
            {
              name: 'began',
              class: 'nowrap',
              cell: (r) =>
                r.error ? (
                  r.id
                ) : (
                  <Link page="records" params={leadsTo(r.id)} title="Diagnose it">
                    {when(r.began)}
                  </Link>
                ),
            },
            { name: 'why', class: 'what', cell: (r) => <Why recording={r} /> },
            { name: 'over budget', class: 'nowrap', cell: (r) => <Spent recording={r} /> },
            { name: 'lasted', number: true, cell: (r) => (r.error ? '' : seconds((Date.parse(r.ended) - Date.parse(r.began)) / 1000)) },
            { name: 'size', number: true, cell: (r) => bytes(r.bytes) },
            { name: '', class: 'press', cell: (r) => <Download id={r.id} /> },
          ]}
        />
      )}
      {all && all.length > shownFirst && !whole && (
        <p class="all">
          <button type="button" onClick={() => setWhole(true)}>
            Show all {count(all.length)}
          </button>
        </p>
      )}
    </Panel>
  )
}

// shownFirst bounds the rows until more are asked for.
const shownFirst = 5

// Why is why a recording was made, and what the disk did with it.
function Why(props: { recording: Recording }) {
  const { reason, error, not_kept } = props.recording
  if (error) return <span class="bad">cannot be read: {error}</span>
  if (!not_kept) return <Text text={reason} />
  return (
    <>
      <Text text={reason} /> <span class="bad">In memory alone, until another is made: {not_kept}</span>
    </>
  )
}

// Spent is what a stage took beside what it might.
export function Spent(props: { recording: Recording }) {
  const { stage, spent_seconds: spent = 0, budget_seconds: budget = 0 } = props.recording
  if (!stage) return <span class="note">–</span>
  return (
    <span class="bad">
      <span aria-hidden="true">▲</span> {stage} {seconds(spent)} of {seconds(budget)}
      {budget > 0 && `, ${compact(Math.round(spent / budget))}×`}
    </span>
  )
}

// Download hands a recording out as a file. A plain link would come without the token.
export function Download(props: { id: string }) {
  const { id } = props
  const [state, setState] = useState('')
  const load = async () => {
    setState('Loading…')
    try {
      const response = await fetchAPI('api/v1/status/records/' + encodeURIComponent(id))
      if (!response.ok) throw new Failure(await response.text(), response.status)
      const link = document.createElement('a')
      link.href = URL.createObjectURL(await response.blob())
      link.download = `freshet-record-${id}.zip`
      link.click()
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000)
      setState('')
    } catch {
      setState('Not there') // it may have made room for newer ones
    }
  }
  return (
    <button type="button" onClick={load} disabled={state === 'Loading…'} aria-label={`Download ${id}`} title="A zip, which freshet diagnose and go tool pprof read">
      {state || 'Download'}
    </button>
  )
}

// usual is how long a recording takes in seconds: five of profiles, and some to put
// them together.
const usual = 6

type Making = { since: number } | { made: Recording } | { refused: Failure } | null

function RecordNow(props: { onMade: () => void }) {
  const [why, setWhy] = useState('')
  const [state, setState] = useState<Making>(null)
  const [, draw] = useState(0)
  const gone = useRef(new AbortController())
  useEffect(() => () => gone.current.abort(), [])
  const making = state !== null && 'since' in state
  useEffect(() => {
    if (!making) return
    const timer = setInterval(() => draw(performance.now()), 250)
    return () => clearInterval(timer)
  }, [making])
  const record = async () => {
    setState({ since: performance.now() })
    try {
      setState({ made: await make(why.trim() || 'asked on the page', gone.current.signal) })
      setWhy('')
      props.onMade()
    } catch (err) {
      if (!gone.current.signal.aborted) setState({ refused: err instanceof Failure ? err : new Failure(String(err)) })
    }
  }
  const passed = making ? (performance.now() - state.since) / 1000 : 0
  return (
    <form
      class="recordnow"
      onSubmit={(e) => {
        e.preventDefault()
        if (!making) void record()
      }}
    >
      {making ? (
        <>
          <progress max={usual} value={Math.min(passed, usual * 0.97)} aria-label="Recording" />
          <span role="status">{passed < usual + 2 ? `Recording, ${count(usual)} s or so` : 'Another one is under way before, or the server is busy'}</span>
        </>
      ) : (
        <>
          {state && 'made' in state && (
            <span role="status" class="good">
              {state.made.not_kept ? 'Recorded, and not kept.' : 'Recorded.'}{' '}
              <Link page="records" params={leadsTo(state.made.id)}>
                Diagnose it
              </Link>
            </span>
          )}
          {state && 'refused' in state && (
            <span role="alert" class="bad">
              {state.refused.status === 403 ? `For operators only: ${state.refused.message}` : state.refused.message}
            </span>
          )}
          <input type="text" aria-label="Why" placeholder="why, if you like" maxLength={100} value={why} onInput={(e) => setWhy(e.currentTarget.value)} />
        </>
      )}
      <button type="submit" class="primary" disabled={making}>
        Record now
      </button>
    </form>
  )
}

// make has the server record, and answers with what it made.
async function make(reason: string, signal: AbortSignal): Promise<Recording> {
  const response = await fetchAPI('-/record', { method: 'POST', body: new URLSearchParams({ reason }), signal })
  const text = await response.text()
  if (!response.ok) throw new Failure(text.trim(), response.status)
  return (JSON.parse(text) as { data: Recording }).data
}
