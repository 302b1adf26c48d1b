package tile

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/changes"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Shards are all shards of a process. One goroutine changes them. Other goroutines may read them
// meanwhile, by the methods that say so.
type Shards struct {
	config  *Config
	all     [series.Shards]guarded
	changes [changeLogs]*changes.Log // by tenant
}

// changeLogs bounds the logs of changes. Tenants that share one only have more of their queries evaluated again.
const changeLogs = 64

// guarded is a shard with its lock. The goroutine that changes the shards takes the lock for each
// change, and other goroutines take it for each read.
type guarded struct {
	mu sync.Mutex
	*Shard
	used atomic.Bool // the shard has tenants; if not, readers need no lock
}

// changed ends a change.
func (g *guarded) changed() {
	g.used.Store(g.Shard != nil && len(g.tenants) > 0)
	g.mu.Unlock()
}

// NewShards returns shards that have not begun. All of them share `config`.
func NewShards(config *Config) *Shards {
	s := &Shards{config: config}
	for i := range s.changes {
		s.changes[i] = changes.New()
	}
	return s
}

// Changes has what queries of a tenant see otherwise than before, behind the time that FinalBefore returns. Other
// goroutines may call it.
func (s *Shards) Changes(tenant string) *changes.Log {
	return s.changes[xxhash.Sum64String(tenant)%changeLogs]
}

// Of returns a shard, or nil if the shard has not begun. It is for the goroutine that changes the
// shards.
func (s *Shards) Of(number uint16) *Shard { return s.all[number].Shard }

// Begin begins a shard, or replaces it by a restored one.
func (s *Shards) Begin(number uint16, shard *Shard) {
	g := &s.all[number]
	g.mu.Lock()
	defer g.changed()
	g.used.Store(shard != nil) // a query that takes a mark after the notes must wait for the lock
	for _, log := range s.changes {
		log.Note(changes.All)
	}
	g.Shard = shard
}

// Fold adds a batch to its shard. An error is batch.ErrNewer, or else it means that the batch is
// damaged. The readable part of a damaged batch is still added, if its header is readable or the shard
// has begun.
func (s *Shards) Fold(number uint16, b []byte) (h batch.Header, f Folded, err error) {
	return s.take(number, b, (*Shard).Fold)
}

// Refuse is Fold for a batch whose tenant is not admitted: see Shard.Refuse.
func (s *Shards) Refuse(number uint16, b []byte) (h batch.Header, f Folded, err error) {
	return s.take(number, b, (*Shard).Refuse)
}

// Left calls Shard.Left, if the shard has begun.
func (s *Shards) Left(number uint16, producer, incarnation uint64) {
	g := &s.all[number]
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Shard != nil {
		g.Shard.Left(producer, incarnation)
	}
}

func (s *Shards) take(
	number uint16, b []byte, do func(*Shard, []byte) (Folded, error),
) (h batch.Header, f Folded, err error) {
	h, err = batch.ParseHeader(b)
	if errors.Is(err, batch.ErrNewer) {
		return h, f, fmt.Errorf("a batch: %w; start that version", err)
	}
	g := &s.all[number]
	g.mu.Lock()
	defer g.changed()
	if g.Shard == nil {
		// The shard's first boundary is lost, or could not be proposed. So the shard begins at the window of the
		// batch. Only a boundary says how old a stamped gauge may be, and members have different
		// configurations, so none may be older than the boundary before the next one comes.
		if err != nil {
			return h, f, err
		}
		t := h.Second * 1000
		g.Shard = New(s.config, t-t%finest.Millis())
		g.timedWindow = 0
	}
	g.altered = noTime
	f, err = do(g.Shard, b)
	if g.altered != noTime {
		g.used.Store(true)                          // a query that takes a mark after the note must wait for the lock
		s.Changes(string(h.Tenant)).Note(g.altered) // the lock lets no query see the batch before
	}
	return h, f, err
}

// CloseUpTo closes the tiles of a shard up to `boundary`, one after the other. A shard without
// series has no tiles to close. A boundary at or before the last one does nothing. So boundaries
// may come twice, or from two processes that both decide about them. `index` is the place of the
// boundary in the log.
func (s *Shards) CloseUpTo(number uint16, index uint64, boundary int64, config *Config) (closed []Closed) {
	g := &s.all[number]
	g.mu.Lock()
	defer g.changed()
	if g.Shard == nil {
		g.Shard = New(s.config, boundary)
		g.Skip(boundary, config)
		return nil
	}
	for g.Closed() < boundary {
		if g.Skip(boundary, config) {
			return closed
		}
		next := g.Closed() + finest.Millis()
		if g.Rests() { // one tile is enough, since all of them would repeat the last one
			next = boundary
		}
		one := g.Close(next, config)
		for _, w := range one.Waiting {
			w.Index = index
		}
		closed = append(closed, one)
	}
	return closed
}

// Stored removes a tenant's samples up to `boundary` from a shard, once its stores have them.
func (s *Shards) Stored(number uint16, tenant string, boundary int64) {
	g := &s.all[number]
	g.mu.Lock()
	defer g.changed()
	g.Shard.Stored(tenant, boundary)
}

