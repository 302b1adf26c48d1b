// The time range of Explore: controls to choose it, to move it, and to copy it in a link.
import { useState } from 'preact/hooks'
import * as explore from './explorestate'
import type { State } from './explorestate'
import { dateTime } from './format'
import { Dialog } from './parts'
import { go } from './router'
import { unixOf, zoneName } from './zone'

const presets = [300, 900, 3600, 3 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 30 * 86400]

export function TimeRange(props: { state: State; from: number; to: number; change: (next: Partial<State>) => void; onChoose: () => void }) {
  const { state, from, to, change } = props
  const shift = (by: number) => change({ to: Math.round(to + by * state.range), refresh: 0 })
  return (
    <div class="timerange" role="group" aria-label="Time range">
      <button type="button" aria-label="Earlier" title="Earlier" onClick={() => shift(-0.5)}>
        ◀
      </button>
      <select
        aria-label="Time range"
        value={state.to === null ? String(state.range) : 'fixed'}
        onChange={(e) => (e.currentTarget.value === 'fixed' ? props.onChoose() : change({ range: Number(e.currentTarget.value), to: null }))}
      >
        {[...new Set(state.to === null ? [...presets, state.range] : presets)]
          .sort((a, b) => a - b)
          .map((p) => (
            <option key={p} value={String(p)}>
              Last {explore.short(p)}
            </option>
          ))}
        <option value="fixed">{state.to === null ? 'Custom…' : `${dateTime(from)} – ${dateTime(to)}`}</option>
      </select>
      <button type="button" aria-label="Later" title="Later" disabled={state.to === null} onClick={() => shift(0.5)}>
        ▶
      </button>
      <button type="button" aria-label="Custom time range" title="Custom time range" onClick={props.onChoose}>
        ⋯
      </button>
    </div>
  )
}

// local writes a time for an input of type datetime-local.
function local(unix: number): string {
  return dateTime(unix).replace(' ', 'T')
}

export function TimesDialog(props: { from: number; to: number; onClose: () => void; onPick: (from: number, to: number) => void }) {
  const [from, setFrom] = useState(local(props.from))
  const [to, setTo] = useState(local(props.to))
  const a = unixOf(from)
  const b = unixOf(to)
  const good = b > a
  return (
    <Dialog title="Custom time range" onClose={props.onClose}>
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
        <p class="note">Time zone: {zoneName()}</p>
        {!good && <p class="bad">The end must be after the start.</p>}
        <button type="submit" class="primary" disabled={!good}>
          Apply
        </button>
      </form>
    </Dialog>
  )
}

// CopyLink copies an address with fixed times, which shows the same data tomorrow.
export function CopyLink(props: { state: State; to: number }) {
  const [done, setDone] = useState('')
  const copy = async () => {
    const params = explore.format({ ...props.state, to: Math.round(props.to), refresh: 0 })
    const link = new URL('explore?' + params, document.baseURI).href
    try {
      await navigator.clipboard.writeText(link)
      setDone('Copied')
    } catch {
      go('explore', params) // without a clipboard, the user can copy the address from the address bar
      setDone('See the address bar')
    }
    setTimeout(() => setDone(''), 2000)
  }
  return (
    <button type="button" aria-live="polite" onClick={copy} title="Copies a link to exactly these times">
      {done || 'Copy link'}
    </button>
  )
}
