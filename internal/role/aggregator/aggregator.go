// Package aggregator is the role that turns window batches into tiles: it
// journals each batch before it counts, closes tiles when they are due, hands
// their samples to the stores, and checkpoints. What a tile is, is core/tile's
// business; what a journal is, core/journal's.
package aggregator

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/settings"
)

// Writer stores the samples of closed tiles.
type Writer interface {
	// WriteTiles stores samples of one width. After an error none counts as stored, and
	// they are written again. The same samples may be written again and are then
	// the same.
	WriteTiles(ctx context.Context, tenant string, width tile.Width, samples []tile.Sample) (tile.Written, error)
}

// Ledger keeps the books of samples.
type Ledger interface {
	Post(tenant string, transfers ...ledger.Transfer)
	Note(tenant string, which ledger.OfWhich, samples uint64)
}

// tick is how often the aggregator looks for tiles that are due. Each look costs the
// same whatever is due, and each flush a commit of the stores.
const tick = 250 * time.Millisecond

// spread is the time over which the shards close the same tile, one after the
// other, so that a flush of many series is no burst.
const spread = 4 * time.Second

// Options is what an aggregator is made of. All fields are needed but Watch.
type Options struct {
	Config     settings.Aggregator
	MaxPending int64 // bytes that may wait for the stores of one tenant; beyond, its new windows are refused
	Log        Journal
	Writer     Writer
	Ledger     Ledger
	Watch      *stage.Watch // nil for none
	Now        func() time.Time
	Registry   prometheus.Registerer
	Logger     *slog.Logger
}

// Aggregator is the role's state. The shards belong to Run, but for short looks
// at open tiles.
type Aggregator struct {
	config     settings.Aggregator
	maxPending int64
	tiles      tile.Config
	log        Journal
	writer     Writer
	ledger     Ledger
	watch      *stage.Watch
	now        func() time.Time
	logger     *slog.Logger
	metrics    *metrics

	shards  [series.Shards]shard
	stamp   atomic.Int64 // Unix ms, end of the last complete window
	clock   atomic.Int64 // Unix ms, when Run last looked at a clock that it believes
	pushes  chan push
	written chan *write // came back from the stores
	halts   chan struct{}
	ended   chan struct{}   // closed when Run returns
	writes  context.Context // of all writes, until Run returns

	backlogs map[string]*backlog // by tenant, of those that wait for a store
	full     int                 // of them have no room for more

	mu      sync.Mutex
	pending map[string]Pending // of backlogs, for those who ask

	frames     []journal.Frame // scratch of one Append
	boundaries []byte          // scratch, payloads of frames
	checkpoint *checkpoint     // being written, or nil
	lastSaved  time.Time       // when the last checkpoint was begun
}

// shard is a shard of tiles and the last journal frame that is in it.
type shard struct {
	mu       sync.Mutex // held by Run while it changes the tiles, and by those who look
	tiles    *tile.Shard
	position journal.Position
}

// push is a window on its way to Run.
type push struct {
	ctx     context.Context // of the caller, who waits for done
	batches []batch.Batch
	done    chan error
}

// New restores the shards from the journal. It starts nothing.
func New(o Options) (*Aggregator, error) {
	a := &Aggregator{
		config: o.Config,
		tiles: tile.Config{
			CounterTTL: o.Config.CounterTTL, GaugeTTL: o.Config.GaugeTTL, CheckTTL: o.Config.CheckTTL, UpDownTTL: o.Config.UpDownTTL,
			OutOfOrder: o.Config.TimedWindow,
		},
		log:     o.Log,
		writer:  o.Writer,
		ledger:  o.Ledger,
		watch:   o.Watch,
		now:     o.Now,
		logger:  o.Logger,
		pushes:  make(chan push),
		written: make(chan *write),
		halts:   make(chan struct{}),
		ended:   make(chan struct{}),

		maxPending: o.MaxPending,
		backlogs:   map[string]*backlog{},
		pending:    map[string]Pending{},
	}
	a.metrics = newMetrics(o.Registry, a)
	if err := a.restore(); err != nil {
		return nil, fmt.Errorf("restore from the journal: %w", err)
	}
	a.clock.Store(a.now().UnixMilli())
	return a, nil
}

