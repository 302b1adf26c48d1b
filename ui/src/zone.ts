// The time zone in which times are shown: the browser's, or UTC. The browser remembers it.
import { remember, remembered, store } from './store'

export type Zone = 'local' | 'utc'

const key = 'freshet.zone'

export const zone = store<Zone>(remembered(key) === 'utc' ? 'utc' : 'local')

export function setZone(next: Zone) {
  remember(key, next)
  zone.set(next)
}

// wall returns a date whose UTC fields are those of a clock in the chosen zone.
export function wall(unix: number): Date {
  const at = new Date(unix * 1000)
  return zone.get() === 'utc' ? at : new Date(at.getTime() - at.getTimezoneOffset() * 60_000)
}

// unixOf reads a time as an input of type datetime-local writes it. It is NaN if the text is no time.
export const unixOf = (text: string) => Math.round(Date.parse(zone.get() === 'utc' ? text + 'Z' : text) / 1000)

export const zoneName = () => (zone.get() === 'utc' ? 'UTC' : Intl.DateTimeFormat().resolvedOptions().timeZone)
