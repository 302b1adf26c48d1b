package stage_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/freshet-io/freshet/internal/core/stage"
)

var born = time.Unix(1_795_160_000, 0)

func at(d time.Duration) time.Time { return born.Add(d) }

// stats returns the Stats of one stage and input.
func stats(t *testing.T, w *stage.Watch, s stage.Stage, i stage.Input) stage.Stats {
	t.Helper()
	for _, got := range w.Stats() {
		if got.Stage == s && got.Input == i {
			return got
		}
	}
	t.Fatalf("no trip was counted for input %v, stage %v", i, s)
	return stage.Stats{}
}

func TestATripIsCountedInTheStagesItPassed(t *testing.T) {
	w := stage.NewWatch()
	trip := &stage.Trip{Input: stage.RemoteWrite, Born: born, Samples: 7}
	trip.Enter(stage.Read, at(0))
	trip.Pass(stage.Read, stage.Parse, at(2*time.Millisecond))
	trip.Leave(stage.Parse, at(5*time.Millisecond))
	trip.Enter(stage.Queue, at(6*time.Millisecond)) // the trip never leaves, because the request is refused
	trip.Seen(at(10 * time.Millisecond))
	w.End(trip)

	for _, of := range []struct {
		stage      stage.Stage
		spent, age float64 // seconds
	}{{stage.Read, 0.002, 0}, {stage.Parse, 0.003, 0.002}, {stage.Visible, 0.010, 0}} {
		got := stats(t, w, of.stage, stage.RemoteWrite)
		if got.Spent.Count != 1 || got.Spent.Sum != of.spent || got.Age.Sum != of.age || got.Samples != 7 {
			t.Errorf("%v: %+v, want %+v", of.stage, got, of)
		}
	}
	if n := len(w.Stats()); n != 3 {
		t.Errorf("the trip is counted in %d stages, want 3", n)
	}
}

// If another process timed a stage, the samples of a batch count here, too, but the times count only
// there.
func TestAStageElsewhere(t *testing.T) {
	w := stage.NewWatch()
	trip := &stage.Trip{Input: stage.RemoteWrite, Born: born, Samples: 7}
	trip.Enter(stage.Queue, at(0))
	trip.Elsewhere(stage.Append)
	trip.Leave(stage.Queue, at(time.Second))
	w.End(trip)
	if got := stats(t, w, stage.Append, stage.RemoteWrite); got.Samples != 7 || got.Spent.Count != 0 {
		t.Errorf("%+v", got)
	}
	if _, _, timed := trip.Passed(stage.Append); timed {
		t.Error("a trace would show the untimed stage")
	}
}

// The time of refused requests counts, too: in an incident most requests are refused.
func TestATripThatFailsIsCountedWhereItEnds(t *testing.T) {
	w := stage.NewWatch()
	w.SetBudgets(stage.Budgets{stage.Queue: time.Millisecond})
	var over []*stage.Trip
	w.OnOver(func(t *stage.Trip) { over = append(over, t) })
	trip := &stage.Trip{Input: stage.RemoteWrite, Born: born}
	trip.Enter(stage.Distribute, at(0))
	trip.Pass(stage.Distribute, stage.Queue, at(time.Millisecond))
	trip.Fail(at(51 * time.Millisecond))
	w.End(trip)
	if got := stats(t, w, stage.Queue, stage.RemoteWrite).Spent; got.Count != 1 || got.Sum != 0.05 || len(over) != 1 {
		t.Errorf("%+v, %d over budget", got, len(over))
	}
	if n := len(w.Stats()); n != 2 {
		t.Errorf("the trip is counted in %d stages, want 2", n)
	}
}

// A stage that a batch enters after the request was answered is not counted: by then, the trip's memory
// may belong to another request.
func TestWhatComesAfterTheEndIsNotInTheTrip(t *testing.T) {
	w := stage.NewWatch()
	trip := &stage.Trip{Born: born}
	trip.Enter(stage.Append, at(0))
	w.End(trip)
	trip.Leave(stage.Append, at(time.Second))
	trip.Seen(at(time.Second))
	if _, _, ok := trip.Passed(stage.Append); ok || len(w.Stats()) != 0 {
		t.Errorf("%+v", w.Stats())
	}
}

func TestAClockThatWasSetBackGivesNoNegativeTimes(t *testing.T) {
	w := stage.NewWatch()
	trip := &stage.Trip{Born: born}
	trip.Enter(stage.Tile, at(time.Second))
	trip.Leave(stage.Tile, at(-time.Hour))
	w.End(trip)
	if got := stats(t, w, stage.Tile, stage.DogStatsD); got.Spent.Sum != 0 || got.Spent.Zero != 1 {
		t.Errorf("%+v", got)
	}
}

