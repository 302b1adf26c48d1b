package aggregator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/settings"
)

// gate is a journal that can delay an append, so that pushes wait behind it.
type gate struct {
	Journal

	mu      sync.Mutex
	opened  chan struct{} // appends wait until this channel is closed; if nil, they do not wait
	appends [][]uint64    // for each append, the sequence numbers of its batches
	syncs   int
}

func (g *gate) Append(frames []journal.Frame) (journal.Position, error) {
	var sequences []uint64
	for _, f := range frames {
		if f.Type == frameBatch {
			h, _ := batch.ParseHeader(f.Payload)
			sequences = append(sequences, h.Sequence)
		}
	}
	g.mu.Lock()
	opened := g.opened
	if len(sequences) > 0 {
		g.appends = append(g.appends, sequences)
	}
	g.mu.Unlock()
	if opened != nil {
		<-opened
	}
	return g.Journal.Append(frames)
}

func (g *gate) Sync() error {
	g.mu.Lock()
	g.syncs++
	g.mu.Unlock()
	return g.Journal.Sync()
}

// shut makes the next appends wait, and forgets earlier appends.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened, g.appends, g.syncs = make(chan struct{}), nil, 0
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opened)
	g.opened = nil
}

// startGated starts a process whose journal is in a new directory, behind a gate.
func startGated(t *testing.T, w Writer, change func(*Options)) (*process, *gate) {
	t.Helper()
	fs, err := files.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log, _, err := journal.Open(fs, journal.Options{Mark: 1})
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Journal: log}
	return startFrom(t, g, w, time.Now, change), g
}

// pushTogether pushes all windows in order, and returns the answers. Meanwhile the gate delays the
// append of the first window.
func (p *process) pushTogether(g *gate, all [][]batch.Batch) []error {
	answers := make([]error, len(all))
	var wg sync.WaitGroup
	g.shut()
	for i, batches := range all {
		wg.Go(func() { answers[i] = p.Push(p.t.Context(), batches) })
		synctest.Wait()
	}
	g.open()
	wg.Wait()
	return answers
}

// All waiting pushes share one append, in order. If each acknowledgement waits for an fsync, they also
// share one fsync.
func TestWhatWaitsIsOneAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		s := newStore(t)
		p, g := startGated(t, s, func(o *Options) { o.Config.Fsync = settings.FsyncCommit })
		var all [][]batch.Batch
		first := sequence + 1
		for i := range n {
			all = append(all, []batch.Batch{p.batch(time.Now(), fmt.Sprint("a", i%3), 1)})
		}
		if err := errors.Join(p.pushTogether(g, all)...); err != nil {
			t.Error(err)
		}
		if len(g.appends) != 2 || g.syncs != 2 || len(g.appends[0]) != 1 || len(g.appends[1]) != n-1 {
			t.Fatalf("%d waiting pushes caused %d appends and %d syncs, want 1 each: %v",
				n-1, len(g.appends)-1, g.syncs-1, g.appends)
		}
		for i, sequence := range slices.Concat(g.appends...) {
			if sequence != first+uint64(i) {
				t.Fatalf("the appends have the pushes in another order: %v", g.appends)
			}
		}
		time.Sleep(20 * time.Second)
		checkCounter(t, s, "a0", 34)
		checkCounter(t, s, "a1", 33)
		p.terminate()
	})
}

// The size of an append is bounded, however many pushes wait. So the first push waits for one append of
// limited size.
func TestAnAppendIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := startGated(t, newStore(t), func(*Options) {})
		var all [][]batch.Batch
		for range 20 {
			b := p.batch(time.Now(), "a", 1)
			b.Bytes = append(b.Bytes, make([]byte, appendBytes/4)...) // damage that nothing notices before the append
			all = append(all, []batch.Batch{b})
		}
		p.pushTogether(g, all)
		for _, sequences := range g.appends[1:] {
			if len(sequences) > 4 {
				t.Errorf("one append has %d pushes, each a fourth of the bound, want at most 4", len(sequences))
			}
		}
		if len(g.appends) != 1+5 {
			t.Errorf("the pushes caused %d appends, want 6: %v", len(g.appends), g.appends)
		}
		p.terminate()
	})
}

// Pushes that share an append have the same answers, books and stored samples as pushes with an append
// each. No push suffers from another push with a full tenant, a repeat, a newer version, or a damaged or
// too large batch.
func TestTogetherIsAsAlone(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			alone, fates := playPushes(t, seed, func(p *process, _ *gate, all [][]batch.Batch) (answers []error) {
				for _, batches := range all {
					answers = append(answers, p.Push(p.t.Context(), batches))
				}
				return answers
			})
			together, _ := playPushes(t, seed, func(p *process, g *gate, all [][]batch.Batch) []error {
				answers := p.pushTogether(g, all)
				if len(g.appends) > len(all)/2 {
					t.Errorf("%d appends for just %d pushes", len(g.appends), len(all))
				}
				return answers
			})
			if alone != together {
				t.Errorf("alone:\n%s\ntogether:\n%s", alone, together)
			}
			for _, fate := range []string{"written", "full", "newer", "too large"} {
				if fates[fate] == 0 {
					t.Errorf("no push has the fate %q: %v", fate, fates)
				}
			}
		})
	}
}

