// The list of all metrics, which Explore shows before the first query.
import { useState } from 'preact/hooks'
import { ask, usePoll } from './api'
import { count } from './format'
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

// Suggestions lists the metrics. A click on a metric calls `onPick` with a first query for it.
export function Suggestions(props: { base: string; onPick: (expr: string) => void }) {
  const [filter, setFilter] = useState('')
  const { data, error } = usePoll((signal) => names(props.base, signal), 30_000, [])
  const all = data ?? []
  const found = all.filter(({ name }) => name.toLowerCase().includes(filter.toLowerCase()))
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
          <label class="field">
            Filter
            <input type="search" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
          </label>
          <ul class="metrics">
            {found.slice(0, 200).map(({ name, type, help }) => (
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
          {found.length > 200 && <p class="note">Only 200 of {count(found.length)} are listed. Filter for the others.</p>}
        </>
      )}
    </Panel>
  )
}
