package promapi

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/turns"
)

// turn is one query or look-up in its lane, with the slot and the memory that it holds. It
// belongs to the goroutine of its request.
type turn struct {
	all     *lanes
	lane    *lane // the lane of the slot that the turn holds or waits for
	tenant  string
	running bool        // whether the turn has a slot
	since   time.Time   // when the turn got its slot
	late    *time.Timer // gives the lane one more slot when the turn is overdue; nil if turns do not end
	yielded time.Time
	ran     time.Duration // total time with earlier slots
	waited  time.Duration // total time spent waiting for memory and slots

	memory *turns.Shares
	bytes  int64 // bytes of memory that the turn holds
	series int64 // how many of `bytes` are for series and labels
	begun  *lane // the lane whose memory the turn holds, until `settle` at the latest

	again context.CancelFunc // ends a query that must begin again in another lane; nil if that cannot happen
	moved atomic.Bool        // whether the turn has got memory of the lane where it continues
	read  atomic.Int64       // number of series read; the heap guard uses it, too
}

// enter waits for memory and for a slot.
func (s *lanes) enter(ctx context.Context, l *lane) (*turn, error) {
	name, _ := tenant.FromContext(ctx)
	came := time.Now()
	defer func() { l.waited.Observe(time.Since(came).Seconds()) }()
	if err := l.memory.Take(ctx, name, l.share); err != nil {
		return nil, err
	}
	if err := l.slots.Take(ctx, name, 1); err != nil {
		l.memory.Give(name, l.share)
		return nil, err
	}
	t := &turn{all: s, lane: l, begun: l, tenant: name, memory: l.memory, bytes: l.share, waited: time.Since(came)}
	t.start()
	return t, nil
}

// start marks the turn as running, in a new slot.
func (t *turn) start() {
	t.running = true
	t.since = time.Now()
	t.yielded = t.since
	if l := t.lane; l.turn > 0 {
		t.late = time.AfterFunc(l.turn+passTime, func() { l.slots.Late(t.tenant) })
	}
}

// stop gives the slot back.
func (t *turn) stop() {
	if t.running {
		t.running = false
		t.ran += time.Since(t.since)
		t.onTime()
		t.lane.slots.Give(t.tenant, 1)
	}
}

// onTime takes back the lane's additional slot, if the turn was overdue and the lane got one.
func (t *turn) onTime() {
	if t.late != nil && !t.late.Stop() {
		t.lane.slots.OnTime(t.tenant)
	}
}

// close gives back the slot and the memory.
func (t *turn) close() {
	t.stop()
	if t.bytes > 0 {
		t.memory.Give(t.tenant, t.bytes)
		t.bytes = 0
	}
}

// yieldTime is how long a query runs before it lets other goroutines of the process run, above all
// writes. Without yielding, the runtime would let the query run for 10 ms, and if every processor
// ran a query, a write would wait that long.
const yieldTime = 200 * time.Microsecond

// pass is called between two series. It lets other goroutines run. When the time of the turn is over,
// pass gives the slot to a waiting tenant, if any, and returns when the turn has a slot again. All
// errors of pass are errors of the context.
func (t *turn) pass(ctx context.Context) error {
	if !t.running {
		return ctx.Err()
	}
	now := time.Now()
	if now.Sub(t.yielded) >= yieldTime {
		runtime.Gosched()
		t.yielded = now
	}
	if t.lane.turn == 0 || now.Sub(t.since) < t.lane.turn {
		return nil
	}
	if t.again != nil && !t.moved.Load() {
		t.move()
	}
	if t.lane.then != t.lane || t.lane.slots.Wanted(t.tenant) {
		t.stop()
		t.lane = t.lane.then
		err := t.lane.slots.Retake(ctx, t.tenant, 1)
		t.waited += time.Since(now)
		if err != nil {
			return err
		}
	} else {
		t.ran += now.Sub(t.since)
		t.onTime()
	}
	t.start()
	return nil
}

