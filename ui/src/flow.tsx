// Flow: how long a sample takes until a query returns it, which stages take that time, and
// the ledger. In a cluster, the page adds up all nodes, or with local=true in the address shows
// the node that answers.
import { useRef } from 'preact/hooks'
import { ask, usePoll } from './api'
import { duration } from './explorestate'
import { Freshness } from './freshness'
import { LedgerPanel, useLedger, type Books } from './ledger'
import { Choice } from './parts'
import { go, usePlace } from './router'
import { Stages, type Scope } from './stages'

// lookBack returns the range of rates. A rate needs several values, and Freshet stores its own
// metrics once in each self.interval. If the user may not read the flags, lookBack assumes the
// default interval.
async function lookBack(signal: AbortSignal): Promise<string> {
  const interval = await ask<Record<string, string>>('api/v1/status/flags', {}, signal).then((a) => duration(a.data['self-interval']), () => null)
  return `${Math.max(30, 4 * (interval ?? 5))}s`
}

export function Flow() {
  const { data: over } = usePoll(lookBack, 0, [])
  const local = usePlace().params.get('local') === 'true'
  const ledger = useLedger(local)
  // The ledger says whether this is a node of a cluster. If it cannot be read, there is no choice.
  const answered = useRef<{ node?: string } | undefined>(undefined)
  if (ledger.data || ledger.error) answered.current = { node: ledger.data?.node ?? answered.current?.node }
  const node = answered.current?.node
  const scope: Scope | undefined = answered.current && { node, local }
  return (
    <div class="flow">
      <div class="toolbar">
        <h1>Flow</h1>
        {node && (
          <Choice
            label="Of"
            value={local ? 'local' : 'cluster'}
            options={[['cluster', 'Cluster'], ['local', `Node ${node} alone`]]}
            onChange={(v) => go('flow', v === 'local' ? new URLSearchParams({ local: 'true' }) : undefined)}
          />
        )}
        <p class="note">
          The last 15 minutes, updated every 2 s
          {ledger.data?.nodes && <Answered books={ledger.data} />}
        </p>
      </div>
      {over && scope && <Freshness over={over} scope={scope} />}
      <div class="columns">
        <Stages over={over} scope={scope} />
        <LedgerPanel {...ledger} />
      </div>
    </div>
  )
}

// Answered says how many nodes of the cluster answered.
function Answered(props: { books: Books }) {
  const nodes = props.books.nodes ?? []
  const missing = nodes.filter((n) => n.error).map((n) => n.name)
  return (
    <>
      ; {nodes.length - missing.length} of {nodes.length} nodes answer
      {missing.length > 0 && <b class="bad">, not {missing.join(', ')}</b>}
    </>
  )
}