// Push journals the batches of one window and counts them. When it returns nil
// they survive the death of the process. After a batch.FullError those of the tenants
// that it names are refused, and all others count. After an error other than that and
// batch.ErrUnsynced none of them counts; they should be pushed again after any but
// batch.ErrRefused. The batches may be used again afterwards.
func (a *Aggregator) Push(ctx context.Context, batches []batch.Batch) error {
	p := push{ctx, batches, make(chan error, 1)}
	select {
	case a.pushes <- p:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// Only Run knows whether it counts: to give up here could count it twice.
	return <-p.done
}

// Run counts what is pushed and closes what is due until ctx is done, then
// checkpoints the tiles still open: a tile is written once, whole, by whoever
// runs next. Those who push must have stopped before. What a store has taken hold of and
// does not give back may still run when Run returns: a write that hangs.
func (a *Aggregator) Run(ctx context.Context) error {
	defer close(a.ended)
	var stopWrites func()
	a.writes, stopWrites = context.WithCancel(context.WithoutCancel(ctx))
	defer stopWrites()
	var wg sync.WaitGroup
	wg.Go(func() { a.syncLoop(ctx) })
	defer wg.Wait()

	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	a.resume()
	begun, clock := time.Now(), newClock(a.now(), a.logger)
	believed := func() (now time.Time, ok bool) {
		now = a.now()
		if ok = clock.believe(now, time.Since(begun)); ok {
			a.clock.Store(now.UnixMilli())
		}
		return now, ok
	}
	var held *push // waits until the tiles before it are closed
	for {
		pushes, givenUp := a.pushes, (<-chan struct{})(nil)
		if held != nil {
			pushes, givenUp = nil, held.ctx.Done()
		}
		select {
		case p := <-pushes:
			held = &p
		case <-givenUp:
			// Whoever pushed cannot wait any longer, as at the end of a process. The
			// window may lie ahead of the open tiles: its samples then join the last
			// of them, which is better than to lose them.
			held.done <- a.fold(held, a.now())
			held = nil
		case w := <-a.written:
			a.settle(w)
			a.writeDue()
			if now, ok := believed(); ok {
				a.flushDue(now)
			}
		case <-ticker.C:
			now, ok := believed()
			if ok {
				a.flushDue(now)
			}
			a.writeDue()
			a.saveSome(now)
		case <-a.halts:
			<-ctx.Done()
			return a.stop()
		case <-ctx.Done():
			return a.stop()
		}
		if now, ok := believed(); ok && held != nil && !a.behind(now) {
			held.done <- a.fold(held, now)
			held = nil
		}
	}
}

// Halt ends all that Run does, until its context ends: what is journalled by then is
// what a process that takes over will find, and the ledger agrees with it.
func (a *Aggregator) Halt() {
	select {
	case a.halts <- struct{}{}:
	case <-a.ended:
	}
}

// clockSlack is how far a window may end ahead of the clock that Run looked at last, a tick
// ago and what the tick did.
const clockSlack = time.Second

// Through says that a sender's windows are all counted that end at or before t, Unix
// milliseconds. Open tiles are answered up to then: a sender, a push or Run itself that stalls
// is seen as age of the answers, and never as a fresh time on old values. A gauge that nobody
// touches is answered up to the present, since its empty windows are told of, too.
//
// There is one sender that pushes windows. With several the stamp is the least of theirs.
func (a *Aggregator) Through(_ uint64, t int64) {
	a.raiseStamp(min(t, a.clock.Load()+clockSlack.Milliseconds()))
}

func (a *Aggregator) raiseStamp(ms int64) {
	for {
		old := a.stamp.Load()
		if ms <= old || a.stamp.CompareAndSwap(old, ms) {
			return
		}
	}
}

// FoldedThrough is the time, Unix milliseconds, up to which all windows of a tenant that
// were pushed are counted: what Live says of later times, nobody knows yet. While windows of the
// tenant are refused it stays at the last one that was counted.
func (a *Aggregator) FoldedThrough(tenant string) (ms int64) {
	ms = a.stamp.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pending[tenant]; p.Refused {
		ms = min(ms, p.refusedFrom)
	}
	return ms
}

// Series yields the series that were restored. It is for those who start, before
// Run.
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

// Holds reports whether a series of a tenant, by its shard and the key of
// series.AppendKey, has a total.
func (a *Aggregator) Holds(tenant string, shard uint16, key []byte) bool {
	s := &a.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tiles.Holds(tenant, key)
}

// TenantSeries is how many series of a tenant have totals. It looks at all shards.
func (a *Aggregator) TenantSeries(tenant string) (n int) {
	for i := range a.shards {
		s := &a.shards[i]
		s.mu.Lock()
		n += s.tiles.TenantLen(tenant)
		s.mu.Unlock()
	}
	return n
}

// Live returns what the open tiles know of a tenant's series that match, between
// mint and maxt, Unix milliseconds, inclusive.
func (a *Aggregator) Live(tenant string, w tile.Width, mint, maxt int64, matchers []*labels.Matcher) ([]tile.Live, error) {
	var out []tile.Live
	stamp := a.FoldedThrough(tenant)
	for i := range a.shards {
		s := &a.shards[i]
		s.mu.Lock()
		if maxt < s.tiles.Since(tenant)-a.reach() {
			s.mu.Unlock()
			continue // a query of the past needs nothing that is not stored
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

// reach is how far, in milliseconds, open points may lie before the boundary: the
// zero of a new series at the start of its minute, and what senders stamped.
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
