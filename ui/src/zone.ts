// The time zone in which times are shown: the browser's, UTC, or any other. The browser remembers it.
import { remember, remembered, store } from './store'

export type Zone = 'local' | 'utc' | (string & {}) // or the name of a zone, such as Asia/Kolkata

const key = 'freshet.zone'

export const zone = store<Zone>(known(remembered(key)) ?? 'local')

export function setZone(next: Zone) {
  remember(key, next)
  zone.set(next)
}

// zones are the names of all zones that this browser knows, beside UTC.
export const zones = Intl.supportedValuesOf('timeZone').filter((name) => name !== 'UTC')

// known returns a zone that was remembered, unless this browser does not know it.
function known(name: string | null): Zone | null {
  if (name === null || name === 'local' || name === 'utc') return name
  try {
    new Intl.DateTimeFormat('en-US', { timeZone: name })
    return name
  } catch {
    return null
  }
}

// clocks are formats that write a time as the clocks of a zone show it, by the name of the zone.
const clocks = new Map<string, Intl.DateTimeFormat>()

function clockOf(name: string): Intl.DateTimeFormat {
  const made = clocks.get(name) ?? new Intl.DateTimeFormat('en-US', { timeZone: name, hourCycle: 'h23', year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric', second: 'numeric' })
  clocks.set(name, made)
  return made
}

// offset returns by how many milliseconds the clocks of the chosen zone are ahead of UTC at a time, which is in
// milliseconds, too.
function offset(ms: number): number {
  const name = zone.get()
  if (name === 'utc') return 0
  if (name === 'local') return -new Date(ms).getTimezoneOffset() * 60_000
  const part = Object.fromEntries(clockOf(name).formatToParts(ms).map((p) => [p.type, Number(p.value)]))
  return Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second) - Math.floor(ms / 1000) * 1000
}

// wall returns a date whose UTC fields are those of a clock in the chosen zone.
export const wall = (unix: number) => new Date(unix * 1000 + offset(unix * 1000))

// unixOf reads a time as an input of type datetime-local writes it. It is NaN if the text is no time. A time that
// clocks show twice, because they are set back, is one of the two.
export function unixOf(text: string): number {
  const shown = Date.parse(text + 'Z')
  if (Number.isNaN(shown)) return NaN
  return Math.round((shown - offset(shown - offset(shown))) / 1000)
}

// localName is the name of the browser's own zone.
export const localName = Intl.DateTimeFormat().resolvedOptions().timeZone

export function zoneName(): string {
  const now = zone.get()
  return now === 'utc' ? 'UTC' : now === 'local' ? localName : now
}
