// The diagnosis of a recording: likely causes, the evidence for each, and what to do next.
import { ask, usePoll } from './api'
import { dateTime, seconds } from './format'
import { Bar, Empty, Figure, Figures, Loading, Panel, Refusal } from './parts'
import { Download } from './recordings'

interface Evidence {
  what: string
  figures?: string[]
  stack?: string[] // innermost first
}

interface Cause {
  name: string
  title: string
  score: number
  because: string
  evidence: Evidence[] | null
  next: string
}

interface Diagnosis {
  record: { id: string; reason: string; began: string; seconds: number; build: string; gomaxprocs: number; cores_used: number }
  causes: Cause[] | null
  checked: string[] | null
  missing: Record<string, string> | null
}

// clear is the minimum score of a clear cause, the same as Clear in core/diagnose.
const clear = 0.5

export function DiagnosisView(props: { id: string }) {
  const { id } = props
  const { data, error } = usePoll(async (signal) => (await ask<Diagnosis>(`api/v1/status/records/${encodeURIComponent(id)}/diagnosis`, {}, signal)).data, 0, [id])
  if (error?.status === 404) {
    return (
      <Empty>
        <p>This recording no longer exists.</p>
        <p class="note">The server deletes the oldest recordings above the limits self.recorder.records and self.recorder.bytes.</p>
      </Empty>
    )
  }
  if (error) return <Refusal error={error} what="Recordings" />
  if (!data) return <Loading what="Reading the profiles. This takes a moment…" />
  const r = data.record
  const causes = data.causes ?? []
  const checked = data.checked ?? []
  const missing = Object.entries(data.missing ?? {})
  return (
    <>
      <Figures>
        <Figure name="Reason" value={<span class="long">{r.reason}</span>} />
        <Figure name="Started" value={<span class="long">{dateTime(Date.parse(r.began) / 1000)}</span>} note={`for ${seconds(r.seconds)}`} />
        <Figure name="Busy processors" value={r.cores_used.toFixed(1)} note={`of ${r.gomaxprocs}`} state={r.cores_used > 0.9 * r.gomaxprocs ? 'warn' : undefined} />
        <Figure name="Likely causes" value={causes.length} note={causes.length ? `${causes.filter((c) => c.score >= clear).length} clear` : `${checked.length} checks found nothing`} state={causes.length ? 'bad' : 'good'} />
      </Figures>
      <Panel title="Causes" note={causes.length ? 'most likely first' : undefined} actions={<Download id={id} />}>
        {causes.length === 0 && <p class="balance good">✓ The recording shows nothing wrong.</p>}
        <ol class="causes">
          {causes.map((c, i) => (
            <CauseItem key={c.name} cause={c} rank={i + 1} />
          ))}
        </ol>
      </Panel>
      {checked.length > 0 && (
        <Panel title="Found fine" note="what was checked, with its figures">
          <ul class="checked">
            {checked.map((text) => (
              <li key={text}>
                <span aria-hidden="true" class="good">
                  ✓
                </span>{' '}
                <Named text={text} />
              </li>
            ))}
          </ul>
        </Panel>
      )}
      {missing.length > 0 && (
        <Panel title="Not in the recording">
          <dl class="pairs">
            {missing.map(([name, why]) => (
              <div key={name}>
                <dt class="code">{name}</dt>
                <dd>{why || 'no reason given'}</dd>
              </div>
            ))}
          </dl>
        </Panel>
      )}
      <p class="note">
        {r.build && `${r.build}. `}On the command line: <code>freshet diagnose --record {r.id}</code>
      </p>
    </>
  )
}

// Named emphasizes the subject of a sentence, which is the text before the colon.
function Named(props: { text: string }) {
  const [, about, rest] = props.text.match(/^([^:]{1,40}): (.*)$/s) ?? []
  if (!about) return <>{props.text}</>
  return (
    <>
      <b>{about}</b>: {rest}
    </>
  )
}

function CauseItem(props: { cause: Cause; rank: number }) {
  const { cause: c, rank } = props
  const state = c.score >= clear ? 'bad' : 'warn'
  return (
    <li class={state}>
      <h3>
        <span class="rank">{rank}.</span> {c.title}
      </h3>
      <p class="score note">
        <Bar part={c.score} state={state} />
        <b class={state}>{c.score.toFixed(2)}</b> {c.score >= clear ? 'clear' : 'possible'} · <code>{c.name}</code> · {c.because}
      </p>
      <p class="next">
        <b>Next:</b> {c.next}
      </p>
      <ul class="evidence">
        {(c.evidence ?? []).map((e, i) => (
          <li key={i}>
            {e.what}
            {(e.figures ?? []).length > 0 && (
              <ul class="figures-list">
                {e.figures!.map((f, k) => (
                  <li key={k}>{f}</li>
                ))}
              </ul>
            )}
            {(e.stack ?? []).length > 0 && (
              <details open={i === 0}>
                <summary>Stack, innermost first</summary>
                <ol class="stack code" tabIndex={0} aria-label="Stack">
                  {e.stack!.map((f, k) => (
                    <li key={k}>{f}</li>
                  ))}
                </ol>
              </details>
            )}
          </li>
        ))}
      </ul>
    </li>
  )
}