func TestOverBudget(t *testing.T) {
	w := stage.NewWatch()
	var over []*stage.Trip
	w.OnOver(func(t *stage.Trip) { over = append(over, t) })
	pass := func(took time.Duration) *stage.Trip {
		trip := &stage.Trip{Born: born}
		trip.Enter(stage.Journal, at(time.Second))
		trip.Leave(stage.Journal, at(time.Second+took))
		w.End(trip)
		return trip
	}
	pass(time.Hour) // no budget yet
	budgets := stage.Budgets{stage.Journal: 100 * time.Millisecond}
	w.SetBudgets(budgets)
	pass(100 * time.Millisecond)
	slow := pass(101 * time.Millisecond)
	if len(over) != 1 || over[0] != slow {
		t.Fatalf("%d trips are over budget, want only 1", len(over))
	}
	if s, spent, ok := budgets.Over(slow); s != stage.Journal || spent != 101*time.Millisecond || !ok {
		t.Errorf("%v %v %v", s, spent, ok)
	}
}

// Many small requests are watched at little cost: one in four is timed. All samples are counted, and
// every request over budget is reported.
func TestOfManyTripsSomeAreTimed(t *testing.T) {
	w := stage.NewWatch()
	w.SetBudgets(stage.Budgets{stage.Queue: time.Millisecond})
	over := 0
	w.OnOver(func(*stage.Trip) { over++ })
	pass := func(input stage.Input, begun time.Time) {
		trip := &stage.Trip{Input: input, Born: begun, Samples: 7}
		trip.Enter(stage.Queue, begun)
		trip.Leave(stage.Queue, begun.Add(2*time.Millisecond))
		w.End(trip)
	}
	for i := range 4000 {
		pass(stage.RemoteWrite, at(time.Duration(i)*time.Millisecond/10))
	}
	for i := range 10 {
		pass(stage.OTLP, at(time.Duration(i)*time.Second)) // so few that each is timed
	}
	many, few := stats(t, w, stage.Queue, stage.RemoteWrite), stats(t, w, stage.Queue, stage.OTLP)
	// The expected count is 1,000, with a standard deviation of 27.
	if many.Spent.Count < 850 || many.Spent.Count > 1150 || many.Samples != 4000*7 || over != 4010 {
		t.Errorf("of 4000 trips, %d are timed, want about 1000; %d samples, want 28000; %d over budget, want 4010",
			many.Spent.Count, many.Samples, over)
	}
	if few.Spent.Count != 10 {
		t.Errorf("of 10 trips, %d are timed, want all", few.Spent.Count)
	}
}

// Sockets close their windows together, always in the same order. So every window is timed. If only one
// in four were timed, the timed windows would always come from the same sockets.
func TestEachWindowIsTimed(t *testing.T) {
	w := stage.NewWatch()
	for second := range 100 {
		for socket := range 4 {
			closed := at(time.Duration(second)*time.Second + time.Duration(socket)*time.Millisecond)
			trip := &stage.Trip{Input: stage.DogStatsD, Born: closed}
			trip.Enter(stage.Window, closed)
			trip.Leave(stage.Window, closed.Add(time.Millisecond))
			w.End(trip)
		}
	}
	if got := stats(t, w, stage.Window, stage.DogStatsD).Spent.Count; got != 400 {
		t.Errorf("%d of 400 windows are timed, want all", got)
	}
}

// A nil Watch or Trip measures nothing, so callers need no check.
func TestNilWatchesNothing(t *testing.T) {
	var trip *stage.Trip
	trip.Enter(stage.Read, born)
	trip.Pass(stage.Read, stage.Parse, born)
	trip.Seen(born)
	var w *stage.Watch
	w.End(trip)
	w.Count(stage.Read, stage.DogStatsD, 1)
}

