// The tree of a PromQL expression, as api/v1/parse_query gives it, and how it is written.
import { ask } from './api'
import { labelName, quoted } from './promql'

interface Matcher {
  name: string
  value: string
  type: '=' | '!=' | '=~' | '!~'
}

interface Timed {
  offset: number // ms
  offsetExpr?: Node | null
  timestamp?: number | null // ms, of the modifier @
  startOrEnd?: string | null
}

interface Ranged {
  range: number // ms
  rangeExpr?: Node | null
}

export interface Selector extends Timed {
  type: 'vectorSelector'
  name: string
  matchers: Matcher[]
  anchored?: boolean
  smoothed?: boolean
}

export interface Window extends Omit<Selector, 'type'>, Ranged {
  type: 'matrixSelector'
}

export interface Binary {
  type: 'binaryExpr'
  op: string
  lhs: Node
  rhs: Node
  bool: boolean
  matching: { card: string; labels: string[]; on: boolean; include: string[] } | null
}

export type Node =
  | Selector
  | Window
  | Binary
  | { type: 'aggregation'; op: string; expr: Node; param: Node | null; grouping: string[]; without: boolean }
  | { type: 'call'; func: { name: string }; args: Node[] }
  | ({ type: 'subquery'; expr: Node; step: number; stepExpr?: Node | null } & Ranged & Timed)
  | { type: 'parenExpr'; expr: Node }
  | { type: 'unaryExpr'; op: string; expr: Node }
  | { type: 'numberLiteral'; val: string; duration?: boolean }
  | { type: 'stringLiteral'; val: string }
  | { type: 'durationExpr'; op: string; lhs: Node | null; rhs: Node | null; wrapped: boolean }

export const parseQuery = async (base: string, query: string, signal: AbortSignal) => (await ask<Node>(`${base}api/v1/parse_query`, { query }, signal)).data

// parts are the expressions inside a node that have series of their own.
export function parts(n: Node): Node[] {
  switch (n.type) {
    case 'binaryExpr':
      return [n.lhs, n.rhs].filter(hasSeries)
    case 'call':
      return n.args.filter(hasSeries)
    case 'aggregation':
    case 'subquery':
    case 'parenExpr':
    case 'unaryExpr':
      return [n.expr].filter(hasSeries)
    default:
      return []
  }
}

const scalarCalls = ['scalar', 'time', 'pi']

// hasSeries reports whether a node is not a scalar or a text.
export function hasSeries(n: Node): boolean {
  switch (n.type) {
    case 'numberLiteral':
    case 'stringLiteral':
    case 'durationExpr':
      return false
    case 'call':
      return !scalarCalls.includes(n.func.name)
    case 'binaryExpr':
      return hasSeries(n.lhs) || hasSeries(n.rhs)
    case 'parenExpr':
    case 'unaryExpr':
      return hasSeries(n.expr)
    default:
      return true
  }
}

// textOf writes a node as PromQL.
export function textOf(n: Node): string {
  switch (n.type) {
    case 'vectorSelector':
      return selectorOf(n) + modifiers(n) + (n.anchored ? ' anchored' : n.smoothed ? ' smoothed' : '')
    case 'matrixSelector':
      return `${selectorOf(n)}[${lengthOf(n.range, n.rangeExpr)}]${modifiers(n)}${n.anchored ? ' anchored' : n.smoothed ? ' smoothed' : ''}`
    case 'subquery':
      return `${textOf(n.expr)}[${lengthOf(n.range, n.rangeExpr)}:${n.step || n.stepExpr ? lengthOf(n.step, n.stepExpr) : ''}]${modifiers(n)}`
    case 'aggregation': {
      const by = n.grouping.length || n.without ? ` ${n.without ? 'without' : 'by'} (${n.grouping.map(labelName).join(', ')}) ` : ''
      return `${n.op}${by}(${n.param ? textOf(n.param) + ', ' : ''}${textOf(n.expr)})`
    }
    case 'call':
      return `${n.func.name}(${n.args.map(textOf).join(', ')})`
    case 'binaryExpr':
      return `${textOf(n.lhs)} ${n.op}${n.bool ? ' bool' : ''}${matchingOf(n)} ${textOf(n.rhs)}`
    case 'parenExpr':
      return `(${textOf(n.expr)})`
    case 'unaryExpr':
      return n.op + textOf(n.expr)
    case 'numberLiteral':
      return n.val
    case 'stringLiteral':
      return quoted(n.val)
    case 'durationExpr': {
      const text = [n.lhs && lengthOf(0, n.lhs), n.op, n.rhs && lengthOf(0, n.rhs)].filter(Boolean).join(' ')
      return n.wrapped ? `(${text})` : text
    }
  }
}

// selectorOf writes a selector with all its matchers but those in `without`.
export function selectorOf(n: Selector | Window, without: Matcher[] = []): string {
  const all = n.matchers.filter((m) => !(m.name === '__name__' && m.type === '=' && m.value === n.name) && !without.includes(m))
  const plain = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/.test(n.name)
  const pairs = all.map((m) => labelName(m.name) + m.type + quoted(m.value))
  if (n.name && !plain) pairs.unshift(quoted(n.name))
  return (plain ? n.name : '') + (pairs.length || !plain ? `{${pairs.join(', ')}}` : '')
}

// renamed writes a query with another name for a metric.
export function renamed(query: Node, was: string, name: string): string {
  const of = (_: string, n: unknown) => (isSelector(n) && n.name === was ? { ...n, name, matchers: n.matchers.filter((m) => m.name !== '__name__') } : n)
  return textOf(JSON.parse(JSON.stringify(query), of))
}

const isSelector = (n: unknown): n is Selector | Window => ['vectorSelector', 'matrixSelector'].includes((n as Node | null)?.type ?? '')

function matchingOf({ matching: m }: Binary): string {
  if (!m) return ''
  const labels = m.labels.length || m.on ? ` ${m.on ? 'on' : 'ignoring'} (${m.labels.map(labelName).join(', ')})` : ''
  const side = m.card === 'many-to-one' ? ' group_left' : m.card === 'one-to-many' ? ' group_right' : ''
  return labels + (side && `${side} (${m.include.map(labelName).join(', ')})`)
}

function modifiers(n: Timed): string {
  const at = n.startOrEnd ? ` @ ${n.startOrEnd}()` : n.timestamp != null ? ` @ ${n.timestamp / 1000}` : ''
  const offset = n.offset || n.offsetExpr ? ` offset ${n.offset < 0 && !n.offsetExpr ? '-' : ''}${lengthOf(Math.abs(n.offset), n.offsetExpr)}` : ''
  return at + offset
}

// lengthOf writes a duration of ms, or the expression that stands for it.
function lengthOf(ms: number, expr?: Node | null): string {
  if (expr) return expr.type === 'numberLiteral' ? expr.val + (expr.duration ? 's' : '') : textOf(expr)
  let text = ''
  for (const [unit, length] of [['d', 86_400_000], ['h', 3_600_000], ['m', 60_000], ['s', 1000], ['ms', 1]] as const) {
    const n = Math.floor(ms / length)
    if (n > 0) text += n + unit
    ms -= n * length
  }
  return text || '0s'
}
