// Flow: how long a sample takes until a query returns it, which stages take that time, and
// the ledger.
import { ask, usePoll } from './api'
import { duration } from './explorestate'
import { Freshness } from './freshness'
import { LedgerPanel } from './ledger'
import { Stages } from './stages'

// lookBack returns the range of rates. A rate needs several values, and Freshet stores its own
// metrics once in each self.interval. If the user may not read the flags, lookBack assumes the
// default interval.
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
        <p class="note">The last 15 minutes, updated every 2 s</p>
      </div>
      {over && <Freshness over={over} />}
      <div class="columns">
        <Stages over={over} />
        <LedgerPanel />
      </div>
    </div>
  )
}
