// Finds the place in a query that an error message of the server refers to.

// before matches the beginning of Prometheus' parse errors: line and column, both from 1. The
// column counts bytes of UTF-8.
const before = /(?:^|: )(\d+):(\d+): parse error: /

// placeIn returns the index of the character in a query to which an error message refers: the
// query's length if the error is at the end, or null if the message names no place.
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
