// Package tiling has the code that the two roles that make tiles share: the answers about open tiles,
// our own metrics, and the books. A process has one of these roles: either role/aggregator or
// role/group.
package tiling

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/changes"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// clockSlack is how far a window may end ahead of the last clock reading. The goroutine that counts
// windows reads the clock once a tick. So the reading may be as old as one tick plus the time that the
// work of the tick takes.
const clockSlack = time.Second

// Open answers questions about the tiles that are in no store yet. Any goroutine may call it.
type Open struct {
	replays
	Shards *tile.Shards

	stamp  atomic.Int64 // Unix ms, end of the last complete window
	looked atomic.Int64 // Unix ms of the last clock reading that was believed

	mu      sync.Mutex
	pending map[string]Pending
}

// Pending describes the samples that wait for the stores of a tenant.
type Pending struct {
	Samples uint64 // values on the wire
	Bytes   int64  // the approximate memory that they take
	Since   int64  // Unix ms, end of the oldest tile that waits
	Err     error  // why the tiles are not stored; nil if a write is in progress
	Refused bool   // windows are refused, since too many samples wait

	RefusedFrom int64 // Unix ms, the start of the first refused window
}

// NewOpen returns an Open for the tiles of shards.
func NewOpen(shards *tile.Shards) *Open { return &Open{Shards: shards, pending: map[string]Pending{}} }

// Looked notes a clock reading that is believed.
func (o *Open) Looked(now time.Time) { o.looked.Store(now.UnixMilli()) }

// Through notes that all windows that end at or before `t`, Unix milliseconds, are counted. Queries
// of open tiles are then answered up to `t`. So if the collector, a push or the counting stalls,
// answers end earlier; they never give an old value a recent time. A gauge without new values is
// answered up to the present, since the collector reports empty windows, too.
//
// Only one collector pushes windows. With several collectors, each would need its own time, and the
// earliest time would count.
func (o *Open) Through(t int64) { o.Raise(min(t, o.looked.Load()+clockSlack.Milliseconds())) }

// Raise notes that all windows up to a time are counted, according to a restored state.
func (o *Open) Raise(ms int64) {
	for {
		old := o.stamp.Load()
		if ms <= old || o.stamp.CompareAndSwap(old, ms) {
			return
		}
	}
}

// FoldedThrough returns the time, Unix milliseconds, up to which all pushed windows of a tenant are
// counted. Live's answers for later times are incomplete. While windows of the tenant are refused,
// the time stays at the end of the last counted window.
func (o *Open) FoldedThrough(tenant string) (ms int64) {
	ms = o.stamp.Load()
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.pending[tenant]; p.Refused {
		ms = min(ms, p.RefusedFrom)
	}
	return ms
}

// SetPending notes what waits for a tenant's stores.
func (o *Open) SetPending(tenant string, p Pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.Samples == 0 && p.Since == 0 {
		delete(o.pending, tenant)
		return
	}
	if p.Refused {
		o.Shards.Changes(tenant).Note(p.RefusedFrom - tile.Width1m.Millis()) // the answers about open tiles now end there
	}
	o.pending[tenant] = p
}

// Pending returns what waits for the stores, by tenant.
func (o *Open) Pending() map[string]Pending {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string]Pending, len(o.pending))
	for tenant, p := range o.pending {
		all[tenant] = p
	}
	return all
}

// Series yields the series that were restored. Call it at the start, before Run.
func (o *Open) Series() iter.Seq[tile.Held] { return o.Shards.Series() }

// Kinds returns, for each key of series.AppendKey, the kind of the total with the key's labels. It may
// differ from the kind in the key, and is 0 if no total has these labels.
func (o *Open) Kinds(tenant string, keys [][]byte) []series.Kind { return o.Shards.Kinds(tenant, keys) }

// TenantSeries returns how many series of a tenant have totals. It visits all shards.
func (o *Open) TenantSeries(tenant string) int { return o.Shards.TenantLen(tenant) }

// Current returns at once, since a single machine has all samples that it acknowledged.
func (o *Open) Current(context.Context, string) error { return nil }

// FinalBefore returns a time before which open tiles do not change what queries see of a tenant, Unix milliseconds,
// except for what Changes says.
func (o *Open) FinalBefore(tenant string) int64 {
	return o.Shards.FinalBefore(tenant, o.FoldedThrough(tenant))
}

// Changes has what queries of a tenant see otherwise than before, behind the time of FinalBefore.
func (o *Open) Changes(tenant string) *changes.Log { return o.Shards.Changes(tenant) }

// Live returns the points of a tenant's matching series in open tiles, from `mint` to `maxt`
// inclusive, Unix milliseconds.
func (o *Open) Live(tenant string, w tile.Width, mint, maxt int64, matchers []*labels.Matcher) ([]tile.Live, error) {
	return o.Shards.Live(tenant, w, o.FoldedThrough(tenant), mint, maxt, matchers), nil
}
