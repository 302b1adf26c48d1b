package tile

import (
	"math"

	prom "github.com/prometheus/prometheus/model/histogram"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/histogram"
)

// timer counts values in a native histogram.
type timer struct{}

func (timer) add(e *entry, t *openTile, inc *batch.Increment) bool {
	if inc.Timer == nil || !e.bears(inc.Timer.Sum, timerSum) || !e.bears(inc.Timer.Count, timerCount) {
		return false
	}
	t.addTimer(inc.Timer, int(e.policy.MaxBuckets))
	e.keepExemplar(t.end, inc.Exemplar)
	return true
}

func timerSum(a *amount) float64 {
	if a.timer == nil {
		return 0
	}
	return a.timer.Sum
}

func timerCount(a *amount) float64 {
	if a.timer == nil {
		return 0
	}
	return a.timer.Count
}

func (a *amount) addTimer(h *histogram.Exponential, maxBuckets int) {
	if a.timer == nil {
		a.timer = new(histogram.Exponential)
		a.timer.Reset(h.Schema)
	}
	a.timer.Merge(h, maxBuckets)
}

func (timer) absorb(e *entry, t *openTile) {
	e.float = nil
	if t.timer != nil {
		e.total.addTimer(t.timer, int(e.policy.MaxBuckets))
	}
}

func (timer) appendSamples(e *entry, out []Sample, w Width, at int64, f form) []Sample {
	return append(out, Sample{Series: e.series, T: at, H: e.floatHistogram(f), Exemplar: e.takeExemplar(w, at)})
}

var staleHistogram = &prom.FloatHistogram{Sum: staleNaN}

func (e *entry) floatHistogram(f form) *prom.FloatHistogram {
	switch {
	case f.stale:
		return staleHistogram
	case f.zero || e.total.timer == nil:
		// The empty histogram has the schema of the histograms that follow, so that queries see no change
		// of schema.
		schema := int32(e.policy.Schema)
		if e.total.timer != nil {
			schema = int32(e.total.timer.Schema)
		}
		return &prom.FloatHistogram{Schema: schema, ZeroThreshold: math.Ldexp(1, -128)}
	}
	if e.float == nil {
		e.float = e.total.timer.Float()
	}
	return e.float
}

// keepExemplar keeps x for the tile that ends at `end`, if x is the tile's newest exemplar. x may
// be nil. Of two exemplars with the same time, it keeps the one that came last, as a window does.
func (e *entry) keepExemplar(end int64, x *batch.Exemplar) {
	if x == nil {
		return
	}
	newest := e.exemplars[end]
	switch {
	case newest == nil:
		if e.exemplars == nil {
			e.exemplars = map[int64]*batch.Exemplar{}
		}
		newest = new(batch.Exemplar)
		e.exemplars[end] = newest
	case x.Time < newest.Time:
		return
	}
	*newest = *x
}

// takeExemplar returns the exemplar that goes to a store of the finest width with the tile that
// ends at `end`, or nil.
func (e *entry) takeExemplar(w Width, end int64) *batch.Exemplar {
	if w != finest || e.exemplars == nil {
		return nil
	}
	x := e.exemplars[end]
	delete(e.exemplars, end)
	return x
}

func (timer) append(e *entry, t *openTile, dst []byte) []byte {
	if a := e.amount(t); a.timer == nil {
		dst = appendAmount(dst, 0, 0, 0)
	} else {
		dst = a.timer.Append(appendAmount(dst, flagTimer, 0, 0))
	}
	return e.appendExemplar(t, appendSources(dst, nil))
}

func (timer) parse(e *entry, t *openTile, d *decoder) {
	if flags, _, _ := d.amount(flagTimer); flags != 0 {
		h := new(histogram.Exponential)
		d.rest(h.Parse(d.b))
		e.amount(t).timer = h
	}
	d.sources()
	e.parseExemplar(t, d)
}

// appendExemplar writes the exemplar of an open tile. A 0 instead of the trace's length means that the
// tile has no exemplar. A total never has an exemplar.
func (e *entry) appendExemplar(t *openTile, dst []byte) []byte {
	if t == nil {
		return dst
	}
	if x := e.exemplars[t.end]; x != nil {
		return x.Append(dst, 0)
	}
	return append(dst, 0)
}

func (e *entry) parseExemplar(t *openTile, d *decoder) {
	if t == nil || d.version < 4 {
		return
	}
	if len(d.b) > 0 && d.b[0] == 0 {
		d.byte()
		return
	}
	e.keepExemplar(t.end, d.exemplar())
}

func (timer) rises() bool { return true }
