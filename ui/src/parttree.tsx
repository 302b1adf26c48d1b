// What the parts of a query answer, as a tree, and why a query has no data.
import { Fragment } from 'preact'
import { usePoll } from './api'
import { count, dateTime, seconds, shortened } from './format'
import { Empty, Link, Loading, Problem } from './parts'
import { dissect, whyEmpty, type Part } from './why'

interface Props {
  base: string
  expr: string
  from: number
  to: number
  turn: string // the parts are asked again when it changes, and not at each refresh
}

// PartTree shows what each part of a query answers at the end of the time range.
export function PartTree(props: Props) {
  const { data, error } = usePoll((signal) => dissect(props.base, props.expr, props.to, signal), 0, [props.base, props.expr, props.turn])
  if (error) return <Problem error={error} />
  if (!data) return <Loading what="Asking each part…" />
  return (
    <div class="parttree">
      <p class="note">What each part answers at {dateTime(props.to)}, asked alone:</p>
      <Parts all={[data]} />
    </div>
  )
}

function Parts(props: { all: Part[] }) {
  return (
    <ul>
      {props.all.map((p, i) => (
        <li key={i}>
          <code>{shortened(p.text, 300)}</code>
          <span class={p.series.length ? 'note' : 'note bad'}>
            {count(p.series.length)} series{p.samples !== undefined && `, ${count(p.samples)} samples`}, {seconds(p.seconds)}
          </span>
          {p.parts.length > 0 && <Parts all={p.parts} />}
        </li>
      ))}
    </ul>
  )
}

// NoData says that an answer is empty, and why. `onTime` shows the time at which there was data.
export function NoData(props: Props & { address: (expr: string) => URLSearchParams; onTime: (time: number) => void }) {
  const { base, expr, from, to } = props
  const { data, error } = usePoll((signal) => whyEmpty(base, expr, from, to, signal), 0, [base, expr, props.turn])
  const { names, time } = data ?? {}
  return (
    <Empty>
      <p>No data in this time range.</p>
      {!data && !error && data !== null && <Loading what="Finding out why…" />}
      {data && <p>{data.text}</p>}
      {names && names.length > 0 && (
        <p>
          Do you mean{' '}
          {names.map(({ name, expr }, i) => (
            <Fragment key={name}>
              {i > 0 && ', '}
              <Link page="explore" params={props.address(expr)}>
                <code>{name}</code>
              </Link>
            </Fragment>
          ))}
          ?
        </p>
      )}
      {time !== undefined && (
        <button type="button" onClick={() => props.onTime(time)}>
          Show that time
        </button>
      )}
      <p class="note">Completion lists the names that exist. A new sample takes about a second to appear.</p>
    </Empty>
  )
}
