// Small parts that all pages use. Text from the server is inserted as text, never as
// markup, here and everywhere else.
import { Fragment, type ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Failure } from './api'
import { count, printable, shortened } from './format'
import { address, go, type PageName } from './router'

// Link shows another page without loading the files again.
export function Link(props: { page: PageName; params?: URLSearchParams; class?: string; current?: boolean; title?: string; label?: string; tabIndex?: number; style?: Record<string, string>; children?: ComponentChildren }) {
  const follow = (e: MouseEvent) => {
    if (e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return
    e.preventDefault()
    go(props.page, props.params)
  }
  return (
    <a href={address(props.page, props.params)} class={props.class} title={props.title} aria-label={props.label} tabIndex={props.tabIndex} style={props.style} aria-current={props.current ? 'page' : undefined} onClick={follow}>
      {props.children}
    </a>
  )
}

// Explored is a link that opens an expression in Explore.
export function Explored(props: { expr: string; children?: ComponentChildren }) {
  return (
    <Link page="explore" params={new URLSearchParams({ q: props.expr })} title={`Explore ${props.expr}`}>
      {props.children ?? props.expr}
    </Link>
  )
}

export function Panel(props: { title: string; note?: ComponentChildren; class?: string; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class={'panel ' + (props.class ?? '')} aria-label={props.title}>
      <header>
        <h2>{props.title}</h2>
        {props.note !== undefined && <p class="note">{props.note}</p>}
        {props.actions !== undefined && <div class="actions">{props.actions}</div>}
      </header>
      {props.children}
    </section>
  )
}

// Problem shows an error and what to do about it.
export function Problem(props: { error: Failure; todo?: ComponentChildren }) {
  return (
    <div class="problem" role="alert">
      <strong>{props.error.kind ? props.error.kind.replaceAll('_', ' ') : props.error.status ? `HTTP ${props.error.status}` : 'no answer'}</strong>
      <p>{props.error.message}</p>
      {props.todo !== undefined && <p class="todo">{props.todo}</p>}
    </div>
  )
}

// Refusal shows that this user has no access, and how to get access.
export function Refusal(props: { error: Failure; what: string }) {
  const { error, what } = props
  if (error.status === 403) {
    return (
      <Empty>
        <p>{what} are shown to operators only.</p>
        <p class="note">They show data of all tenants. The server says: {error.message}.</p>
        <p class="note">Open a tunnel to operator.sock in the server’s data directory, then http://127.0.0.1:7125:</p>
        <pre tabIndex={0}>ssh -N -L 7125:/var/lib/freshet/operator.sock HOST</pre>
      </Empty>
    )
  }
  if (error.status === 401) {
    return (
      <Empty>
        <p>{what} are shown only with a token.</p>
        <p class="note">The server says: {error.message}.</p>
      </Empty>
    )
  }
  return <Problem error={error} />
}

export const Empty = (props: { children: ComponentChildren }) => <div class="empty">{props.children}</div>

export const Loading = (props: { what: string }) => (
  <p class="loading" role="status">
    <span aria-hidden="true" class="spinner" /> {props.what}
  </p>
)

// Figure is one important number.
export function Figure(props: { name: string; value: ComponentChildren; note?: ComponentChildren; state?: 'good' | 'warn' | 'bad' }) {
  return (
    <div class={'figure ' + (props.state ?? '')}>
      <dt>{props.name}</dt>
      <dd>
        {props.value}
        {props.note !== undefined && <small>{props.note}</small>}
      </dd>
    </div>
  )
}

export const Figures = (props: { children: ComponentChildren }) => <dl class="figures">{props.children}</dl>

export interface Column<Row> {
  name: string
  cell: (row: Row) => ComponentChildren
  number?: boolean
  class?: string
  sort?: (row: Row) => number | string | undefined // sorts the rows by a click on the column's head; undefined comes last
}

// Order is the column by which a user sorted a table.
interface Order {
  name: string
  down: boolean
}

function sorted<Row>(rows: Row[], columns: Column<Row>[], order: Order | null): Row[] {
  const by = columns.find((c) => c.name === order?.name)?.sort
  if (!by || !order) return rows
  return rows.toSorted((a, b) => {
    const [x, y] = [by(a), by(b)]
    if (x === undefined || y === undefined) return Number(x === undefined) - Number(y === undefined)
    const up = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y))
    return order.down ? -up : up
  })
}

