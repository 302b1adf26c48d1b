// Formats for numbers and times.
import { wall } from './zone'

// compact writes a number in about four characters: 1.23k, 4.5M, 12µ.
export function compact(v: number): string {
  if (!Number.isFinite(v)) return v > 0 ? '+Inf' : v < 0 ? '-Inf' : 'NaN'
  const size = Math.abs(v)
  if (size === 0) return '0'
  for (const [least, unit] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']] as const) {
    if (size >= least * 0.9995) return digits(v / least) + unit
  }
  if (size >= 0.0009995) return digits(v)
  for (const [least, unit] of [[1e-3, 'm'], [1e-6, 'µ'], [1e-9, 'n']] as const) {
    if (size >= least) return digits(v / least) + unit
  }
  return v.toExponential(1)
}

const digits = (v: number) => String(Number(Math.abs(v) >= 100 ? v.toFixed(0) : v.toPrecision(3)))

// exact writes whole numbers in full, with separators, and all other numbers with five
// digits.
export function exact(v: number): string {
  if (!Number.isFinite(v)) return compact(v)
  return Number.isInteger(v) && Math.abs(v) < 1e15 ? count(v) : String(Number(v.toPrecision(5)))
}

// count writes a whole number with separators of thousands.
export const count = (n: number) => Math.round(n).toLocaleString('en-US')

// printable escapes control characters and marks of direction, which are invisible or
// reorder the text beside them. PromQL understands these escapes.
export const printable = (text: string) =>
  text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'))

// shortened cuts a text to `length` characters.
export const shortened = (text: string, length: number) => (text.length > length ? text.slice(0, length) + '…' : text)

export function bytes(n: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let i = 0
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024
  return `${digits(n)} ${units[i]}`
}

// seconds writes how long something takes: 12 ms, 3.4 s.
export function seconds(s: number): string {
  if (!Number.isFinite(s)) return '–'
  const size = Math.abs(s)
  if (size === 0) return '0 s'
  if (size < 1e-6) return digits(s * 1e9) + ' ns'
  if (size < 1e-3) return digits(s * 1e6) + ' µs'
  if (size < 1) return digits(s * 1e3) + ' ms'
  if (size < 120) return digits(s) + ' s'
  return span(s)
}

// span writes a longer time in its two largest units: 3 h 20 min.
export function span(s: number): string {
  s = Math.round(s)
  const parts: string[] = []
  for (const [unit, length] of [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]] as const) {
    const n = Math.floor(s / length)
    if (n > 0) parts.push(`${n} ${unit}`)
    s -= n * length
    if (parts.length === 2) break
  }
  return parts.join(' ') || '0 s'
}

export const percent = (part: number) => (part === 0 ? '0 %' : part < 0.001 ? '<0.1 %' : `${(100 * part).toFixed(1)} %`)

const two = (n: number) => String(n).padStart(2, '0')

export function clock(unix: number, millis = false): string {
  const t = wall(unix)
  const time = `${two(t.getUTCHours())}:${two(t.getUTCMinutes())}:${two(t.getUTCSeconds())}`
  return millis ? `${time}.${String(t.getUTCMilliseconds()).padStart(3, '0')}` : time
}

export function day(unix: number): string {
  const t = wall(unix)
  return `${t.getUTCFullYear()}-${two(t.getUTCMonth() + 1)}-${two(t.getUTCDate())}`
}

export const dateTime = (unix: number) => `${day(unix)} ${clock(unix)}`

// ticks writes times below a chart. Their precision follows the distance between two times. If they are of several
// days, the first time of each day has its date, below or behind it; with little room, midnight is a date.
export function ticks(times: number[], distance: number, dates: '\n' | ' ' | 'midnight'): string[] {
  const date = (t: number) => `${wall(t).toLocaleString('en-GB', { month: 'short', timeZone: 'UTC' })} ${wall(t).getUTCDate()}`
  if (distance >= 86400) return times.map(date)
  const days = times.map(day)
  return times.map((t, i) => {
    if (dates === 'midnight' && clock(t) === '00:00:00') return date(t)
    const time = distance >= 60 ? clock(t).slice(0, 5) : clock(t)
    return dates !== 'midnight' && days[i] !== days[i - 1] && days[0] !== days[days.length - 1] ? time + dates + date(t) : time
  })
}
