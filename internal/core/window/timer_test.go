package window

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Each timer has only its own values in its buckets, however many values come in a window, in any order.
// The test sends more values than may wait to be put into buckets, in several windows in a row, and in
// packed and sampled lines.
func TestTimersHaveTheirOwnBuckets(t *testing.T) {
	const timers, lines = 7, 5 * maxObserved / 4
	bounds := []float64{1, 10, 100}
	for _, policy := range []*series.Policy{&series.DefaultPolicy, {Schema: 3, MaxBuckets: 160, Bounds: bounds}} {
		table := New(&resolver{policy: policy}, Options{IdleWindows: 300})
		table.Start(at(0))
		random := rand.New(rand.NewPCG(1, 2))
		for window := range 4 {
			var native [timers]histogram.Exponential
			var classic [timers][]float64
			var exemplars [timers]*batch.Exemplar
			for i := range timers {
				native[i].Reset(policy.Schema)
				classic[i] = make([]float64, len(bounds)+1)
			}
			for range lines {
				timer, v1, v2, rate := random.IntN(timers), float64(random.IntN(200)), float64(random.IntN(200)),
					[]float64{1, 0.25}[random.IntN(2)]
				line := fmt.Sprintf("t%d:%g:%g|ms|@%g", timer, v1, v2, rate)
				if random.IntN(lines/20) == 0 { // so rarely that some timers have no exemplar in a window
					x := &batch.Exemplar{
						Value: v1, Time: int64(1 + random.IntN(4)), Trace: batch.TraceOf(fmt.Appendf(nil, "%x", random.Uint32())),
					}
					line += fmt.Sprintf("|x:%s,%v,%d", x.Trace.String(), x.Value, x.Time)
					if exemplars[timer] == nil || exemplars[timer].Time <= x.Time {
						exemplars[timer] = x
					}
				}
				send(t, table, at(float64(window)), line)
				for _, v := range []float64{v1, v2} {
					native[timer].Observe(v, 1/rate, int(policy.MaxBuckets))
					bucket, _ := slices.BinarySearch(bounds, v)
					classic[timer][bucket] += 1 / rate
				}
			}
			w, _ := table.Close(at(float64(window + 1)))
			seen := 0
			increments(t, w, func(inc *batch.Increment) {
				seen++
				var timer int
				if _, err := fmt.Sscanf(string(series.Name(inc.Key)), "t%d", &timer); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(inc.Exemplar, exemplars[timer]) {
					t.Errorf("window %d, timer %d: exemplar %+v, want %+v", window, timer, inc.Exemplar, exemplars[timer])
				}
				want := &native[timer]
				if policy.Bounds == nil && !reflect.DeepEqual(inc.Timer.Float(), want.Float()) {
					t.Errorf("window %d, timer %d: %v, want %v", window, timer, inc.Timer.Float(), want.Float())
				}
				if policy.Bounds != nil && (!slices.Equal(inc.Classic, classic[timer]) || inc.Sum != want.Sum) {
					t.Errorf("window %d, timer %d: buckets %v and sum %v, want %v and %v",
						window, timer, inc.Classic, inc.Sum, classic[timer], want.Sum)
				}
			})
			if seen != timers {
				t.Errorf("window %d has %d timers, want 7", window, seen)
			}
		}
	}
}

// increments flushes a window, and calls `each` with every increment of its batches.
func increments(t *testing.T, w *Window, each func(*batch.Increment)) {
	t.Helper()
	var out batch.Writer
	out.Begin(batch.Header{Tenant: []byte("default"), Second: w.Second, Birth: w.Birth})
	w.Flush(&out, math.MaxInt)
	var r batch.Reader
	for _, b := range out.End() {
		if err := r.Reset(b.Bytes); err != nil {
			t.Fatal(err)
		}
		for inc := r.Next(); inc != nil; inc = r.Next() {
			each(inc)
		}
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
	}
}