// Our histograms count durations in the same buckets as Prometheus' own client, native and classic.
func TestHistogramsAreThoseOfPrometheus(t *testing.T) {
	bounds := []float64{1.0 / 4096, 1.0 / 64, 0.25, 1, 2, 16}
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{
		NativeHistogramBucketFactor: math.Exp2(1.0 / 8), NativeHistogramZeroThreshold: stage.ZeroThreshold, Buckets: bounds,
	})
	w := stage.NewWatch()
	random := rand.New(rand.NewPCG(1, 2))
	durations := []time.Duration{0, 1, time.Microsecond, time.Second, 2 * time.Second, time.Second + 1, time.Second - 1}
	for range 10_000 {
		durations = append(durations, time.Duration(math.Exp2(random.Float64()*39))) // to 9 minutes
	}
	for i, d := range durations {
		begun := at(time.Duration(i) * time.Hour) // few enough that each is timed
		trip := &stage.Trip{Born: begun}
		trip.Enter(stage.Queue, begun)
		trip.Leave(stage.Queue, begun.Add(d))
		w.End(trip)
		theirs.Observe(d.Seconds())
	}
	var want, got dto.Metric
	if err := theirs.Write(&want); err != nil {
		t.Fatal(err)
	}
	h := stats(t, w, stage.Queue, stage.DogStatsD).Spent
	ours := prometheus.MustNewConstNativeHistogram(prometheus.NewDesc("x", "x", nil, nil), h.Count, h.Sum, h.Buckets, nil,
		h.Zero, stage.Schema, stage.ZeroThreshold, time.Time{})
	if err := ours.Write(&got); err != nil {
		t.Fatal(err)
	}
	classic := h.Classic(bounds)
	for i, b := range want.Histogram.Bucket {
		if classic[i] != b.GetCumulativeCount() {
			t.Errorf("the bucket up to %v s has the count %d, want %d", bounds[i], classic[i], b.GetCumulativeCount())
		}
	}
	want.Histogram.Bucket = nil
	want.Histogram.CreatedTimestamp, got.Histogram.CreatedTimestamp = nil, nil
	if d := math.Abs(want.Histogram.GetSampleSum() - got.Histogram.GetSampleSum()); d > 1e-6 {
		t.Errorf("the sums differ by %v s", d)
	}
	want.Histogram.SampleSum, got.Histogram.SampleSum = nil, nil
	if want.String() != got.String() {
		t.Errorf("got  %v\nwant %v", got.String(), want.String())
	}
}

// A duration beyond the last bucket counts in that bucket, without a panic.
func TestAnHourIsInTheLastBucket(t *testing.T) {
	w := stage.NewWatch()
	trip := &stage.Trip{Born: born}
	trip.Seen(at(1000 * time.Hour))
	w.End(trip)
	if got := stats(t, w, stage.Visible, stage.DogStatsD).Spent; got.Buckets[80] != 1 || got.Sum != 3_600_000 {
		t.Errorf("%+v", got)
	}
}

func TestExemplars(t *testing.T) {
	w := stage.NewWatch()
	trip := &stage.Trip{Born: born}
	trip.Enter(stage.Append, at(time.Second))
	trip.Leave(stage.Append, at(3*time.Second))
	w.End(trip)
	w.Exemplify(trip, "4bf92f3577b34da6a3ce929d0e0e4736")
	got := stats(t, w, stage.Append, stage.DogStatsD).Spent.Exemplar
	if got == nil ||
		*got != (stage.Exemplar{Trace: "4bf92f3577b34da6a3ce929d0e0e4736", Spent: 2 * time.Second, At: at(3 * time.Second)}) {
		t.Errorf("%+v", got)
	}
}

// passAll takes a trip through the stages of a request of remote write.
func passAll(w *stage.Watch, trip *stage.Trip) {
	now := born
	trip.Enter(stage.Read, now)
	for s := stage.Read; s < stage.Append; s++ {
		now = now.Add(100 * time.Microsecond)
		if s < stage.Window || s >= stage.Distribute {
			trip.Pass(s, s+1, now)
		}
	}
	trip.Leave(stage.Append, now)
	trip.Seen(now)
	w.End(trip)
}

func TestATripTakesNoMemory(t *testing.T) {
	w, trip := stage.NewWatch(), new(stage.Trip)
	if n := testing.AllocsPerRun(1000, func() { *trip = stage.Trip{Born: born}; passAll(w, trip) }); n != 0 {
		t.Errorf("%v allocations a trip, want 0", n)
	}
}

// Bound: 400 ns on a quiet machine. This is below 1 % of the time that a request of 100 samples takes,
// 60 us or more.
func BenchmarkTrip(b *testing.B) {
	w := stage.NewWatch()
	trip := new(stage.Trip) // allocated once: a request holds its trip in its own memory
	for b.Loop() {
		*trip = stage.Trip{Born: born}
		passAll(w, trip)
	}
}

// Bound: 400 ns for the eleven observations of a request, a third of the time of Prometheus' own
// histogram. The bound is 200 ns if requests are so many that only some are timed.
func BenchmarkEnd(b *testing.B) {
	for _, apart := range []time.Duration{time.Second, time.Millisecond} {
		b.Run(fmt.Sprintf("ours/apart=%v", apart), func(b *testing.B) {
			w, trip := stage.NewWatch(), &stage.Trip{Input: stage.RemoteWrite}
			passAll(w, trip)
			for b.Loop() {
				trip.Born = trip.Born.Add(apart)
				w.End(trip)
			}
		})
	}
	b.Run("prometheus", func(b *testing.B) {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		})
		for b.Loop() {
			for i := range 11 {
				h.Observe(float64(i) / 1000)
			}
		}
	})
}