// next returns the order after a click: numbers begin with the largest, text with the first letter. The third click
// brings back the order that the server gave.
function next<Row>(order: Order | null, column: Column<Row>): Order | null {
  const first = Boolean(column.number)
  if (order?.name !== column.name) return { name: column.name, down: first }
  return order.down === first ? { name: column.name, down: !first } : null
}

// Name is the name of a metric or a setting. It breaks into lines only after an underscore, a dot or
// a colon, unless a part between them is wider than its place.
export function Name(props: { text: string }) {
  const parts = props.text.split(/(?<=[_.:])(?=[^_.:])/)
  return (
    <span class="metric code">
      {parts.map((part, i) => (
        <Fragment key={i}>
          {i > 0 && <wbr />}
          {part}
        </Fragment>
      ))}
    </span>
  )
}

const longest = 300 // characters of a text that are shown without a click

// Text shows text from clients unchanged. It shortens a long text until a click.
export function Text(props: { text: string }) {
  const [whole, setWhole] = useState(false)
  const text = printable(props.text)
  if (text.length <= longest) return <>{text}</>
  return (
    <>
      {whole ? text : shortened(text, longest - 60)}{' '}
      <button type="button" class="more" aria-expanded={whole} onClick={() => setWhole(!whole)}>
        {whole ? 'less' : `all ${count(text.length)} characters`}
      </button>
    </>
  )
}

const shown = (cell: ComponentChildren) => (typeof cell === 'string' ? <Text text={cell} /> : cell)

// Table has its own scroll bar if it is too wide, so that the page needs none. With stacks, a
// narrow screen shows the cells of a row below each other, each with the name of its column. The
// ARIA roles keep it a table for screen readers. The panel around a table is the landmark.
export function Table<Row>(props: { label: string; columns: Column<Row>[]; rows: Row[]; rowClass?: (row: Row) => string | undefined; stacks?: boolean }) {
  const [order, setOrder] = useState<Order | null>(null)
  const role = (name: 'table' | 'rowgroup' | 'row' | 'columnheader' | 'cell') => (props.stacks ? name : undefined)
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={props.label}>
      <table class={props.stacks ? 'stacks' : undefined} role={role('table')}>
        <thead role={role('rowgroup')}>
          <tr role={role('row')}>
            {props.columns.map((c) => (
              <th
                key={c.name}
                scope="col"
                role={role('columnheader')}
                class={[c.number ? 'number' : '', c.sort ? 'sorts' : ''].join(' ').trim() || undefined}
                aria-sort={order?.name !== c.name ? undefined : order.down ? 'descending' : 'ascending'}
              >
                {c.sort ? (
                  <button type="button" title="Sort" onClick={() => setOrder(next(order, c))}>
                    {c.name}
                  </button>
                ) : (
                  c.name
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role={role('rowgroup')}>
          {sorted(props.rows, props.columns, order).map((row, i) => (
            <tr key={i} role={role('row')} class={props.rowClass?.(row)}>
              {props.columns.map((c) => (
                <td key={c.name} role={role('cell')} data-name={props.stacks ? c.name : undefined} class={[c.number ? 'number' : '', c.class ?? ''].join(' ').trim() || undefined}>
                  {shown(c.cell(row))}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

// Bar draws a fraction of a whole, which a number beside it also shows.
export function Bar(props: { part: number; state?: string }) {
  const width = `${(100 * Math.min(1, Math.max(0, props.part))).toFixed(2)}%`
  return (
    <span class={'bar ' + (props.state ?? '')} aria-hidden="true">
      <span style={{ width }} />
    </span>
  )
}

// Choice is a row of buttons for a few alternatives. The button of the chosen alternative is
// pressed.
export function Choice<T extends string>(props: { label: string; value: T; options: readonly (readonly [T, string])[]; onChange: (value: T) => void }) {
  return (
    <div class="choice" role="group" aria-label={props.label}>
      {props.options.map(([value, name]) => (
        <button key={value} type="button" aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
          {name}
        </button>
      ))}
    </div>
  )
}

// Dialog is modal. Escape closes it if it has an onClose.
export function Dialog(props: { title: string; onClose?: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    ref.current?.showModal()
  }, [])
  const cancel = (e: Event) => {
    e.preventDefault()
    props.onClose?.()
  }
  return (
    <dialog ref={ref} aria-label={props.title} onCancel={cancel}>
      <div class="title">
        <h2>{props.title}</h2>
        {props.onClose && (
          <button type="button" class="plain" aria-label="Close" onClick={props.onClose}>
            ✕
          </button>
        )}
      </div>
      {props.children}
    </dialog>
  )
}
