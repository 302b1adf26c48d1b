// Flow: how long a sample takes until a query has it, where that time goes, and the books
// of what became of all samples.
import { ask, usePoll } from './api'
import { duration } from './explorestate'
import { Freshness } from './freshness'
import { LedgerPanel } from './ledger'
import { Stages } from './stages'

// lookBack is what rates are taken over: own metrics come each self.interval, and a rate
// wants some of them. Where flags are not shown it is what fits the default.
async function lookBack(signal: AbortSignal): Promise<string> {
  const interval = await ask<Record<string, string>>('api/v1/status/flags', {}, signal).then((a) => duration(a.data['self-interval']), () => null)
  return `${Math.max(30, 4 * (interval ?? 5))}s`
}

export function Flow() {
  const { data: over } = usePoll(lookBack, 0, [])
  return (
    <div class="flow">
      <div class="toolbar">
        <h1>Flow</h1>
        <p class="note">The last 15 minutes, every 2 s</p>
      </div>
      {over && <Freshness over={over} />}
      <div class="columns">
        <Stages over={over} />
        <LedgerPanel />
      </div>
    </div>
  )
}
