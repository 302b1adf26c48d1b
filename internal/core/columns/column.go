package columns

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// column has the samples of one series, in order of time and without stale markers, and a window of
// them. Samples before the window are dropped from time to time, so a column is about as large as its
// largest window. Its samples come from an iterator, or, if all are floats, from chunks: see chunked.
type column struct {
	it   chunkenc.Iterator
	kind chunkenc.ValueType // of the iterator's sample, which is not in the column yet
	t    int64              // its time
	v    float64            // its value, if it is a float

	chunked    chunked
	floats     list[promql.FPoint]
	resets     resets
	histograms list[promql.HPoint]
	sizes      list[int]                   // of the histograms, as the engine counts them
	size       int                         // of the histograms in the window
	free       []*histogram.FloatHistogram // used again, as by the engine
}

// list is a list with a window from `lo` to `hi`. `dropped` elements were before the list.
type list[P any] struct {
	all     []P
	lo, hi  int
	dropped int
}

func (l *list[P]) window() []P { return l.all[l.lo:l.hi] }

// end is the position after the window, counted from the first element of the series.
func (l *list[P]) end() int { return l.dropped + l.hi }

// add adds an element to the window, which is at the end of the list.
func (l *list[P]) add(p P) {
	l.all = append(l.all, p)
	l.hi = len(l.all)
}

// dropAt is how many elements before the window are kept at least, so that dropping is rare.
const dropAt = 1024

// trim drops the elements before the window if they are many.
func (l *list[P]) trim(dropping func([]P)) {
	if l.lo < dropAt || 2*l.lo < len(l.all) {
		return
	}
	if dropping != nil {
		dropping(l.all[:l.lo])
	}
	l.dropped += l.lo
	l.all = l.all[:copy(l.all, l.all[l.lo:])]
	l.lo, l.hi = 0, l.hi-l.lo
}

func (l *list[P]) reset() { *l = list[P]{all: l.all[:0]} }

// resets are the positions of the floats that are less than the float before them, from the first
// reset in the window on.
type resets struct {
	list[int]
	wanted bool // whether the function needs resets
}

// begin begins with the first sample of a series.
func (c *column) begin(it chunkenc.Iterator, wantResets bool) {
	c.empty(wantResets)
	c.chunked.is = false
	c.it = it
	c.took(it.Next())
}

// empty forgets the series before.
func (c *column) empty(wantResets bool) {
	c.recycle(c.histograms.all)
	c.floats.reset()
	c.histograms.reset()
	c.sizes.reset()
	c.size = 0
	c.resets.reset()
	c.resets.wanted = wantResets
}

func (c *column) recycle(points []promql.HPoint) {
	for _, p := range points {
		c.free = append(c.free, p.H)
	}
}

// took notes the sample that the iterator has moved to.
func (c *column) took(kind chunkenc.ValueType) {
	switch c.kind = kind; kind {
	case chunkenc.ValNone:
	case chunkenc.ValFloat:
		c.t, c.v = c.it.At()
	default:
		c.t = c.it.AtT()
	}
}

// held is the number of samples in the window, as the engine counts them.
func (c *column) held() int { return c.floats.hi - c.floats.lo + c.size }

// floatWindow returns the window, which has no histograms.
func (c *column) floatWindow() floatWindow {
	return floatWindow{all: c.floats.window(), first: c.floats.dropped + c.floats.lo, resets: c.resets.window()}
}

// advance moves the window to the times after `mint` up to `maxt`. It returns the number of samples
// in the window that are later than the window before.
func (c *column) advance(mint, maxt int64) (fresh int, err error) {
	if c.chunked.is {
		return c.advanceChunks(mint, maxt)
	}
	floats, histograms := c.floats.end(), c.histograms.end()
	if c.kind != chunkenc.ValNone && c.t < mint {
		c.took(c.it.Seek(mint))
	}
	for c.kind != chunkenc.ValNone && c.t <= maxt {
		if c.kind == chunkenc.ValFloat {
			c.addFloat()
		} else {
			c.addHistogram()
		}
		c.took(c.it.Next())
	}
	if c.kind == chunkenc.ValNone {
		err = c.it.Err()
	}
	c.leave(mint)
	fresh = c.floats.end() - max(floats, c.floats.dropped+c.floats.lo)
	for _, size := range c.sizes.all[max(histograms-c.sizes.dropped, c.sizes.lo):] {
		fresh += size
	}
	return fresh, err
}

func (c *column) addFloat() {
	if value.IsStaleNaN(c.v) {
		return
	}
	n := len(c.floats.all)
	if c.resets.wanted && n > 0 && c.v < c.floats.all[n-1].F {
		c.resets.add(c.floats.end())
	}
	c.floats.add(promql.FPoint{T: c.t, F: c.v})
}

func (c *column) addHistogram() {
	t, h := c.it.AtFloatHistogram(c.spare())
	if value.IsStaleNaN(h.Sum) {
		c.free = append(c.free, h)
		return
	}
	size := histogramSize(h)
	c.size += size
	c.sizes.add(size)
	c.histograms.add(promql.HPoint{T: t, H: h})
}

// spare returns a histogram that nobody uses.
func (c *column) spare() *histogram.FloatHistogram {
	n := len(c.free)
	if n == 0 {
		return &histogram.FloatHistogram{}
	}
	h := c.free[n-1]
	c.free = c.free[:n-1]
	return h
}

// leave moves the beginning of the window after `mint`.
func (c *column) leave(mint int64) {
	f := &c.floats
	for f.lo < f.hi && f.all[f.lo].T <= mint {
		f.lo++
	}
	r := &c.resets
	for r.lo < r.hi && r.all[r.lo] <= f.dropped+f.lo { // the float before this reset is outside
		r.lo++
	}
	h := &c.histograms
	for h.lo < len(h.all) && h.all[h.lo].T <= mint {
		c.size -= c.sizes.all[h.lo]
		h.lo++
	}
	c.sizes.lo = h.lo
	c.trim()
}

// trim drops samples before the window if they are many.
func (c *column) trim() {
	c.floats.trim(nil)
	c.resets.trim(nil)
	c.histograms.trim(c.recycle)
	c.sizes.trim(nil)
}