// move exchanges the query's memory in its first lane for memory of the lane where it continues,
// if that lane has a share free. After that the query may run for longer.
func (t *turn) move() {
	if then := t.begun.then; then.memory.Try(t.tenant, then.share) {
		t.memory.Give(t.tenant, t.bytes)
		t.memory, t.bytes, t.begun = then.memory, then.share, then
		t.moved.Store(true)
	}
}

// outstay handles a query that still has memory of its first lane although its turn is over.
// Queries of a few tenants could otherwise hold all memory of that lane. So as soon as another
// tenant waits for the memory, the query begins again in the next lane, and its results so far
// are lost.
func (t *turn) outstay(ctx context.Context, first *lane) {
	switch {
	case ctx.Err() != nil || t.moved.Load():
	case first.memory.Wanted(t.tenant):
		t.again()
	default:
		time.AfterFunc(passTime, func() { t.outstay(ctx, first) })
	}
}

// take counts bytes of series or labels. A query may use half of its share for them; samples
// have the other half.
func (t *turn) take(bytes int64) error {
	t.series += bytes
	if limit := t.begun.share; t.series > limit || t.begun.engine != nil && t.series > limit/2 {
		return t.all.tooLarge(t.begun, "the series and labels that the query reads take")
	}
	return nil
}

// settle ends the evaluation. The turn keeps only the memory of the answer, and frees the rest. If
// there is room in the memory for answers, the answer moves there, so that a client that reads
// slowly does not block the next query.
func (t *turn) settle(answer int64) error {
	if answer > t.bytes {
		return t.all.tooLarge(t.begun, "the answer takes")
	}
	if t.all.answers.Try(t.tenant, answer) {
		t.memory.Give(t.tenant, t.bytes)
		t.memory, t.bytes = t.all.answers, answer
	}
	return nil
}

// Memory of an answer, in bytes: samples and labels as values, and in JSON.
const (
	pointJSON  = 44 // [1700000000.123,"-1.2345678901234567e-300"],
	bucketJSON = 80 // [0,"-1.234567890123456","1.234567890123456","1.5"], and one more number
	fixedJSON  = 128
	piece      = 64 << 10 // how much is written to the client at once
)

// answerBytes returns the memory of a result, with its JSON. Of a matrix, one series at a time is JSON: see streams.
func answerBytes(v parser.Value) (n int64) {
	switch v := v.(type) {
	case promql.Matrix:
		var longest int64
		for _, s := range v {
			text := int64(s.Metric.ByteSize()) + pointJSON*int64(len(s.Floats))
			n += seriesBytes + int64(s.Metric.ByteSize()) + sampleBytes*int64(len(s.Floats))
			for _, p := range s.Histograms {
				n += int64(p.H.Size())
				text += histogramJSON(p.H)
			}
			longest = max(longest, text)
		}
		n += piece + longest
	case promql.Vector:
		for _, s := range v {
			n += seriesBytes + 2*int64(s.Metric.ByteSize()) + pointJSON
			if s.H != nil {
				n += int64(s.H.Size()) + histogramJSON(s.H)
			}
		}
	case promql.String:
		n = 2 * int64(len(v.V))
	}
	return n + fixedJSON
}

func histogramJSON(h *histogram.FloatHistogram) int64 {
	return fixedJSON + bucketJSON*int64(len(h.PositiveBuckets)+len(h.NegativeBuckets)+1)
}

// turnKey is the context key of a request's turn.
type turnKey struct{}

func withTurn(ctx context.Context, t *turn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

func turnOf(ctx context.Context) *turn {
	t, _ := ctx.Value(turnKey{}).(*turn)
	return t
}

// needsMore reports whether err means that the query needs more memory than its share.
func needsMore(err error) bool {
	_, samples := errors.AsType[promql.ErrTooManySamples](err)
	_, memory := errors.AsType[*memoryError](err)
	return samples || memory
}
