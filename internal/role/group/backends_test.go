package group

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// backends note what is forwarded. They have sent everything that is in their queue.
type backends struct {
	mu sync.Mutex
	toBackends
}

type toBackends struct {
	requests []entry.Span
	tiles    []entry.Span // of 10 s
	samples  int          // of all tiles
	leads    bool
	settled  uint64
	reached  uint64
}

func (b *backends) ForwardTiles(from entry.Span, _ string, width tile.Width, samples []tile.Sample) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if width == tile.Width10s {
		b.tiles = append(b.tiles, from)
	}
	b.samples += len(samples)
	b.reached = max(b.reached, from.Last)
}

func (b *backends) ForwardRequest(from entry.Span, _ string, version int, parts outcome.Counts, body []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if version == 2 && parts.Samples == 1 && len(body) > 0 {
		b.requests = append(b.requests, from)
	}
	b.reached = max(b.reached, from.Last)
}

func (b *backends) Lead(leads bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leads = leads
}

func (b *backends) Settle(of func(string) uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled = of("mimir")
}

func (b *backends) Reached(unstored uint64) map[string]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return map[string]uint64{"mimir": min(b.reached, unstored-1)}
}

func (b *backends) look() toBackends {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.toBackends
	all.requests, all.tiles = slices.Clone(b.requests), slices.Clone(b.tiles)
	return all
}

// Requests and tiles are forwarded once stores have them, each with its entry. Requests and tiles that
// wait for a hanging store are not forwarded, and the log notes no entry behind them. A restart knows
// what was noted, and repeats the requests that the stores were not known to have.
func TestWhatIsStoredIsForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, s, b := memfs.New(), newStores(t), new(backends)
		with := func(o *Options) { o.Backends = b }
		p := start(t, fs, s, with)
		write := func(tenant string, v float64) {
			t.Helper()
			if _, err := p.Write(t.Context(), request(t, tenant, "r", time.Now(), v)); err != nil {
				t.Error(err)
			}
		}
		write("a", 1)
		one := b.look()
		if len(one.requests) != 1 || !one.leads || one.requests[0].First != one.requests[0].Last {
			t.Fatalf("forwarded: %+v", one)
		}
		time.Sleep(2 * noteEvery)
		if got := b.look(); got.settled != one.requests[0].Last {
			t.Errorf("the log notes entry %d, want the last entry of %+v", got.settled, one.requests)
		}
		ends := p.Applied()
		time.Sleep(5 * noteEvery)
		if p.Applied() != ends {
			t.Errorf("%d entries were added to the log, but there was nothing to note", p.Applied()-ends)
		}

		s.make("b", true, nil) // its store hangs
		go func() { _, _ = p.Write(t.Context(), request(t, "b", "r", time.Now(), 1)) }()
		synctest.Wait()
		before := p.node.State().Index()
		write("a", 2)
		p.mustCount("a", "c", 1)
		time.Sleep(20 * time.Second) // its tile closes
		got := b.look()
		if len(got.requests) != 2 || got.requests[1].Last <= before || got.requests[1].First != before {
			t.Errorf("the store of tenant b lacks entry %d: requests %+v were forwarded, want two, of which the second "+
				"begins there and ends behind it", before, got.requests)
		}
		if len(got.tiles) == 0 || got.samples == 0 {
			t.Errorf("no tile is forwarded: %+v", got)
		}
		if got.settled != before-1 {
			t.Errorf("the log notes entry %d, though a store lacks entry %d", got.settled, before)
		}

		fs = p.kill(crash)
		if b.look().leads {
			t.Error("a process that has ended still sends")
		}
		s.make("b", false, nil)
		next := new(backends)
		p = start(t, fs, s, func(o *Options) { o.Backends = next })
		synctest.Wait()
		time.Sleep(2 * noteEvery)
		if got := next.look(); got.settled < before || len(got.requests) != 1 || got.requests[0].Last != before {
			t.Errorf("after a restart, the forwarded requests are %+v, want only entry %d, which the store lacked",
				got, before)
		}
		p.terminate()
	})
}
