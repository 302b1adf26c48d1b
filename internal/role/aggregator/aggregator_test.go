package aggregator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/settings"
)

// store keeps the written samples, as a TSDB would, and refuses to change them.
type store struct {
	t      *testing.T
	mu     sync.Mutex
	byKey  map[string]map[int64]float64 // by width and labels
	synced map[string]map[int64]float64 // the samples that survive a power loss
	broken bool
	writes int
	again  int // how many samples were written a second time, with the same value
}

func newStore(t *testing.T) *store {
	return &store{t: t, byKey: map[string]map[int64]float64{}}
}

func (s *store) WriteTiles(_ context.Context, tenant string, w tile.Width,
	samples []tile.Sample) (written tile.Written, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return tile.Written{}, errors.New("no space left on device")
	}
	s.writes++
	for _, sample := range samples {
		key := fmt.Sprintf("%s %s %s", tenant, w, sample.Series.Labels)
		if s.byKey[key] == nil {
			s.byKey[key] = map[int64]float64{}
		}
		v := sample.V
		if sample.H != nil {
			v = sample.H.Count
		}
		if old, there := s.byKey[key][sample.T]; there && old != v && !value.IsStaleNaN(v) {
			s.t.Errorf("the sample of %s at %d was written as %g, and now as %g", key, sample.T, old, v)
		}
		if _, there := s.byKey[key][sample.T]; there {
			s.again++
		}
		s.byKey[key][sample.T] = v
		written.Stored.Add(&sample)
	}
	return written, nil
}

func (s *store) Sync(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = map[string]map[int64]float64{}
	for key, samples := range s.byKey {
		s.synced[key] = maps.Clone(samples)
	}
	return nil
}

// repeats returns how many samples were written again with the same value.
func (s *store) repeats() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.again
}

// losePower leaves only the synced samples.
func (s *store) losePower() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byKey = s.synced
	if s.byKey == nil {
		s.byKey = map[string]map[int64]float64{}
	}
}

func (s *store) setBroken(broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
}

// values returns a counter's samples in the 10s store, in order of time.
func (s *store) values(name string) (times []int64, values []float64) {
	return s.valuesOf("default", name)
}

func (s *store) valuesOf(tenant, name string) (times []int64, values []float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	samples := s.byKey[tenant+" 10s "+labels.FromStrings("__name__", name).String()]
	times = slices.Sorted(maps.Keys(samples))
	for _, t := range times {
		values = append(values, samples[t])
	}
	return times, values
}

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

// process is one run of an aggregator on a directory.
type process struct {
	*Aggregator
	t    *testing.T
	stop context.CancelFunc
	done chan error
}

func start(t *testing.T, dir string, w Writer, now func() time.Time) *process {
	t.Helper()
	return startWith(t, dir, w, now, func(*Options) {})
}

func startWith(t *testing.T, dir string, w Writer, now func() time.Time, change func(*Options)) *process {
	t.Helper()
	fs, err := files.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, fs, w, now, change)
}

func startOn(t *testing.T, fs segment.FS, w Writer, now func() time.Time, change func(*Options)) *process {
	t.Helper()
	o := Options{Config: settings.DefaultAggregator(), Boot: "boot"}
	change(&o)
	log, _, err := journal.Open(fs, journal.Options{Mark: 1, Boot: o.Boot})
	if err != nil {
		t.Fatal(err)
	}
	return startFrom(t, log, w, now, change)
}

func startFrom(t *testing.T, log Journal, w Writer, now func() time.Time, change func(*Options)) *process {
	t.Helper()
	o := Options{
		Config: settings.DefaultAggregator(), MaxPending: 1 << 20, Log: log, Writer: &mortal{Writer: w}, Ledger: ledger.New(),
		Now: now, Boot: "boot", Registry: prometheus.NewRegistry(), Logger: discard,
	}
	change(&o)
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	p := &process{Aggregator: a, t: t, stop: stop, done: make(chan error, 1)}
	go func() { p.done <- a.Run(ctx) }()
	return p
}

// terminate ends the process in the regular way.
func (p *process) terminate() {
	p.t.Helper()
	p.stop()
	if err := <-p.done; err != nil {
		p.t.Fatal(err)
	}
}

