package aggregator

import (
	"iter"
	"slices"
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
// Only one collector pushes windows. With several, each would have a stamp, and the oldest
// would count.
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
func (a *Aggregator) Series() iter.Seq[tile.Held] {
	return func(yield func(tile.Held) bool) {
		for i := range a.shards {
			for held := range a.shards[i].tiles.Series() {
				if !yield(held) {
					return
				}
			}
		}
	}
}

// Kinds returns, for each key of series.AppendKey, the kind of the total with the key's labels.
// That may be another kind than the key's. The kind is 0 if no total has these labels.
func (a *Aggregator) Kinds(tenant string, keys [][]byte) []series.Kind {
	kinds := make([]series.Kind, len(keys))
	for i, key := range keys {
		kinds[i] = a.kind(tenant, key)
	}
	return kinds
}

func (a *Aggregator) kind(tenant string, key []byte) series.Kind {
	if a.holds(tenant, key) {
		return series.Kind(key[0])
	}
	other := slices.Clone(key) // a key is a kind, then the labels
	for kind := series.Counter; kind <= series.LastKind; kind++ {
		if other[0] = byte(kind); other[0] != key[0] && a.holds(tenant, other) {
			return kind
		}
	}
	return 0
}

func (a *Aggregator) holds(tenant string, key []byte) bool {
	s := &a.shards[series.Shard(tenant, key)]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tiles.Holds(tenant, key)
}

// TenantSeries returns how many series of a tenant have totals. It visits all shards.
func (a *Aggregator) TenantSeries(tenant string) (n int) {
	for i := range a.shards {
		s := &a.shards[i]
		s.mu.Lock()
		n += s.tiles.TenantLen(tenant)
		s.mu.Unlock()
	}
	return n
}

// Live returns the points of a tenant's matching series in open tiles, from mint to maxt inclusive,
// Unix milliseconds.
func (a *Aggregator) Live(tenant string, w tile.Width, mint, maxt int64,
	matchers []*labels.Matcher) ([]tile.Live, error) {
	var out []tile.Live
	stamp := a.FoldedThrough(tenant)
	for i := range a.shards {
		s := &a.shards[i]
		s.mu.Lock()
		if maxt < s.tiles.Since(tenant)-a.reach() {
			s.mu.Unlock()
			continue // stored samples are enough for a query of the past
		}
		found := s.tiles.Live(tenant, w, stamp, maxt, matchers)
		s.mu.Unlock()
		for _, l := range found {
			if l.Points = between(l.Points, mint, maxt); len(l.Points) > 0 {
				out = append(out, l)
			}
		}
	}
	return out, nil
}

// reach returns how far before the boundary points of open tiles may lie, in milliseconds: a new
// series has a zero at the start of its minute, and a gauge may have its sender's time.
func (a *Aggregator) reach() int64 {
	return a.config.TimedWindow.Milliseconds() + 2*tile.Width1m.Millis()
}

func between(points []tile.Point, mint, maxt int64) []tile.Point {
	for len(points) > 0 && points[0].T < mint {
		points = points[1:]
	}
	for len(points) > 0 && points[len(points)-1].T > maxt {
		points = points[:len(points)-1]
	}
	return points
}