// AppendState appends the state of a shard to `dst`.
func (s *Shards) AppendState(number uint16, dst []byte) []byte {
	g := &s.all[number]
	g.mu.Lock() // AppendState sorts sets, which others may be reading
	defer g.mu.Unlock()
	return g.Shard.AppendState(dst)
}

// each is a loop that calls `fn` with every shard that has begun. The shard does not change during
// the call.
func (s *Shards) each(fn func(*Shard)) {
	for i := range s.all {
		g := &s.all[i]
		g.mu.Lock()
		if g.Shard != nil {
			fn(g.Shard)
		}
		g.mu.Unlock()
	}
}

// eachUsed is each for the shards that have tenants. Most queries are for series that no shard has.
func (s *Shards) eachUsed(fn func(*Shard)) {
	for i := range s.all {
		if g := &s.all[i]; g.used.Load() {
			g.mu.Lock()
			fn(g.Shard)
			g.mu.Unlock()
		}
	}
}

// Len returns the number of series held. Other goroutines may call it.
func (s *Shards) Len() (n int) {
	s.each(func(one *Shard) { n += one.Len() })
	return n
}

// TenantLen returns how many series of a tenant are held. Other goroutines may call it.
func (s *Shards) TenantLen(tenant string) (n int) {
	s.each(func(one *Shard) { n += one.TenantLen(tenant) })
	return n
}

// Raw returns how many values on the wire are in tiles, by tenant. Other goroutines may call it.
func (s *Shards) Raw() map[string]uint64 {
	held := map[string]uint64{}
	s.each(func(one *Shard) {
		for tenant, n := range one.Raw() {
			held[tenant] += n
		}
	})
	return held
}

// Unstored returns the end of each tenant's oldest tile that is not stored, in Unix ms. Other goroutines
// may call it.
func (s *Shards) Unstored() map[string]int64 {
	oldest := map[string]int64{}
	s.each(func(one *Shard) {
		for tenant, end := range one.Unstored() {
			if first, known := oldest[tenant]; !known || end < first {
				oldest[tenant] = end
			}
		}
	})
	return oldest
}

// Series yields each held series: see Shard.Series. The goroutine that changes the shards calls it.
func (s *Shards) Series() iter.Seq[Held] {
	return func(yield func(Held) bool) {
		for i := range s.all {
			if s.all[i].Shard == nil {
				continue
			}
			for held := range s.all[i].Series() {
				if !yield(held) {
					return
				}
			}
		}
	}
}

// Kinds returns, for each key of series.AppendKey, the kind of the tenant's total that has the key's
// labels: the key's own kind or another kind, or 0 if there is no such total. Other goroutines may call
// it.
func (s *Shards) Kinds(tenant string, keys [][]byte) []series.Kind {
	kinds := make([]series.Kind, len(keys))
	for i, key := range keys {
		kinds[i] = s.kind(tenant, key)
	}
	return kinds
}

func (s *Shards) kind(tenant string, key []byte) series.Kind {
	if s.holds(tenant, key) {
		return series.Kind(key[0])
	}
	other := slices.Clone(key) // a key is its kind, followed by the labels
	for kind := series.Counter; kind <= series.LastKind; kind++ {
		if other[0] = byte(kind); other[0] != key[0] && s.holds(tenant, other) {
			return kind
		}
	}
	return 0
}

func (s *Shards) holds(tenant string, key []byte) bool {
	g := &s.all[series.Shard(tenant, key)]
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.Shard != nil && g.Holds(tenant, key)
}

// FinalBefore returns a time in Unix milliseconds. What Live gives a tenant before this time stays as it is, except for
// Changes, and for samples that move to the stores. Without anything of the tenant it is math.MaxInt64. `stamp` is the
// one of Live. Other goroutines may call it.
func (s *Shards) FinalBefore(tenant string, stamp int64) int64 {
	t := int64(noTime)
	s.eachUsed(func(one *Shard) { t = min(t, one.finalBefore(tenant)) })
	if t == noTime {
		return noTime
	}
	return startOfMinute(min(t, stamp)) // a new series has its zero at the start of its widest tile
}

// Live returns the points of a tenant's matching series that are not stored yet, between `mint` and
// `maxt`, in Unix milliseconds and both included. For `stamp`, see Shard.Live. Other goroutines may call
// it.
func (s *Shards) Live(tenant string, w Width, stamp, mint, maxt int64, matchers []*labels.Matcher) (out []Live) {
	var found []Live
	s.eachUsed(func(one *Shard) {
		// Some samples in a shard are older than its tiles: the zero of a new series, at the start
		// of its minute, and gauges with a sender's time. A query that ends before these needs only
		// stored samples.
		if reach := s.config.OutOfOrder.Milliseconds() + 2*Width1m.Millis(); maxt >= one.Since(tenant)-reach {
			found = append(found, one.Live(tenant, w, stamp, maxt, matchers)...)
		}
	})
	for _, l := range found {
		if l.Points = between(l.Points, mint, maxt); len(l.Points) > 0 {
			out = append(out, l)
		}
	}
	return out
}

func between(points []Point, mint, maxt int64) []Point {
	for len(points) > 0 && points[0].T < mint {
		points = points[1:]
	}
	for len(points) > 0 && points[len(points)-1].T > maxt {
		points = points[:len(points)-1]
	}
	return points
}