var sequence uint64

// count adds n to a counter, in the window of the present second.
func (p *process) count(name string, n float64) error { return p.countIn(p.now(), name, n) }

// countIn adds n to a counter, in the window of `second`.
func (p *process) countIn(second time.Time, name string, n float64) error {
	return p.Push(p.t.Context(), []batch.Batch{p.batch(second, name, n)})
}

// batch returns a batch that increments a counter by n, in the window of `second`.
func (p *process) batch(second time.Time, name string, n float64) batch.Batch {
	key := series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", name))
	return p.batchOf(second, batch.Increment{Key: key, Samples: 1, Value: n})
}

// batchOf returns a batch with one increment, in the window of `second`.
func (p *process) batchOf(second time.Time, inc batch.Increment) batch.Batch {
	shard := series.Shard("default", inc.Key)
	sequence++
	h := batch.Header{
		Tenant: []byte("default"), Shard: shard, Producer: 1, Incarnation: 1, Sequence: sequence, Second: second.Unix(),
		Birth: second.UnixNano(), UpDown: inc.Kind() == series.UpDown,
	}
	b := batch.Begin(nil, &h)
	b = inc.Append(b, h.Second)
	batch.End(b, 1)
	return batch.Batch{Shard: shard, Bytes: b}
}

func (p *process) mustCount(name string, n float64) {
	p.t.Helper()
	if err := p.count(name, n); err != nil {
		p.t.Fatal(err)
	}
}

// checkCounter checks that a stored counter never falls, has a sample in each tile, and ends at
// `total`.
func checkCounter(t *testing.T, s *store, name string, total float64) {
	t.Helper()
	checkCounterOf(t, s, "default", name, total)
}

func checkCounterOf(t *testing.T, s *store, tenant, name string, total float64) {
	t.Helper()
	times, values := s.valuesOf(tenant, name)
	if len(values) == 0 || values[0] != 0 {
		t.Fatalf("counter %s begins with %v, want a zero", name, values)
	}
	for i := 1; i < len(values); i++ {
		if values[i] < values[i-1] || times[i]-times[i-1] != 10_000 {
			t.Fatalf("counter %s: after the sample %g at %d comes %g at %d, want a value that is not smaller, 10 s "+
				"later",
				name, values[i-1], times[i-1], values[i], times[i])
		}
	}
	if got := values[len(values)-1]; got != total {
		t.Errorf("counter %s: %g is stored, want %g as counted", name, got, total)
	}
}

func TestTilesReachTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		p := start(t, t.TempDir(), s, time.Now)
		for range 35 {
			p.mustCount("a", 2)
			time.Sleep(time.Second)
		}
		time.Sleep(20 * time.Second)
		checkCounter(t, s, "a", 70)
		p.terminate()
	})
}

// The process ends and starts again every few seconds. Every tile is still whole, no tile is written
// with two values, and the total is exact.
func TestRestartsKeepTotals(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("kill=%t", kill), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, dir := newStore(t), t.TempDir()
				p := start(t, dir, s, time.Now)
				for i := range 60 {
					p.mustCount("a", 1)
					p.mustCount(fmt.Sprintf("b%d", i%7), 1)
					time.Sleep(time.Duration(300+i*37) * time.Millisecond)
					if i%5 != 4 {
						continue
					}
					if kill {
						dir = p.kill(dir)
					} else {
						p.terminate()
					}
					p = start(t, dir, s, time.Now)
				}
				time.Sleep(20 * time.Second)
				checkCounter(t, s, "a", 60)
				p.terminate()
			})
		})
	}
}

// kill ends the process like kill -9, and returns a copy of its directory. Goroutines of the process
// that still run reach neither the copy nor the store.
func (p *process) kill(dir string) (image string) {
	p.t.Helper()
	synctest.Wait()
	image = p.t.TempDir()
	if err := os.CopyFS(image, os.DirFS(dir)); err != nil {
		p.t.Fatal(err)
	}
	p.writer.(*mortal).dead.Store(true)
	p.terminate()
	return image
}

// mortal is the path from a process to the store. After the process is killed, all its writes fail.
type mortal struct {
	Writer
	dead atomic.Bool
}

