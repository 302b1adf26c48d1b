package querier

import (
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/core/tile"
)

// liveSet is the series of the open tiles as a storage.SeriesSet.
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

// tileEnds leaves out the samples inside tiles that are open, and series that have no other.
// Such a sample would be the second one of a range that is too short for two tiles, and
// rate would make something of the two, at that one step and far from what it is.
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

// answer is what a select found, with live samples in it. See promapi.LiveSet.
type answer struct {
	storage.SeriesSet
	live  []tile.Live // sorted by labels
	width tile.Width
}

// LiveSample is the width of the tiles before the sample of a series at a time, if that is
// inside a tile that is open; 0 if not. Ends of tiles, which most samples are, cost no search.
func (a answer) LiveSample(of labels.Labels, at int64) (width int64) {
	width = a.width.Millis()
	if at%width == 0 {
		return 0
	}
	i, found := sort.Find(len(a.live), func(i int) int { return labels.Compare(of, a.live[i].Labels) })
	if !found {
		return 0
	}
	if points := a.live[i].Points; points[len(points)-1].T != at {
		return 0
	}
	return width
}

// liveSeries is a series of the open tiles, over what is stored of it.
type liveSeries struct {
	live   tile.Live
	stored storage.Series // nil if nothing is
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

// mergeSeries merges what the sets of a select have of one series. The chain of
// storage would let either of two samples at one time win; of an open and a
// stored tile it has to be the stored one, which is final.
func mergeSeries(all ...storage.Series) storage.Series {
	var live *liveSeries
	stored := make([]storage.Series, 0, len(all))
	for _, s := range all {
		if l, ok := s.(liveSeries); ok {
			live = &l
		} else {
			stored = append(stored, s)
		}
	}
	merged := stored[0] // of several series in all, at most one is live
	if len(stored) > 1 {
		merged = storage.ChainedSeriesMerge(stored...)
	}
	if live == nil {
		return merged
	}
	live.stored = merged
	return *live
}

// mergeIterator goes over the stored samples and the points of open tiles of one
// series in the order of time. Where both have a sample, the stored one counts.
type mergeIterator struct {
	stored  chunkenc.Iterator
	storedV chunkenc.ValueType // where stored stands; ValNone before the start and after the end
	points  []tile.Point       // those not passed yet; the first is the current one if onPoint
	begun   bool
	onPoint bool
	jumped  bool // the sample before the current one came from the other side
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

// millis is int64. By that name vet would take Seek for io.Seeker's.
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

// choose makes the earlier of both sides the current one.
func (m *mergeIterator) choose() chunkenc.ValueType {
	if m.storedV == chunkenc.ValNone && m.stored.Err() != nil {
		m.points = nil // what is missing is not to look like the end
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

// AtHistogram is never asked for a point, whose histograms are of floats.
func (m *mergeIterator) AtHistogram(h *histogram.Histogram) (int64, *histogram.Histogram) {
	t, h := m.stored.AtHistogram(h)
	if m.jumped && h.CounterResetHint != histogram.GaugeType {
		h.CounterResetHint = histogram.UnknownCounterReset
	}
	return t, h
}

func (m *mergeIterator) AtFloatHistogram(h *histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	if m.onPoint { // the reader may change what it gets; a point is shared
		p := m.points[0]
		if h == nil {
			return p.T, p.H.Copy()
		}
		p.H.CopyTo(h)
		return p.T, h
	}
	t, h := m.stored.AtFloatHistogram(h)
	// The hint compares with the stored sample before, which is not the one that
	// the reader saw last.
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
