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
	if timer := a.has().timer; timer != nil {
		return timer.Sum
	}
	return 0
}

func timerCount(a *amount) float64 {
	if timer := a.has().timer; timer != nil {
		return timer.Count
	}
	return 0
}

func (a *amount) addTimer(h *histogram.Exponential, maxBuckets int) {
	c := a.needs()
	if c.timer == nil {
		c.timer = new(histogram.Exponential)
		c.timer.Reset(h.Schema)
	}
	c.timer.Merge(h, maxBuckets)
}

func (timer) absorb(e *entry, t *openTile) {
	if timer := t.has().timer; timer != nil {
		e.total.addTimer(timer, int(e.policy.MaxBuckets))
		e.total.contents.float = nil
	}
}

func (timer) appendSamples(e *entry, out []Sample, w Width, at int64, f form) []Sample {
	return append(out, Sample{Series: e.series, T: at, H: e.floatHistogram(f), Exemplar: e.takeExemplar(w, at)})
}

var staleHistogram = &prom.FloatHistogram{Sum: staleNaN}

func (e *entry) floatHistogram(f form) *prom.FloatHistogram {
	total := e.total.has()
	switch {
	case f.stale:
		return staleHistogram
	case f.zero || total.timer == nil:
		// The empty histogram has the schema of the histograms that follow, so that queries see no change
		// of schema.
		schema := int32(e.policy.Schema)
		if total.timer != nil {
			schema = int32(total.timer.Schema)
		}
		return &prom.FloatHistogram{Schema: schema, ZeroThreshold: math.Ldexp(1, -128)}
	}
	if total.float == nil {
		total.float = total.timer.Float() // a total with a timer has contents of its own
	}
	return total.float
}

// keepExemplar keeps x for the tile that ends at `end`, if x is the tile's newest exemplar. x may
// be nil. Of two exemplars with the same time, it keeps the one that came last, as a window does.
func (e *entry) keepExemplar(end int64, x *batch.Exemplar) {
	if x == nil {
		return
	}
	newest := e.has().exemplars[end]
	switch {
	case newest == nil:
		r := e.needs()
		if r.exemplars == nil {
			r.exemplars = map[int64]*batch.Exemplar{}
		}
		newest = new(batch.Exemplar)
		r.exemplars[end] = newest
	case x.Time < newest.Time:
		return
	}
	*newest = *x
}

// takeExemplar returns the exemplar that goes to a store of the finest width with the tile that
// ends at `end`, or nil.
func (e *entry) takeExemplar(w Width, end int64) *batch.Exemplar {
	exemplars := e.has().exemplars
	if w != finest || exemplars == nil {
		return nil
	}
	x := exemplars[end]
	delete(exemplars, end)
	return x
}

func (timer) append(e *entry, t *openTile, dst []byte) []byte {
	if timer := e.amount(t).has().timer; timer == nil {
		dst = appendAmount(dst, 0, 0, 0)
	} else {
		dst = timer.Append(appendAmount(dst, flagTimer, 0, 0))
	}
	return e.appendExemplar(t, appendSources(dst, nil))
}

func (timer) parse(e *entry, t *openTile, d *decoder) {
	if flags, _, _ := d.amount(flagTimer); flags != 0 {
		h := new(histogram.Exponential)
		d.rest(h.Parse(d.b))
		e.amount(t).needs().timer = h
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
	if x := e.has().exemplars[t.end]; x != nil {
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
