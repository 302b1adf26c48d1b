package aggregator

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/notes"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tenants"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/retry"
	"github.com/freshet-io/freshet/internal/lib/wallclock"
	"github.com/freshet-io/freshet/internal/settings"
	"github.com/freshet-io/freshet/internal/tiling"
)

// Aggregator is the role's state. Only Run changes the shards. Other goroutines only read open
// tiles, and briefly.
type Aggregator struct {
	config     settings.Aggregator
	maxPending int64
	tiles      tile.Config
	log        Journal
	writer     Writer
	books      tiling.Books
	watch      *stage.Watch
	now        func() time.Time
	logger     *slog.Logger
	metrics    *tiling.Metrics

	*tiling.Open
	shards  *tile.Shards // of Open
	wall    *wallclock.Clock
	pushes  chan *push
	held    *push       // the first waiting push, or nil
	written chan *write // writes that came back from the stores
	halts   chan struct{}
	ended   chan struct{} // closed when Run returns
	tenants *tenants.Gate
	saidAt  time.Time // when the log last said that a tenant is not admitted
	stored  *notes.Stored
	last    journal.Position // of the newest frame
	applied atomic.Uint64    // the same, for other goroutines
	writes  context.Context  // the context of all writes, until Run returns

	backlogs map[string]*backlog // by tenant; only tenants that wait for a store have one
	full     int                 // number of backlogs without room for more

	positions [series.Shards]journal.Position // the last frame of each shard

	frames     []journal.Frame // frames of the current append; memory is reused
	entered    []string        // tenants of these frames; they keep their places until the append
	boundaries []byte          // payloads of boundary frames; memory is reused
	checkpoint *checkpoint     // the checkpoint in progress, or nil
	lastSaved  time.Time       // when the last checkpoint began
	savedSize  int64           // bytes of the last checkpoint of this process; 0 if there was none
	saveAgain  time.Time       // after a failed checkpoint, the earliest start of the next one
	savePause  retry.Backoff

	unsyncedBytes int64 // the constant of the same name, except in tests
}

// Options are the parts of an aggregator. All fields but Tenants, Watch and Boot are required.
type Options struct {
	Config     settings.Aggregator
	MaxPending int64 // bytes that may wait for a tenant's stores; at this limit its new windows are refused
	Log        Journal
	Writer     Writer
	Tenants    *tenants.Gate // may be nil
	Ledger     tiling.Ledger
	Watch      *stage.Watch // may be nil
	Boot       string       // names the present boot of the machine; if empty, nothing is noted as stored
	Now        func() time.Time
	Registry   prometheus.Registerer
	Logger     *slog.Logger
}

// New restores the shards from the journal. It starts nothing.
func New(o Options) (*Aggregator, error) {
	a := &Aggregator{
		config: o.Config,
		tiles: tile.Config{
			CounterTTL: o.Config.CounterTTL, GaugeTTL: o.Config.GaugeTTL, CheckTTL: o.Config.CheckTTL,
			UpDownTTL:  o.Config.UpDownTTL,
			OutOfOrder: o.Config.TimedWindow,
		},
		log:     o.Log,
		writer:  o.Writer,
		watch:   o.Watch,
		now:     o.Now,
		logger:  o.Logger,
		pushes:  make(chan *push),
		written: make(chan *write),
		halts:   make(chan struct{}),
		ended:   make(chan struct{}),

		tenants:    o.Tenants,
		maxPending: o.MaxPending,
		savePause:  retry.Backoff{Min: savePause, Max: maxSavePause},
		backlogs:   map[string]*backlog{},

		unsyncedBytes: unsyncedBytes,
	}
	a.shards = tile.NewShards(&a.tiles)
	a.Open = tiling.NewOpen(a.shards)
	a.metrics = tiling.NewMetrics(o.Registry)
	a.books = tiling.Books{Ledger: o.Ledger, Metrics: a.metrics}
	a.Register(o.Registry, a.now, a.log.Size)
	var err error
	if a.stored, err = notes.ReadStored(o.Log, o.Boot); err != nil {
		o.Logger.Warn("the file of notes, which says what the stores already have, cannot be read: this start may write "+
			"samples to the stores again", "error", err)
	}
	if err := a.restore(); err != nil {
		return nil, fmt.Errorf("restore from the journal: %w", err)
	}
	a.rewriteNotes(0)
	a.countUnsynced()
	a.Looked(a.now())
	a.applied.Store(uint64(a.last))
	return a, nil
}

// Restore returns the shards that have had frames, in their state at the end of the journal. A group
// then takes over these shards. Restore posts nothing in the ledger and counts nothing. It does not
// close the journal.
func Restore(o Options) (*tile.Shards, error) {
	o.Ledger, o.Registry = ledger.New(), prometheus.NewRegistry()
	a, err := New(o)
	if err != nil {
		return nil, err
	}
	shards := tile.NewShards(&a.tiles)
	for number, last := range a.positions {
		if last > 0 {
			shards.Begin(uint16(number), a.shards.Of(uint16(number)))
		}
	}
	return shards, nil
}

// Run counts pushed windows and closes due tiles until ctx is done. Then it checkpoints the open
// tiles. The next process completes these tiles, so that each tile is written only once. The caller
// must stop pushes before ctx is done. A write that hangs in a store may still run when Run returns.
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
	a.wall = wallclock.New(a.now, a.logger)
	a.resume()
	for {
		pushes, givenUp := a.line()
		select {
		case a.held = <-pushes:
		case <-givenUp:
			a.countHeld()
		case w := <-a.written:
			a.settle(w)
			a.writeDue()
			a.flushDue()
		case <-ticker.C:
			a.flushDue()
			a.writeDue()
			a.saveSome()
		case <-a.halts:
			<-ctx.Done()
			return a.stop()
		case <-ctx.Done():
			return a.stop()
		}
		a.countWaiting()
	}
}

// Applied returns the position of the newest frame.
func (a *Aggregator) Applied() uint64 { return a.applied.Load() }

// Halt stops all work of Run until Run's context ends. A process that takes over then finds
// everything that was journalled, and the ledger agrees with the journal.
func (a *Aggregator) Halt() {
	select {
	case a.halts <- struct{}{}:
	case <-a.ended:
	}
}