func (m *mortal) WriteTiles(ctx context.Context, tenant string, w tile.Width,
	samples []tile.Sample) (tile.Written, error) {
	if m.dead.Load() {
		return tile.Written{}, errors.New("killed")
	}
	return m.Writer.WriteTiles(ctx, tenant, w, samples)
}

func TestAStoreThatIsDownLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		p := start(t, t.TempDir(), s, time.Now)
		for i := range 50 {
			s.setBroken(i >= 15 && i < 45)
			p.mustCount("a", 1)
			time.Sleep(time.Second)
		}
		time.Sleep(30 * time.Second)
		checkCounter(t, s, "a", 50)
		p.terminate()
	})
}

// While the clock is not believed, windows wait. A window still counts if its push cannot wait, as at
// the end of a process.
func TestAWindowThatCannotWaitCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leap atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(leap.Load())) }
		s := newStore(t)
		p := start(t, t.TempDir(), s, now)
		p.mustCount("a", 1)
		leap.Store(int64(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := p.Push(ctx, []batch.Batch{p.batch(time.Now(), "a", 1)}); err != nil || ctx.Err() == nil {
			t.Errorf("the push returned %v, or returned before its context ended, want no error and a wait until then",
				err)
		}
		leap.Store(0)
		time.Sleep(20 * time.Second)
		p.mustCount("a", 1)
		time.Sleep(20 * time.Second)
		checkCounter(t, s, "a", 3)
		p.terminate()
	})
}

// Queries read sets while a checkpoint sorts them. The race detector checks this.
func TestCheckpointsAndQueriesOfSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		p := start(t, dir, newStore(t), time.Now)
		ctx, stop := context.WithCancel(t.Context())
		var looking sync.WaitGroup
		for range 2 {
			looking.Go(func() {
				for ctx.Err() == nil {
					if _, err := p.Live("default", tile.Width1m, 0, 1<<60, nil); err != nil {
						t.Error(err)
					}
					time.Sleep(30 * time.Millisecond)
				}
			})
		}
		for second := range 12 {
			var batches []batch.Batch
			for n := range 20 {
				set := new(distinct.Set)
				for v := range 50 {
					set.Add(uint64(second*7919+v) * 0x9e3779b97f4a7c15)
				}
				key := series.AppendKey(nil, series.Set, labels.FromStrings("__name__", fmt.Sprint("s", n)))
				batches = append(batches, p.batchOf(time.Now(), batch.Increment{Key: key, Samples: 50, Set: set}))
			}
			if err := p.Push(ctx, batches); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		stop()
		looking.Wait()
		p.terminate()
		p = start(t, dir, newStore(t), time.Now)
		time.Sleep(2 * time.Second)
		if live, err := p.Live("default", tile.Width10s, 0, 1<<60, nil); err != nil || len(live) != 20 {
			t.Errorf("after the restart Live returns %d sets, want 20: %v", len(live), err)
		}
		p.terminate()
	})
}

// A gauge with its sender's timestamp is written once and is not repeated. A kill -9 before the gauge
// is stored must not lose it.
func TestAStampedGaugeSurvivesKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newStore(t), t.TempDir()
		p := start(t, dir, s, time.Now)
		key := series.AppendKey(nil, series.Gauge, labels.FromStrings("__name__", "g"))
		at := time.Now().Add(-7 * time.Minute).Unix()
		if err := p.Push(t.Context(),
			[]batch.Batch{p.batchOf(time.Now(), batch.Increment{Key: key, Samples: 1, Value: 5, Time: at})}); err != nil {
			t.Fatal(err)
		}
		s.setBroken(true)
		time.Sleep(20 * time.Second) // the gauge's tile is closed, but the store refuses the samples
		dir = p.kill(dir)
		s.setBroken(false)
		p = start(t, dir, s, time.Now)
		time.Sleep(5 * time.Second)
		if times, values := s.values("g"); len(values) != 1 || values[0] != 5 || times[0] != at*1000 {
			t.Errorf("stored %v at %v", values, times)
		}
		p.terminate()
	})
}

