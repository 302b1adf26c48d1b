// What Explore gives away: an answer as CSV or JSON, and a query as a command line.
import { hasToken } from './api'
import type { Result, Series } from './promql'

// field quotes a field of CSV (RFC 4180) where it must be.
const field = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)

const line = (fields: string[]) => fields.map(field).join(',') + '\r\n'

// plain puts an apostrophe in front of a text that a spreadsheet would take as a formula. Labels come from senders, and a
// formula can send away what is beside it. Values are numbers, and need none.
const plain = (text: string) => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text)

const isoTime = (unix: number) => new Date(unix * 1000).toISOString()

// rangeCSV has a line for each time and a column for each series. A field without a value is empty.
export function rangeCSV(series: Series[], names: string[]): string {
  const rows = new Map<number, string[]>()
  series.forEach((s, i) => {
    for (const [t, v] of s.values ?? []) {
      const row = rows.get(t) ?? new Array<string>(series.length).fill('')
      rows.set(t, row)
      row[i] = v
    }
  })
  const times = [...rows.keys()].sort((a, b) => a - b)
  return line(['time', ...names.map(plain)]) + times.map((t) => line([isoTime(t), ...rows.get(t)!])).join('')
}

// instantCSV has a line for each series, and a column for each label. Of a histogram it has count and sum.
export function instantCSV(series: Series[]): string {
  const labels = [...new Set(series.flatMap((s) => Object.keys(s.metric)))].sort()
  const histograms = series.some((s) => s.histogram)
  const head = line([...labels.map(plain), 'time', 'value', ...(histograms ? ['count', 'sum'] : [])])
  return head + series.map((s) => {
    const [t] = s.value ?? s.histogram ?? s.values?.[0] ?? [0]
    const rest = histograms ? [s.histogram?.[1].count ?? '', s.histogram?.[1].sum ?? ''] : []
    return line([...labels.map((l) => plain(s.metric[l] ?? '')), isoTime(t), s.value?.[1] ?? '', ...rest])
  }).join('')
}

// answerJSON is the answer in the envelope of the API.
export const answerJSON = (data: Result) => JSON.stringify({ status: 'success', data }, null, 1) + '\n'

// quoted writes a word for a POSIX shell.
const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

// curlOf returns a command that asks the same. A token is not in it: the command takes it from the
// environment.
export function curlOf(path: string, params: Record<string, string>): string {
  const words = [`curl --get ${quoted(new URL(path, document.baseURI).href)}`]
  if (hasToken()) words.push('--header "Authorization: Bearer $TOKEN"')
  for (const [name, value] of Object.entries(params)) words.push(`--data-urlencode ${quoted(`${name}=${value}`)}`)
  return words.join(' \\\n  ')
}

// save hands a file to the browser, which keeps it where downloads go.
export function save(name: string, type: string, text: string) {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([text], { type }))
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}
