// The list of all metrics, which Explore shows before the first query.
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

// prefixOf is the part of a name before its first separator.
const prefixOf = (name: string) => name.split(/[_.:]/, 1)[0]

// prefixes returns the prefixes that several metrics share, with how many have each.
function prefixes(all: Named[]): [string, number][] {
  const counts = new Map<string, number>()
  for (const { name } of all) counts.set(prefixOf(name), (counts.get(prefixOf(name)) ?? 0) + 1)
  return [...counts].filter(([prefix, n]) => prefix && n > 1).sort(([a], [b]) => a.localeCompare(b))
}

// Suggestions lists the metrics. A click on a metric calls `onPick` with a first query for it.
export function Suggestions(props: { base: string; onPick: (expr: string) => void }) {
  const [filter, setFilter] = useState('')
  const [prefix, setPrefix] = useState('')
  const [start, setStart] = useState(0)
  const { data, error } = usePoll((signal) => names(props.base, signal), 30_000, [])
  const all = data ?? []
  const found = all.filter(({ name }) => name.toLowerCase().includes(filter.toLowerCase()) && (!prefix || prefixOf(name) === prefix))
  const groups = prefixes(all)
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
            {groups.length > 1 && (
              <label class="field">
                Prefix
                <select value={prefix} onChange={(e) => (setPrefix(e.currentTarget.value), setStart(0))}>
                  <option value="">All</option>
                  {groups.map(([name, n]) => (
                    <option key={name} value={name}>
                      {shortened(printable(name), 60)} ({count(n)})
                    </option>
                  ))}
                </select>
              </label>
            )}
          </div>
          <ul class="metrics">
            {found.slice(start, start + page).map(({ name, type, help }) => (
              <li key={name}>
                <button type="button" class="plain" onClick={() => props.onPick(firstLook(name, type))}>
                  <Name text={name} />
                  {(type || help) && (
                    <span class="note" title={help}>
                      {type && <span class="tag">{type}</span>} {help}
                    </span>
                  )}
                </button>
              </li>
            ))}
          </ul>
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