// A replay closes tiles by the times to live that were in force when the journal was written,
// whatever the present configuration is. Otherwise it would write different samples.
func TestReplayKeepsTheTimesToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newStore(t), t.TempDir()
		p := start(t, dir, s, time.Now)
		p.mustCount("other", 1) // the journal must not be empty
		time.Sleep(time.Second)
		p.mustCount("a", 100)
		time.Sleep(380 * time.Second) // after this time counter a has expired, in both widths
		p.mustCount("a", 1)
		time.Sleep(12 * time.Second)
		dir = p.kill(dir)
		p = startWith(t, dir, s, time.Now, func(o *Options) { o.Config.CounterTTL = time.Hour })
		time.Sleep(20 * time.Second)
		_, values := s.values("a")
		if last := values[len(values)-1]; last != 1 {
			t.Errorf("after a restart with another counter_ttl, the store has %v, want 1 at the end", values)
		}
		p.terminate()
	})
}

// A replay accepts or drops a timed gauge by the timed window that was in force when the gauge came.
// Otherwise it would lose an acknowledged gauge, or store a dropped one.
func TestReplayKeepsTheTimedWindow(t *testing.T) {
	for _, c := range []struct {
		was, is time.Duration
		stored  int
	}{{10 * time.Minute, time.Minute, 2}, {time.Minute, 10 * time.Minute, 0}} {
		t.Run(fmt.Sprint(c.was, " then ", c.is), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, dir := newStore(t), t.TempDir()
				window := func(d time.Duration) func(*Options) { return func(o *Options) { o.Config.TimedWindow = d } }
				p := startWith(t, dir, s, time.Now, window(c.was))
				key := series.AppendKey(nil, series.Gauge, labels.FromStrings("__name__", "g"))
				push := func(age time.Duration) {
					t.Helper()
					inc := batch.Increment{Key: key, Samples: 1, Value: 5, Time: time.Now().Add(-age).Unix()}
					if err := p.Push(t.Context(), []batch.Batch{p.batchOf(time.Now(), inc)}); err != nil {
						t.Fatal(err)
					}
				}
				push(7 * time.Minute)
				dir = p.kill(dir)
				p = startWith(t, dir, s, time.Now, window(c.is))
				// A new setting takes effect only at the shard's next boundary. So this gauge is judged
				// like the first one, even in a second replay.
				push(6 * time.Minute)
				dir = p.kill(dir)
				p = startWith(t, dir, s, time.Now, window(c.is))
				time.Sleep(20 * time.Second)
				if times, _ := s.values("g"); len(times) != c.stored {
					t.Errorf("%d gauges are stored, want %d", len(times), c.stored)
				}
				p.terminate()
			})
		})
	}
}

// A repeat of a batch changes no total. The metric of repeats counts it.
func TestRepeatedBatchesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		p := startWith(t, t.TempDir(), newStore(t), time.Now, func(o *Options) { o.Registry = registry })
		first := p.pushAs("default", p.now().Unix(),
			batch.Increment{
				Key: series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "a")), Samples: 2, Value: 2,
			})
		for range 3 {
			if err := p.Push(t.Context(), []batch.Batch{first}); err != nil {
				t.Fatal(err)
			}
		}
		if n := testutil.ToFloat64(p.metrics.Again); n != 3 {
			t.Errorf("%v repeats are counted, want 3", n)
		}
		if books := p.books("default"); books.Tile != 2 || books.Window != 0 || books.Difference != 0 {
			t.Errorf("the books are %+v", books)
		}
		p.terminate()
	})
}

