package querier

import (
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/core/stepcache"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// liveSet has the series of the open tiles, as a storage.SeriesSet.
type liveSet struct {
	series []tile.Live // sorted by labels
	next   int
}

func newLiveSet(series []tile.Live) *liveSet {
	sorted := slices.Clone(series)
	slices.SortFunc(sorted, func(a, b tile.Live) int { return labels.Compare(a.Labels, b.Labels) })
	return &liveSet{series: sorted}
}

func (s *liveSet) Next() bool {
	s.next++
	return s.next <= len(s.series)
}

func (s *liveSet) At() storage.Series                { return liveSeries{live: s.series[s.next-1]} }
func (s *liveSet) Err() error                        { return nil }
func (s *liveSet) Warnings() annotations.Annotations { return nil }

// tileEnds leaves out samples inside open tiles, and series that have no other samples. If a range is
// too short for two tiles, it has the end of one tile only, and rate returns nothing. With a sample
// inside the open tile, the range would have two samples, and rate would return a wrong value.
func tileEnds(series []tile.Live, w tile.Width) (ends []tile.Live) {
	for _, s := range series {
		if n := len(s.Points); s.Points[n-1].T%w.Millis() != 0 {
			s.Points = s.Points[:n-1]
		}
		if len(s.Points) > 0 {
			ends = append(ends, s)
		}
	}
	return ends
}

// answer is the result of a select, with its live samples. See promapi.LiveSet.
type answer struct {
	storage.SeriesSet
	live  []tile.Live // sorted by labels
	width tile.Width
}

// LiveSample checks whether a series' sample at time `at` is inside an open tile. It returns the tile's
// width, or 0 if the sample is in no open tile. Most samples are at the end of a tile, and need no
// search.
func (a answer) LiveSample(of labels.Labels, at int64) (width int64) {
	width = a.width.Millis()
	if at%width == 0 {
		return 0
	}
	if t, ok := a.LiveAt(of); !ok || t != at {
		return 0
	}
	return width
}

// LiveAt returns the time of a series' sample inside an open tile. It is not ok if there is none.
func (a answer) LiveAt(of labels.Labels) (at int64, ok bool) {
	i, found := sort.Find(len(a.live), func(i int) int { return labels.Compare(of, a.live[i].Labels) })
	if !found {
		return 0, false
	}
	points := a.live[i].Points
	at = points[len(points)-1].T
	return at, at%a.width.Millis() != 0
}

// liveSeries combines a series of the open tiles with its stored samples.
type liveSeries struct {
	live   tile.Live
	stored storage.Series // nil if the series has no stored samples
}

func (s liveSeries) Labels() labels.Labels { return s.live.Labels }

func (s liveSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	var inner chunkenc.Iterator
	m, reused := it.(*mergeIterator)
	if reused {
		inner = m.stored
	} else {
		m = &mergeIterator{}
	}
	*m = mergeIterator{points: s.live.Points, stored: chunkenc.NewNopIterator()}
	if s.stored != nil {
		m.stored = s.stored.Iterator(inner)
	}
	return m
}

// mergeSeries merges the samples of one series from all sets of a select. If an open and a stored tile
// have a sample at the same time, the stored sample must win, because it is final. The merge in package
// storage would choose either of the two samples, and does if two stores have one. `reading` may be nil.
func mergeSeries(reading *stepcache.Reading, all ...storage.Series) storage.Series {
	var live *liveSeries
	stored := make([]storage.Series, 0, len(all))
	for _, s := range all {
		if l, ok := s.(liveSeries); ok {
			live = &l
		} else {
			stored = append(stored, s)
		}
	}
	merged := stored[0] // not empty: `all` has several series, at most one of them live
	if len(stored) > 1 {
		reading.Merge()
		merged = storage.ChainedSeriesMerge(stored...)
	}
	if live == nil {
		return merged
	}
	live.stored = merged
	return *live
}

// mergeIterator iterates over the stored samples and the points of the open tiles of one series, in
// order of time. If both have a sample at the same time, the stored one counts.
type mergeIterator struct {
	stored  chunkenc.Iterator
	storedV chunkenc.ValueType // type of the current stored sample; ValNone before the start and after the end
	points  []tile.Point       // remaining points; if onPoint, the first one is the current sample
	begun   bool
	onPoint bool
	jumped  bool // the previous sample and the current one are from different sources
}

func (m *mergeIterator) Next() chunkenc.ValueType {
	switch {
	case !m.begun:
		m.begun = true
		m.storedV = m.stored.Next()
	case m.onPoint:
		m.points = m.points[1:]
	case m.storedV != chunkenc.ValNone:
		m.storedV = m.stored.Next()
	}
	return m.choose()
}

// millis is int64 under another name. If Seek's parameter had the type name int64, go vet would
// mistake the method for the Seek of io.Seeker.
type millis = int64

func (m *mergeIterator) Seek(t millis) chunkenc.ValueType {
	if m.begun && m.current() != chunkenc.ValNone && m.AtT() >= t {
		return m.current()
	}
	if !m.begun || m.storedV != chunkenc.ValNone {
		m.storedV = m.stored.Seek(t)
	}
	m.begun = true
	for len(m.points) > 0 && m.points[0].T < t {
		m.points = m.points[1:]
	}
	return m.choose()
}

// choose moves on to the next stored sample or the next point, whichever is earlier.
func (m *mergeIterator) choose() chunkenc.ValueType {
	if m.storedV == chunkenc.ValNone && m.stored.Err() != nil {
		m.points = nil // stop here, since an error must not look like the end of the stored samples
	}
	if m.storedV != chunkenc.ValNone {
		for len(m.points) > 0 && m.points[0].T == m.stored.AtT() {
			m.points = m.points[1:]
		}
	}
	was := m.onPoint
	m.onPoint = len(m.points) > 0 && (m.storedV == chunkenc.ValNone || m.points[0].T < m.stored.AtT())
	m.jumped = m.onPoint != was
	return m.current()
}

func (m *mergeIterator) current() chunkenc.ValueType {
	switch {
	case !m.onPoint:
		return m.storedV
	case m.points[0].H != nil:
		return chunkenc.ValFloatHistogram
	default:
		return chunkenc.ValFloat
	}
}

func (m *mergeIterator) At() (int64, float64) {
	if m.onPoint {
		return m.points[0].T, m.points[0].V
	}
	return m.stored.At()
}

// AtHistogram is never called at a point, because the histograms of points have float counts.
func (m *mergeIterator) AtHistogram(h *histogram.Histogram) (int64, *histogram.Histogram) {
	t, h := m.stored.AtHistogram(h)
	if m.jumped && h.CounterResetHint != histogram.GaugeType {
		h.CounterResetHint = histogram.UnknownCounterReset
	}
	return t, h
}

func (m *mergeIterator) AtFloatHistogram(h *histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	if m.onPoint { // copied, since the reader may change the result, and queries share the point
		p := m.points[0]
		if h == nil {
			return p.T, p.H.Copy()
		}
		p.H.CopyTo(h)
		return p.T, h
	}
	t, h := m.stored.AtFloatHistogram(h)
	// The hint compares this sample with the previous stored sample, but the reader has seen a point
	// in between.
	if m.jumped && h.CounterResetHint != histogram.GaugeType {
		h.CounterResetHint = histogram.UnknownCounterReset
	}
	return t, h
}

func (m *mergeIterator) AtT() int64 {
	if m.onPoint {
		return m.points[0].T
	}
	return m.stored.AtT()
}

func (m *mergeIterator) AtST() int64 {
	if m.onPoint {
		return 0
	}
	return m.stored.AtST()
}

func (m *mergeIterator) Err() error { return m.stored.Err() }
