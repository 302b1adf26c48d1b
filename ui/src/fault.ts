// Finds the place in a query that an error of the server is about.

// before is how Prometheus begins a parse error: with line and column, both from 1, the
// column in bytes of UTF-8.
const before = /(?:^|: )(\d+):(\d+): parse error: /

// placeIn is the index in a query that an error message points at, or its length if the
// end is wrong. It is null if the message names no place.
export function placeIn(query: string, message: string): number | null {
  const found = message.match(before)
  if (!found) return null
  const line = Number(found[1]) - 1
  const lines = query.split('\n')
  if (line < 0 || line >= lines.length) return null
  const bytes = new TextEncoder().encode(lines[line])
  const column = Number(found[2]) - 1
  if (column < 0 || column > bytes.length) return null
  const above = lines.slice(0, line).reduce((n, l) => n + l.length + 1, 0)
  return above + new TextDecoder().decode(bytes.subarray(0, column)).length
}