// If the clock jumps forward and back, no tile is closed twice and none is skipped.
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{45 * time.Second, 20 * time.Minute, -45 * time.Second, -20 * time.Minute} {
		t.Run(jump.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var offset time.Duration
				now := func() time.Time {
					mu.Lock()
					defer mu.Unlock()
					return time.Now().Add(offset)
				}
				set := func(d time.Duration) {
					mu.Lock()
					defer mu.Unlock()
					offset = d
				}
				s := newStore(t)
				p := start(t, t.TempDir(), s, now)
				for i := range 90 {
					if i == 30 {
						set(jump)
					}
					if i == 60 {
						set(0)
					}
					p.mustCount("a", 1)
					time.Sleep(time.Second)
				}
				set(0)
				time.Sleep(25 * time.Minute)
				total, resets := 0.0, 0
				times, values := s.values("a")
				last := 0.0
				for i, v := range values {
					switch {
					case value.IsStaleNaN(v):
						continue
					case v < last: // the series came back after its time to live
						resets++
						total += v
					default:
						total += v - last
					}
					last = v
					if i > 0 && times[i] <= times[i-1] {
						t.Fatalf("the stored time %d follows %d, want times that grow", times[i], times[i-1])
					}
				}
				if total != 90 || resets > 1 {
					t.Errorf("%g increments are stored, with %d resets, want 90 increments and at most 1 reset: %v",
						total, resets, values)
				}
				p.terminate()
			})
		})
	}
}

// If the clock is a year fast for some seconds, the stores must not get tiles of that future time.
func TestAShortLeapOfTheClockIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leap atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(leap.Load())) }
		s := newStore(t)
		p := start(t, t.TempDir(), s, now)
		p.mustCount("a", 1)
		time.Sleep(15 * time.Second)
		leap.Store(int64(365 * 24 * time.Hour))
		counted := make(chan error)
		go func() { counted <- p.count("a", 1) }()
		time.Sleep(20 * time.Second)
		leap.Store(0)
		if err := <-counted; err != nil {
			t.Fatal(err)
		}
		p.mustCount("a", 1)
		time.Sleep(80 * time.Second)
		checkCounter(t, s, "a", 3)
		if times, _ := s.values("a"); times[len(times)-1] > time.Now().UnixMilli() {
			t.Errorf("a tile is %d ms ahead of the clock, want none", times[len(times)-1]-time.Now().UnixMilli())
		}
		p.terminate()
	})
}

func TestOpenTilesAnswerWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, t.TempDir(), newStore(t), time.Now)
		window := time.Now()
		time.Sleep(1005 * time.Millisecond) // the window ends, and is flushed
		if err := p.countIn(window, "a", 3); err != nil {
			t.Fatal(err)
		}
		p.Through(window.UnixMilli() + 1000)
		m := labels.MustNewMatcher(labels.MatchEqual, "__name__", "a")
		live, err := p.Live("default", tile.Width10s, 0, time.Now().Add(time.Hour).UnixMilli(), []*labels.Matcher{m})
		if err != nil || len(live) != 1 || len(live[0].Points) == 0 {
			t.Fatalf("%v, %v", live, err)
		}
		if last := live[0].Points[len(live[0].Points)-1]; last.V != 3 {
			t.Errorf("%+v", live[0].Points)
		}
		// Once the next second is complete, a query for the first second gives the same answer as
		// before.
		time.Sleep(time.Second)
		if err := p.countIn(window.Add(time.Second), "a", 4); err != nil {
			t.Fatal(err)
		}
		p.Through(window.UnixMilli() + 2000)
		for until, want := range map[time.Duration]float64{1500 * time.Millisecond: 3, time.Hour: 7} {
			live, err := p.Live("default", tile.Width10s, 0, window.Add(until).UnixMilli(), []*labels.Matcher{m})
			if err != nil || len(live) != 1 || live[0].Points[len(live[0].Points)-1].V != want {
				t.Errorf("a query until %v after the start returns %+v, %v; want %g", until, live, err, want)
			}
		}
		if other, _ := p.Live("other", tile.Width10s, 0, 1<<60, []*labels.Matcher{m}); other != nil {
			t.Error("another tenant sees the series")
		}
		p.terminate()
	})
}

