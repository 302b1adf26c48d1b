// What rules wait for, on the pages of alerts and of rules.
import { count, dateTime, seconds } from './format'
import { Figure } from './parts'
import type { Waits } from './rulesapi'

// Watermark is the time up to which all data that are expected have been delivered.
export function Watermark(props: { waits: Waits }) {
  const { watermark_ms: mark, late, waiting } = props.waits
  const stale = waiting.filter((w) => w.stale).length
  const note = stale ? `${count(stale)} ${stale === 1 ? 'group is' : 'groups are'} stale` : late.length ? `${count(late.length)} late` : 'nothing is late'
  const behind = Math.max(0, Date.now() - mark) / 1000
  return <Figure name="Data complete" value={mark ? `${seconds(Math.round(behind))} ago` : '–'} note={mark ? note : 'no rules'} state={stale ? 'bad' : late.length ? 'warn' : mark ? 'good' : undefined} />
}

// shownFirst is how many late senders are listed.
const shownFirst = 10

// Late says what holds rules back, and which senders rules no longer wait for.
export function Late(props: { waits: Waits }) {
  const { late, gone } = props.waits
  const all = [
    ...late.map((l) => ({ warn: true, text: `Rules wait for ${l.sender || 'the server'}: ${l.text} since ${dateTime(l.since_ms / 1000)}` })),
    ...gone.map((g) => ({ warn: false, text: `Rules no longer wait for ${g.sender}: it ${g.text} since ${dateTime(g.since_ms / 1000)}` })),
  ]
  return (
    <>
      {all.slice(0, shownFirst).map(({ warn, text }) => (
        <p key={text} class={warn ? 'hint warn' : 'hint'}>
          {text}
        </p>
      ))}
      {all.length > shownFirst && <p class="note">and {count(all.length - shownFirst)} more: freshet rules lists them</p>}
    </>
  )
}
