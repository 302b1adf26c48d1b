package aggregator

import (
	"iter"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// clockSlack is how far a window may end ahead of Run's last clock reading, which may be as old as
// a tick and the work of that tick.
const clockSlack = time.Second

// Through notes that all windows that end at or before t, Unix milliseconds, are counted. Queries
// of open tiles are answered up to t. So if the collector, a push or Run stalls, the answers age;
// they never show old values at a fresh time. An untouched gauge is answered up to the present,
// since empty windows are reported, too.
//
// Only one collector pushes windows. With several collectors, each would need a stamp, and the
// oldest stamp would count.
func (a *Aggregator) Through(t int64) {
	a.raiseStamp(min(t, a.looked.Load()+clockSlack.Milliseconds()))
}

func (a *Aggregator) raiseStamp(ms int64) {
	for {
		old := a.stamp.Load()
		if ms <= old || a.stamp.CompareAndSwap(old, ms) {
			return
		}
	}
}

// FoldedThrough returns the time, Unix milliseconds, up to which all pushed windows of a tenant are
// counted. Live's answers for later times are incomplete. While windows of the tenant are refused,
// the time stays at the end of the last counted window.
func (a *Aggregator) FoldedThrough(tenant string) (ms int64) {
	ms = a.stamp.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pending[tenant]; p.Refused {
		ms = min(ms, p.refusedFrom)
	}
	return ms
}

// Series yields the restored series. Call it at the start, before Run.
func (a *Aggregator) Series() iter.Seq[tile.Held] { return a.shards.Series() }

// Kinds returns, for each key of series.AppendKey, the kind of the total with the key's labels.
// That may be another kind than the key's. The kind is 0 if no total has these labels.
func (a *Aggregator) Kinds(tenant string, keys [][]byte) []series.Kind {
	return a.shards.Kinds(tenant, keys)
}

// TenantSeries returns how many series of a tenant have totals. It visits all shards.
func (a *Aggregator) TenantSeries(tenant string) int { return a.shards.TenantLen(tenant) }

// Live returns the points of a tenant's matching series in open tiles, from mint to maxt inclusive,
// Unix milliseconds.
func (a *Aggregator) Live(tenant string, w tile.Width, mint, maxt int64,
	matchers []*labels.Matcher) ([]tile.Live, error) {
	return a.shards.Live(tenant, w, a.FoldedThrough(tenant), mint, maxt, matchers), nil
}