// Answers are complete up to a time that moves only when windows are counted or reported as empty. So
// the answers age while the collector stalls. A jump of the clock does not move this time.
func TestAStallIsSeenAsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leap atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(leap.Load())) }
		p := start(t, t.TempDir(), newStore(t), now)
		newest := func() int64 {
			t.Helper()
			live, err := p.Live("default", tile.Width10s, 0, 1<<60, nil)
			if err != nil || len(live) != 1 {
				t.Fatalf("%v, %v", live, err)
			}
			return live[0].Points[len(live[0].Points)-1].T
		}
		key := series.AppendKey(nil, series.Gauge, labels.FromStrings("__name__", "g"))
		window := time.Now()
		time.Sleep(time.Second)
		if err := p.Push(t.Context(),
			[]batch.Batch{p.batchOf(window, batch.Increment{Key: key, Samples: 1, Value: 5, At: window.UnixNano()})}); err !=
			nil {
			t.Fatal(err)
		}
		told := window.UnixMilli() + 1000
		p.Through(told)
		for range 8 { // while the collector stalls
			time.Sleep(time.Second)
			if at := newest(); at != told || p.FoldedThrough("default") != told {
				t.Fatalf("while the collector stalls, the answer is complete up to %d, want %d", at, told)
			}
		}
		for range 60 { // the windows are empty
			told = time.Now().UnixMilli()
			p.Through(told)
			if at := newest(); at != told {
				t.Fatalf("after empty windows, the answer is complete up to %d, want %d", at, told)
			}
			time.Sleep(time.Second)
		}
		leap.Store(int64(time.Hour))
		time.Sleep(5 * time.Second)
		p.Through(now().UnixMilli())
		if ahead := newest() - time.Now().UnixMilli(); ahead > 0 {
			t.Errorf("after a jump of the clock, the answer is %d ms ahead, want 0", ahead)
		}
		leap.Store(0)
		p.terminate()
	})
}

// The first queries after a start return the open tiles of the previous process. For up to a minute, a
// series may exist only in these tiles.
func TestRestoredTilesAnswerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, s := t.TempDir(), newStore(t)
		p := start(t, dir, s, time.Now)
		p.mustCount("a", 3)
		time.Sleep(15 * time.Second) // now the tile of 10 s is stored
		p.terminate()
		p = start(t, dir, s, time.Now)
		m := labels.MustNewMatcher(labels.MatchEqual, "__name__", "a")
		live, err := p.Live("default", tile.Width1m, 0, 1<<60, []*labels.Matcher{m})
		if err != nil || len(live) != 1 || live[0].Points[len(live[0].Points)-1].V != 3 {
			t.Errorf("%+v, %v", live, err)
		}
		p.terminate()
	})
}

// If the disk of the journal is full, the window is refused. The collector pushes it again when there
// is space, and nothing counts twice.
func TestAJournalThatCannotBeWrittenRefusesTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newStore(t), t.TempDir()
		fs, err := files.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		faulty := &fullDisk{FS: fs}
		p := startOn(t, faulty, s, time.Now, func(*Options) {})
		p.mustCount("a", 1)
		faulty.set(true)
		if err := p.count("a", 1); err == nil {
			t.Error("a window that could not be journalled was acknowledged")
		}
		time.Sleep(15 * time.Second)
		faulty.set(false)
		p.mustCount("a", 1)
		time.Sleep(20 * time.Second)
		checkCounter(t, s, "a", 2)
		p.terminate()
	})
}

// fullDisk refuses writes while it is full.
type fullDisk struct {
	segment.FS
	mu   sync.Mutex
	full bool
}

func (f *fullDisk) set(full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = full
}

func (f *fullDisk) Create(name string) (segment.Writer, error) {
	w, err := f.FS.Create(name)
	return &fullFile{w, f}, err
}

type fullFile struct {
	segment.Writer
	disk *fullDisk
}

func (f *fullFile) Write(b []byte) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.full {
		return 0, errors.New("no space left on device")
	}
	return f.Writer.Write(b)
}

// A halted aggregator changes nothing any more, not even the ledger: another program is about to take
// over. If no program does, the aggregator ends in the regular way.
func TestHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newStore(t), t.TempDir()
		p := start(t, dir, s, time.Now)
		for range 5 {
			p.mustCount("a", 1)
			time.Sleep(time.Second)
		}
		p.Halt()
		before := s.writes
		time.Sleep(time.Minute)
		if s.writes != before {
			t.Errorf("after the halt the store got %d writes, want 0", s.writes-before)
		}
		p.terminate()
		p.Halt() // a Halt after the end must return
		p = start(t, dir, s, time.Now)
		time.Sleep(30 * time.Second)
		checkCounter(t, s, "a", 5)
		p.terminate()
	})
}
