// Recordings: profiles, metrics and a trace of a moment in which a stage was over its budget, or in
// which a user asked for a recording. The server keeps the newest.
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, Failure, fetchAPI, usePoll } from './api'
import { bytes, compact, count, seconds } from './format'
import { Empty, Link, Loading, Panel, Refusal, Table, Text } from './parts'
import { when } from './traces'

export interface Recording {
  id: string
  reason: string
  stage?: string // the stage that was over its budget
  spent_seconds?: number
  budget_seconds?: number
  began: string
  ended: string
  bytes: number
  not_kept?: string // why the recording is only in memory, where it stays until the next one
  error?: string // why the recording cannot be read
}

export const recordings = async (signal: AbortSignal) => (await ask<Recording[]>('api/v1/status/records', {}, signal)).data

export const leadsTo = (id: string) => new URLSearchParams({ record: id })

export function Recordings() {
  const [again, setAgain] = useState(0)
  const { data, error } = usePoll(recordings, 10_000, [again])
  const [last, setLast] = useState<Recording[]>() // stays on the page while a newer list loads
  useEffect(() => {
    if (data) setLast(data)
  }, [data])
  const all = data ?? last
  const [whole, setWhole] = useState(false)
  return (
    <Panel title="Recordings" note="profiles, metrics and an execution trace of a few seconds" actions={all && !error && <RecordNow onMade={() => setAgain(again + 1)} />}>
      {error && <Refusal error={error} what="Recordings" />}
      {!all && !error && <Loading what="Loading…" />}
      {all && all.length === 0 && (
        <Empty>
          <p>No recordings yet.</p>
          <p class="note">Freshet makes one when a stage is over its budget (see self.recorder). “Record now” makes one at once.</p>
        </Empty>
      )}
      {all && all.length > 0 && (
        <Table
          label="Recordings"
          rows={whole ? all : all.slice(0, shownFirst)}
          rowClass={() => 'leads'}
          columns={[
            {
              name: 'started',
              class: 'nowrap',
              cell: (r) =>
                r.error ? (
                  r.id
                ) : (
                  <Link page="records" params={leadsTo(r.id)} title="Show the diagnosis">
                    {when(r.began)}
                  </Link>
                ),
            },
            { name: 'reason', class: 'what', cell: (r) => <Why recording={r} /> },
            { name: 'over budget', class: 'nowrap', cell: (r) => <Spent recording={r} /> },
            { name: 'duration', number: true, cell: (r) => (r.error ? '' : seconds((Date.parse(r.ended) - Date.parse(r.began)) / 1000)) },
            { name: 'size', number: true, cell: (r) => bytes(r.bytes) },
            { name: 'zip file', class: 'press', cell: (r) => <Download id={r.id} /> },
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

// shownFirst is how many rows are shown until a click on “Show all”.
const shownFirst = 5

// Why shows the reason for a recording. If the recording is not on disk, it also says why not.
function Why(props: { recording: Recording }) {
  const { reason, error, not_kept } = props.recording
  if (error) return <span class="bad">cannot be read: {error}</span>
  if (!not_kept) return <Text text={reason} />
  return (
    <>
      <Text text={reason} /> <span class="bad">In memory only, until the next recording: {not_kept}</span>
    </>
  )
}

// Spent shows how long a stage took, and its budget.
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

// Download saves a recording as a file. A plain link would not send the token.
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
      setState('Not found') // perhaps deleted for newer ones
    }
  }
  return (
    <button type="button" onClick={load} disabled={state === 'Loading…'} aria-label={`Download ${id}`} title="A zip file for freshet diagnose, with profiles for go tool pprof">
      {state || 'Download'}
    </button>
  )
}

// usual is how many seconds a recording usually takes: five for the profiles, and about one to
// write the file.
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
      setState({ made: await make(why.trim() || 'requested on the page', gone.current.signal) })
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
          <span role="status">{passed < usual + 2 ? `Recording for about ${count(usual)} s` : 'Still waiting: another recording is being made, or the server is busy'}</span>
        </>
      ) : (
        <>
          {state && 'made' in state && (
            <span role="status" class="good">
              {state.made.not_kept ? 'Recorded, but not on disk.' : 'Recorded.'}{' '}
              <Link page="records" params={leadsTo(state.made.id)}>
                Show the diagnosis
              </Link>
            </span>
          )}
          {state && 'refused' in state && (
            <span role="alert" class="bad">
              {state.refused.status === 403 ? `For operators only: ${state.refused.message}` : state.refused.message}
            </span>
          )}
          <input type="text" aria-label="Reason" placeholder="reason" maxLength={100} value={why} onInput={(e) => setWhy(e.currentTarget.value)} />
        </>
      )}
      <button type="submit" class="primary" disabled={making}>
        Record now
      </button>
    </form>
  )
}

// make requests a recording from the server, and returns it.
async function make(reason: string, signal: AbortSignal): Promise<Recording> {
  const response = await fetchAPI('-/record', { method: 'POST', body: new URLSearchParams({ reason }), signal })
  const text = await response.text()
  if (!response.ok) throw new Failure(text.trim(), response.status)
  return (JSON.parse(text) as { data: Recording }).data
}
