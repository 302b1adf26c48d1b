package coalesce

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
)

const begin = 1_700_000_000 // the first second of a tile

// writer makes the windows of a collector.
type writer struct {
	batch.Writer
	sequence uint64
}

// push returns the window of a second. It calls write to fill the window.
func (w *writer) push(t testing.TB, tenant string, second int64, write func(add func(batch.Increment))) []byte {
	t.Helper()
	w.sequence++
	w.Begin(batch.Header{Tenant: []byte(tenant), Producer: 7, Incarnation: 8, Sequence: w.sequence, Second: second,
		Birth: second*1e9 + 5})
	write(func(inc batch.Increment) { w.Add(series.Shard(tenant, inc.Key), &inc) })
	push, err := member.PushOf(w.End())
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(push)
}

func key(kind series.Kind, name string) []byte {
	return series.AppendKey(nil, kind, labels.FromStrings("__name__", name))
}

func coalesced(t testing.TB, pushes ...[]byte) []Coalesced {
	t.Helper()
	var j Coalescer
	for _, p := range pushes {
		if err := j.Add(slices.Clone(p)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := j.Windows()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// group folds pushes as the members of a group do.
type group map[uint16]*tile.Shard

func (g group) fold(t testing.TB, push []byte) (f tile.Folded) {
	t.Helper()
	p, err := entry.ParsePush(push)
	if err != nil {
		t.Fatal(err)
	}
	for b := range p.Batches.All() {
		h, err := batch.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		if g[h.Shard] == nil {
			g[h.Shard] = tile.New(&tile.Config{GaugeTTL: time.Hour, CounterTTL: time.Hour}, begin*1000)
		}
		one, err := g[h.Shard].Fold(b)
		if err != nil {
			t.Fatal(err)
		}
		f.Add(one)
	}
	return f
}

// stored returns the samples that the 10 s stores get from the tile, by series and time. `timed` has the times
// of the readings that are stored with times of their own.
func (g group) stored() (values map[string]string, timed map[string][]int64) {
	values, timed = map[string]string{}, map[string][]int64{}
	config := &tile.Config{GaugeTTL: time.Hour, CounterTTL: time.Hour, OutOfOrder: time.Hour}
	for _, s := range g {
		for _, w := range s.Close((begin+10)*1000, config).Waiting {
			for _, x := range w.Samples[0] {
				name := w.Tenant + " " + x.Series.Labels.String()
				if x.Timed && !strings.Contains(name, "stamped") {
					timed[name] = append(timed[name], x.T)
					continue
				}
				values[fmt.Sprintf("%s %d", name, x.T)] = fmt.Sprint(x.V, x.H)
			}
		}
	}
	return values, timed
}

// increment returns a random increment of a random series. A window still grows while it waits, so the value may
// have been read after the window's second.
func increment(rng *rand.Rand, second int64) batch.Increment {
	inc := batch.Increment{Samples: uint32(1 + rng.IntN(3)), At: second*1e9 + rng.Int64N(3e9), Value: float64(rng.IntN(9))}
	name := string(rune('a' + rng.IntN(3)))
	switch rng.IntN(9) {
	case 0:
		inc.Key = key(series.Counter, "counter_"+name)
	case 1:
		inc.Key, inc.Value = key(series.UpDown, "updown_"+name), float64(rng.IntN(9)-4)
	case 2:
		inc.Key = key(series.Check, "check_"+name)
	case 3:
		inc.Key, inc.Relative = key(series.Gauge, "relative_"+name), rng.IntN(2) == 0
	case 4:
		inc.Key, inc.Source = key(series.Gauge, "merged_"+name), uint64(1+rng.IntN(3))
		inc.Policy = series.AppendPolicy(nil, &series.Policy{Merge: series.MergeSum, Schema: 3, MaxBuckets: 160})
	case 5:
		inc.Key, inc.Timer = key(series.Timer, "timer_"+name), new(histogram.Exponential)
		inc.Timer.Reset(3)
		for range inc.Samples {
			inc.Timer.Observe(float64(1+rng.IntN(1000)), 1, 20)
		}
		inc.Policy = series.AppendPolicy(nil, &series.Policy{Schema: 3, MaxBuckets: 20})
	case 6:
		inc.Key, inc.Classic, inc.Sum = key(series.Timer, "classic_"+name), []float64{1, float64(rng.IntN(3)), 0}, 5
		inc.Policy = series.AppendPolicy(nil, &series.Policy{Schema: 3, MaxBuckets: 160, Bounds: []float64{1, 2}})
	case 7:
		inc.Key, inc.Set = key(series.Set, "set_"+name), new(distinct.Set)
		for range inc.Samples {
			inc.Set.Add(distinct.Hash([]byte{byte(rng.IntN(30))}))
		}
	case 8:
		inc.Key, inc.Time = key(series.Gauge, "stamped_"+name), begin+int64(1+rng.IntN(4))
	}
	return inc
}

// A group that folds the coalesced windows stores the same samples as a group that folds each original
// window, and counts the same number of samples. The first group also gets each plain reading with its
// time. Once a group has folded a coalesced window, the original windows are repeats.
func TestCoalescedWindowsAreWorthTheSame(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var w writer
		var pushes [][]byte
		for second := int64(begin); second < begin+10; second++ {
			for _, tenant := range []string{"one", "two"} {
				if rng.IntN(4) == 0 {
					continue
				}
				seen := map[string]bool{} // a window has one increment per series, source and time
				pushes = append(pushes, w.push(t, tenant, second, func(add func(batch.Increment)) {
					for range 1 + rng.IntN(12) {
						inc := increment(rng, second)
						if at := fmt.Sprint(inc.Key, inc.Source, inc.Time); !seen[at] {
							seen[at] = true
							add(inc)
						}
					}
				}))
			}
		}
		one, all := group{}, group{}
		var each, together tile.Folded
		for _, p := range pushes {
			each.Add(one.fold(t, p))
		}
		windows := coalesced(t, pushes...)
		samples, last := uint64(0), uint64(0)
		for _, x := range windows {
			p, err := entry.ParsePush(x.Push)
			if err != nil || p.Sequence <= last {
				t.Errorf(
					"seed %d: sequence %d follows %d, error %v; want ascending sequences", seed, p.Sequence, last, err)
			}
			last = p.Sequence
			together.Add(all.fold(t, x.Push))
			samples += x.Samples
		}
		if each != together || samples != each.Samples {
			t.Errorf("seed %d: the coalesced windows, folded, give %+v, want %+v as the original windows give",
				seed, together, each)
		}
		for _, p := range pushes {
			if f := all.fold(t, p); f.Samples > 0 || f.Again == 0 {
				t.Errorf("seed %d: a window that was coalesced counts again: %+v", seed, f)
			}
		}
		want, none := one.stored()
		got, timed := all.stored()
		if !maps.Equal(got, want) || len(none) > 0 {
			t.Errorf("seed %d: stored\n%v, want\n%v", seed, got, want)
		}
		for name, times := range timed {
			for _, at := range times {
				if at <= begin*1000 || at%10_000 == 0 {
					t.Errorf("seed %d: a reading of %s has the time %d, want a time inside the tile", seed, name, at)
				}
			}
		}
	}
}

// Readings of a tile that is closed already are stored at the times at which they were read. Without these
// times, the readings would be late.
func TestReadingsKeepTheirTimes(t *testing.T) {
	var w writer
	reading := func(second int64, v float64) []byte {
		return w.push(t, "one", second, func(add func(batch.Increment)) {
			add(batch.Increment{Key: key(series.Gauge, "g"), Samples: 1, Value: v, At: second*1e9 + 1})
		})
	}
	for last, want := range map[int64]int64{begin + 7: begin + 7, begin: begin + 1} {
		g := group{}
		g.fold(t, w.push(t, "one", begin, func(add func(batch.Increment)) {
			add(batch.Increment{Key: key(series.Gauge, "g"), Samples: 1, Value: 9, At: begin * 1e9})
		}))
		for _, s := range g {
			s.Close((begin+10)*1000, &tile.Config{OutOfOrder: time.Hour})
		}
		windows := coalesced(t, reading(begin, 1), reading(last, 2))
		if f := g.fold(t, windows[0].Push); f.LateGauge != 0 || f.Samples != 2 {
			t.Errorf("folded %+v", f)
		}
		for _, s := range g {
			for _, x := range s.Close((begin+20)*1000, &tile.Config{OutOfOrder: time.Hour}).Waiting[0].Samples[0] {
				if x.Timed && (x.T != want*1000 || x.V != 2) {
					t.Errorf("a value that was read in second %d is stored as %v at %d, want 2 at %d", last, x.V, x.T, want*1000)
				}
			}
		}
	}
}

// A change of a gauge, and one of several values of a merged gauge, are not stored at their own times.
func TestOnlyWholeReadingsAreTimed(t *testing.T) {
	merged := series.AppendPolicy(nil, &series.Policy{Merge: series.MergeSum, Schema: 3, MaxBuckets: 160})
	for name, c := range map[string]struct {
		inc  batch.Increment
		want int
	}{
		"a value":           {batch.Increment{Key: key(series.Gauge, "g"), At: begin * 1e9}, 2},
		"a check":           {batch.Increment{Key: key(series.Check, "g"), At: begin * 1e9}, 2},
		"a change":          {batch.Increment{Key: key(series.Gauge, "g"), At: begin * 1e9, Relative: true}, 1},
		"one of a merged":   {batch.Increment{Key: key(series.Gauge, "g"), At: begin * 1e9, Source: 1, Policy: merged}, 1},
		"a sender's time":   {batch.Increment{Key: key(series.Gauge, "g"), At: begin * 1e9, Time: begin}, 1},
		"no value, a count": {batch.Increment{Key: key(series.Counter, "g")}, 1},
	} {
		var w writer
		windows := coalesced(t, w.push(t, "one", begin, func(add func(batch.Increment)) { add(c.inc) }))
		if n := increments(t, windows[0].Push); n != c.want {
			t.Errorf("%s: %d increments, want %d", name, n, c.want)
		}
	}
}

// increments returns the number of increments in a push.
func increments(t testing.TB, push []byte) (n int) {
	t.Helper()
	p, err := entry.ParsePush(push)
	if err != nil {
		t.Fatal(err)
	}
	for b := range p.Batches.All() {
		var r batch.Reader
		if err := r.Reset(b); err != nil {
			t.Fatal(err)
		}
		for r.Next() != nil {
			n++
		}
	}
	return n
}

// Increments that cannot be coalesced are kept apart: sums that overflow, and timers with different
// buckets.
func TestWhatCannotBeCoalesced(t *testing.T) {
	for name, pair := range map[string][2]batch.Increment{
		"a sum that overflows": {
			{Key: key(series.Counter, "n"), Value: math.MaxFloat64},
			{Key: key(series.Counter, "n"), Value: math.MaxFloat64},
		},
		"too many samples": {
			{Key: key(series.Counter, "n"), Samples: math.MaxUint32, Value: 1},
			{Key: key(series.Counter, "n"), Samples: 1, Value: 1},
		},
		"other policies": {
			{Key: key(series.Timer, "n"), Samples: 1, Classic: []float64{1, 0},
				Policy: series.AppendPolicy(nil, &series.Policy{MaxBuckets: 1, Bounds: []float64{1}})},
			{Key: key(series.Timer, "n"), Samples: 1, Classic: []float64{1, 0},
				Policy: series.AppendPolicy(nil, &series.Policy{MaxBuckets: 1, Bounds: []float64{2}})},
		},
		"deltas": {
			{Key: key(series.Counter, "n"), Samples: 1, Value: 1, Delta: begin * 1000},
			{Key: key(series.Counter, "n"), Samples: 1, Value: 1, Delta: begin * 1000},
		},
	} {
		var w writer
		windows := coalesced(t,
			w.push(t, "one", begin, func(add func(batch.Increment)) { add(pair[0]) }),
			w.push(t, "one", begin+1, func(add func(batch.Increment)) { add(pair[1]) }))
		if n := increments(t, windows[0].Push); n != 2 || len(windows) != 1 {
			t.Errorf("%s: %d increments, want 2", name, n)
		}
	}
}

// The coalesced window has the last sequence, the last second, and the first birth. Exemplars are the newest.
func TestHeader(t *testing.T) {
	var w writer
	timer := func(at int64) batch.Increment {
		h := new(histogram.Exponential)
		h.Reset(3)
		h.Observe(1, 1, 160)
		x := &batch.Exemplar{Value: 1, Time: at * 1000, Trace: batch.TraceOf([]byte("ab"))}
		return batch.Increment{Key: key(series.Timer, "n"), Samples: 1, Timer: h, Exemplar: x}
	}
	windows := coalesced(t,
		w.push(t, "one", begin+3, func(add func(batch.Increment)) { add(timer(begin + 3)) }),
		w.push(t, "one", begin+4, func(add func(batch.Increment)) { add(timer(begin + 2)) }))
	p, err := entry.ParsePush(windows[0].Push)
	if err != nil || batch.Portion(p.Sequence) != 2 || p.Producer != 7 || p.Incarnation != 8 || p.Again {
		t.Errorf("the push is %+v, %v", p, err)
	}
	for b := range p.Batches.All() {
		var r batch.Reader
		if err := r.Reset(b); err != nil {
			t.Fatal(err)
		}
		h := &r.Header
		if h.Second != begin+4 || h.Birth != (begin+3)*1e9+5 || string(h.Tenant) != "one" {
			t.Errorf("the header is %+v", h)
		}
		if inc := r.Next(); inc.Exemplar.Time != (begin+3)*1000 || inc.Timer.Count != 2 {
			t.Errorf("the increment is %+v, want 2 values; its exemplar is %+v, want the newest", inc, inc.Exemplar)
		}
	}
	if Tile(begin) != begin+10 || Tile(begin+9) != begin+10 || Tile(begin+10) != begin+20 {
		t.Error("Tile does not return the end of the window's tile")
	}
}

// The Coalescer refuses damaged pushes, and windows that are too large for a push.
func TestCoalescerRefuses(t *testing.T) {
	var j Coalescer
	if j.Add([]byte{9}) == nil {
		t.Error("Add accepts bytes that are no push")
	}
	var w writer
	push := w.push(t, "one", begin, func(add func(batch.Increment)) {
		add(batch.Increment{Key: key(series.Counter, "n"), Value: 1})
	})
	if j.Add(append(entry.List(push[:33]), entry.List{}.Append(push[34:len(push)-1])...)) == nil {
		t.Error("Add accepts a damaged batch")
	}
	j = Coalescer{}
	for i := range 5 {
		if err := j.Add(w.push(t, "one", begin, func(add func(batch.Increment)) {
			add(batch.Increment{Key: key(series.Counter, fmt.Sprint(i, strings.Repeat("x", 2<<20))), Value: 1})
		})); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Windows(); !errors.Is(err, batch.ErrRefused) {
		t.Errorf("a window of 10 MiB: error %v, want ErrRefused", err)
	}
}
