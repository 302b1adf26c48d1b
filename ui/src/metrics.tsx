// The list of all metrics, which Explore shows before the first query.
import { Fragment } from 'preact'
import { useState } from 'preact/hooks'
import { ask, usePoll } from './api'
import { count, printable, shortened } from './format'
import { Empty, Loading, Name, Panel, Problem } from './parts'
import { firstLook } from './promql'

interface Named {
  name: string
  type: string // empty if unknown
  help: string
}

// names returns all metrics, with their types and helps where known.
async function names(base: string, signal: AbortSignal): Promise<Named[]> {
  const [all, known] = await Promise.all([
    ask<string[]>(`${base}api/v1/label/__name__/values`, {}, signal),
    ask<Record<string, { type: string; help: string }[]>>(`${base}api/v1/metadata`, {}, signal),
  ])
  return all.data.map((name) => ({ name, type: known.data[name]?.[0]?.type ?? '', help: known.data[name]?.[0]?.help ?? '' }))
}

const page = 200 // metrics that are listed at once

// few metrics are listed without headings: they fit on a screen, and headings would double their lines.
const few = 30

// prefixOf is the part of a name before its first separator.
const prefixOf = (name: string) => name.split(/[_.:]/, 1)[0]

// prefixes returns the prefixes that several metrics share, with how many have each.
function prefixes(all: Named[]): [string, number][] {
  const counts = new Map<string, number>()
  for (const { name } of all) counts.set(prefixOf(name), (counts.get(prefixOf(name)) ?? 0) + 1)
  return [...counts].filter(([prefix, n]) => prefix && n > 1).sort(([a], [b]) => a.localeCompare(b))
}

interface Group {
  prefix: string // empty for metrics that share no prefix
  metrics: Named[]
}

// grouped returns metrics by the prefix that they share, and at the end those that share none.
function grouped(found: Named[]): Group[] {
  if (found.length <= few) return [{ prefix: '', metrics: found }]
  const groups = new Map<string, Named[]>(prefixes(found).map(([prefix]) => [prefix, []]))
  const others: Named[] = []
  for (const metric of found) (groups.get(prefixOf(metric.name)) ?? others).push(metric)
  return [...[...groups].map(([prefix, metrics]) => ({ prefix, metrics })), { prefix: '', metrics: others }].filter((g) => g.metrics.length > 0)
}

// Suggestions lists the metrics. A click on a metric calls `onPick` with a first query for it.
export function Suggestions(props: { base: string; onPick: (expr: string) => void }) {
  const [filter, setFilter] = useState('')
  const [prefix, setPrefix] = useState('')
  const [start, setStart] = useState(0)
  const { data, error } = usePoll((signal) => names(props.base, signal), 30_000, [])
  const all = data ?? []
  const found = all.filter(({ name }) => name.toLowerCase().includes(filter.toLowerCase()) && (!prefix || prefixOf(name) === prefix))
  const choices = prefixes(all)
  const groups = grouped(found)
  let before = 0 // metrics in the groups before
  return (
    <Panel title="Metrics" note={data && `${count(all.length)}; click one to query it`}>
      {error && <Problem error={error} />}
      {!data && !error && <Loading what="Loading…" />}
      {data && all.length === 0 && (
        <Empty>
          <p>No metrics yet. Send one:</p>
          <pre>echo 'page_views:1|c|#page:home' &gt; /dev/udp/127.0.0.1/8125</pre>
        </Empty>
      )}
      {all.length > 0 && (
        <>
          <div class="filters">
            <label class="field">
              Filter
              <input type="search" value={filter} onInput={(e) => (setFilter(e.currentTarget.value), setStart(0))} />
            </label>
            {choices.length > 1 && (
              <label class="field">
                Prefix
                <select value={prefix} onChange={(e) => (setPrefix(e.currentTarget.value), setStart(0))}>
                  <option value="">All</option>
                  {choices.map(([name, n]) => (
                    <option key={name} value={name}>
                      {shortened(printable(name), 60)} ({count(n)})
                    </option>
                  ))}
                </select>
              </label>
            )}
          </div>
          {groups.map(({ prefix, metrics }) => {
            const listed = metrics.slice(Math.max(0, start - before), Math.max(0, start + page - before))
            before += metrics.length
            return (
              listed.length > 0 && (
                <Fragment key={prefix}>
                  {groups.length > 1 && (
                    <h3 class="metrics-of">
                      {prefix ? <Name text={prefix} /> : 'Others'} <span class="note">{count(metrics.length)}</span>
                    </h3>
                  )}
                  <ul class="metrics">
                    {listed.map((metric) => (
                      <Metric key={metric.name} {...metric} onPick={props.onPick} />
                    ))}
                  </ul>
                </Fragment>
              )
            )
          })}
          {found.length > page && (
            <p class="pager">
              <button type="button" disabled={start === 0} onClick={() => setStart(start - page)}>
                Previous
              </button>
              <span class="note" role="status">
                {count(start + 1)} to {count(Math.min(start + page, found.length))} of {count(found.length)}
              </span>
              <button type="button" disabled={start + page >= found.length} onClick={() => setStart(start + page)}>
                Next
              </button>
            </p>
          )}
        </>
      )}
    </Panel>
  )
}

function Metric(props: Named & { onPick: (expr: string) => void }) {
  const { name, type, help } = props
  return (
    <li>
      <button type="button" class="plain" onClick={() => props.onPick(firstLook(name, type))}>
        <Name text={name} />
        {(type || help) && (
          <span class="note" title={help}>
            {type && <span class="tag">{type}</span>} {help}
          </span>
        )}
      </button>
    </li>
  )
}