// playPushes makes the pushes that the seed decides, and returns everything that can be observed.
func playPushes(t *testing.T, seed uint64,
	push func(p *process, g *gate, all [][]batch.Batch) []error) (seen string, fates map[string]int) {
	fates = map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := &partly{store: newStore(t), tenant: "b", widths: bothWidths}
		p, g := startGated(t, s, func(o *Options) { o.MaxPending = 2000 })
		s.breakIt(false)
		for range 500 { // enough to make tenant b full
			_ = p.countOf(1, "default", "b")
			time.Sleep(time.Second)
		}
		rng := rand.New(rand.NewPCG(seed, 3))
		var all [][]batch.Batch
		for i := range 60 {
			name := fmt.Sprint("n", rng.IntN(4))
			var batches []batch.Batch
			switch rng.IntN(8) {
			case 0:
				batches = p.countsOf(1, "b")
			case 1:
				batches = p.countsOf(1, "default", "b", "other")
			case 2:
				if i > 10 {
					batches = all[10+rng.IntN(i-10)]
				}
			case 3:
				b := p.batch(time.Now(), name, 1)
				b.Bytes[0] = 99 // the version
				batches = append(p.countsOf(1, "default"), b)
			case 4:
				b := p.batch(time.Now(), name, 1)
				b.Bytes = b.Bytes[:len(b.Bytes)-rng.IntN(5)]
				batches = []batch.Batch{b}
			default:
				batches = append(p.countsOf(1, "default"), p.batch(time.Now(), name, 1))
			}
			if i == 5 || i == 6 || i == 9 {
				b := p.batch(time.Now(), name, 1)
				b.Bytes = append(b.Bytes, make([]byte, journal.MaxPayload)...)
				batches = append(p.countsOf(1, "default"), b)
			}
			all = append(all, batches)
		}
		for i, err := range push(p, g, all) {
			fmt.Fprintf(&out, "push %d: %v\n", i, err)
			var full *batch.FullError
			switch {
			case err == nil:
				fates["written"]++
			case errors.As(err, &full):
				fates["full"]++
			case errors.Is(err, batch.ErrNewer):
				fates["newer"]++
			case errors.Is(err, journal.ErrTooLarge) && errors.Is(err, batch.ErrRefused):
				fates["too large"]++
			default:
				t.Errorf("push %d: %v", i, err)
			}
		}
		p.Through(time.Now().UnixMilli())
		for _, tenant := range []string{"default", "b", "other"} {
			fmt.Fprintf(&out, "books of %s: %+v; counted through %d\n", tenant, p.books(tenant), p.FoldedThrough(tenant))
		}
		s.mend()
		time.Sleep(time.Minute)
		p.terminate() // after this nothing writes to the store
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		for _, key := range slices.Sorted(maps.Keys(s.byKey)) {
			fmt.Fprintln(&out, key, s.byKey[key])
		}
		seen = out.String()
	})
	return seen, fates
}

// Each of several concurrent producers pushes its next window as soon as its last one is acknowledged.
// If each acknowledgement waits for the disk, the producers share fsyncs. If none waits, a shared append
// must not cost time. Bound with 64 producers and fsync=commit: at most 0.5 appends per push.
func BenchmarkPush(b *testing.B) {
	for _, fsync := range []string{settings.FsyncInterval, settings.FsyncCommit} {
		for _, producers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("fsync=%s/producers=%d", fsync, producers), func(b *testing.B) {
				benchmarkPush(b, fsync, producers)
			})
		}
	}
}

func benchmarkPush(b *testing.B, fsync string, producers int) {
	fs, err := files.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	log, _, err := journal.Open(fs, journal.Options{Mark: 1})
	if err != nil {
		b.Fatal(err)
	}
	counted := &appends{Journal: log}
	config := settings.DefaultAggregator()
	config.Fsync = fsync
	a, err := New(Options{Config: config, MaxPending: 1 << 30, Log: counted, Writer: nowhere{}, Ledger: ledger.New(),
		Now:      time.Now,
		Registry: prometheus.NewRegistry(), Logger: discard})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	pushes := make(chan struct{}, producers)
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for producer := range producers {
		wg.Go(func() {
			key := series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", fmt.Sprint("a", producer)))
			h := batch.Header{
				Tenant: []byte("default"), Shard: series.Shard("default", key), Producer: uint64(producer), Incarnation: 1,
			}
			inc := batch.Increment{Key: key, Samples: 1, Value: 1}
			var buf []byte
			for range pushes {
				h.Sequence++
				h.Second = time.Now().Unix()
				buf = inc.Append(batch.Begin(buf[:0], &h), h.Second)
				batch.End(buf, 1)
				if err := a.Push(ctx, []batch.Batch{{Shard: h.Shard, Bytes: buf, Samples: 1}}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	for b.Loop() {
		pushes <- struct{}{}
	}
	close(pushes)
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(counted.n.Load())/float64(b.N), "appends/op")
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

// appends counts the appends of a journal.
type appends struct {
	Journal
	n atomic.Int64
}

func (a *appends) Append(frames []journal.Frame) (journal.Position, error) {
	a.n.Add(1)
	return a.Journal.Append(frames)
}

// nowhere is a store that accepts everything.
type nowhere struct{}

func (nowhere) Sync(context.Context) error { return nil }

func (nowhere) WriteTiles(_ context.Context, _ string, _ tile.Width, _ []tile.Sample) (w tile.Written, err error) {
	return w, nil
}
