package tile

import (
	"cmp"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Folded counts the fates of the samples of one batch.
type Folded struct {
	Samples   uint64 // in a tile, including late ones
	Late      uint64 // part of Samples: their tile was closed, and the oldest open one took them
	LateGauge uint64 // not taken: a gauge reading for a closed tile is worthless
	Refused   uint64 // the sum would overflow a float, or the increment makes no sense
	Ahead     uint64 // part of Samples: their window was too far ahead, and the last open tile took them
	Unfit     uint64 // refused: values that earlier batches put into open tiles, before the series got other buckets
	Repeated  uint64 // refused: a sender's own delta, whose interval ends no later than one already counted
	NoTenant  uint64 // refused: their tenant is not admitted, see Refuse
	Again     uint64 // batches, not samples: already folded, as their sequences show
}

// Add adds the counts of another batch.
func (f *Folded) Add(g Folded) {
	f.Samples += g.Samples
	f.Late += g.Late
	f.LateGauge += g.LateGauge
	f.Refused += g.Refused
	f.Ahead += g.Ahead
	f.Unfit += g.Unfit
	f.Repeated += g.Repeated
	f.NoTenant += g.NoTenant
	f.Again += g.Again
}

// producer is the process that made a batch. The sequence numbers of its batches ascend, so a
// repeated batch is recognized.
type producer struct{ id, incarnation uint64 }

// received is the last batch of a producer.
type received struct {
	sequence uint64
	boundary int64 // Unix ms, of the shard when the batch came
}

func (p producer) compare(q producer) int {
	return cmp.Or(cmp.Compare(p.id, q.id), cmp.Compare(p.incarnation, q.incarnation))
}

// Fold adds a batch to the open tiles. An error means that the batch is damaged. Fold still adds
// its readable part.
func (s *Shard) Fold(b []byte) (Folded, error) {
	var f Folded
	r := &s.reader
	if err := r.Reset(b); err != nil {
		return f, err
	}
	h := &r.Header
	if s.again(h) {
		f.Again++
		return f, nil
	}
	t := s.tenants[string(h.Tenant)]
	if t == nil {
		t = s.tenant(string(h.Tenant))
	}
	if !t.holds() {
		s.altered = startOfMinute(s.closed)
	}
	t.folded = max(t.folded, min(h.Second*1000+1000, s.closed+MaxAhead*finest.Millis()))
	next := new(*entry)
	if t.last != nil {
		next = &t.last.next
	}
	for inc := r.Next(); inc != nil; inc = r.Next() {
		e, err := s.entry(t, *next, inc, &f)
		if err != nil {
			f.Refused += uint64(inc.Samples)
			continue
		}
		*next, next, t.last = e, &e.next, e
		if inc.Delta != 0 {
			if inc.Delta <= e.has().lastDelta {
				f.Repeated += uint64(inc.Samples)
				continue
			}
			e.needs().lastDelta = inc.Delta
		}
		s.fold(e, inc, &f)
	}
	return f, r.Err()
}

// Refuse takes a batch whose tenant is not admitted. Its samples join no tile, and are counted in
// NoTenant. The batch is known from then on: if it comes again, it is a repeat.
func (s *Shard) Refuse(b []byte) (f Folded, err error) {
	r := &s.reader
	if err := r.Reset(b); err != nil {
		return f, err
	}
	if s.again(&r.Header) {
		f.Again++
		return f, nil
	}
	for inc := r.Next(); inc != nil; inc = r.Next() {
		f.NoTenant += uint64(inc.Samples)
	}
	return f, r.Err()
}

// again reports whether the batch with this header came before, and notes that the batch came.
func (s *Shard) again(h *batch.Header) bool {
	from := producer{h.Producer, h.Incarnation}
	last := s.producers[from]
	switch {
	case last == nil:
		last = new(received)
		s.producers[from] = last
	case h.Sequence <= last.sequence:
		return true
	}
	*last = received{h.Sequence, s.closed}
	return false
}

func (s *Shard) tenant(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = newTenant(name)
		s.tenants[name] = t
	}
	return t
}

// fold adds one increment to the tile of its time.
func (s *Shard) fold(e *entry, inc *batch.Increment, f *Folded) {
	width := finest.Millis()
	t := s.reader.Header.Second * 1000 // the start of the window
	if inc.Time != 0 {
		if isReading(inc.Kind()) {
			s.foldTimed(e, inc, f)
			return
		}
		t = inc.Time * 1000
	}
	if inc.Delta != 0 {
		t = inc.Delta - 1 // the interval excludes its end
	}
	end := t - t%width + width
	late, ahead := end <= s.closed, end > s.closed+MaxAhead*width
	switch {
	// Older programs had no up/down counters: they wrote such series as gauges with Delta.
	case late && inc.Delta == 0 && isReading(inc.Kind()):
		f.LateGauge += uint64(inc.Samples)
		return
	case late:
		// The oldest open tile takes a late increment, so that totals stay exact.
		end = s.closed + width
	case ahead:
		end = s.closed + MaxAhead*width
	}
	tile := e.openTile(end)
	if !e.add(tile, inc) {
		f.Refused += uint64(inc.Samples)
		return
	}
	s.seconds.note(tile, inc, s.reader.Header.Second, t)
	e.lastSeen = max(e.lastSeen, end-width, min(t+1000, end))
	f.Samples += uint64(inc.Samples)
	if late {
		f.Late += uint64(inc.Samples)
	}
	if ahead {
		f.Ahead += uint64(inc.Samples)
	}
}

// foldTimed notes a gauge with a sender's timestamp: it is stored at that time and not
// aggregated.
func (s *Shard) foldTimed(e *entry, inc *batch.Increment, f *Folded) {
	t := inc.Time * 1000
	if t < s.closed-s.timedWindow {
		f.LateGauge += uint64(inc.Samples)
		return
	}
	// Collectors refuse samples more than window.MaxAhead ahead of their clock. Twice that distance
	// leaves room for lateness here and for differing clocks.
	if limit := s.closed + 2*MaxAhead*finest.Millis(); t > limit {
		t = limit
		f.Ahead += uint64(inc.Samples)
	}
	// A stamped gauge also alters what queries take its neighbours for: see adapter/promapi's LiveSample.
	s.timedOpen = min(s.timedOpen, t)
	s.altered = min(s.altered, s.timedOpen, s.timedClosed)
	e.addTimed(timedPoint{t, inc.Value, uint64(inc.Samples)})
	e.lastSeen = max(e.lastSeen, min(t, s.closed+finest.Millis()))
	f.Samples += uint64(inc.Samples)
}

// entry returns the series of an increment, created if needed, with an updated policy. `expected`
// is a likely candidate, or nil: batches of a producer list their series in the same order. Trying
// it first often avoids a lookup in the map, which is mostly in no CPU cache.
func (s *Shard) entry(t *tenant, expected *entry, inc *batch.Increment, f *Folded) (*entry, error) {
	e := expected
	if e == nil || e.key != string(inc.Key) {
		e = t.entries[string(inc.Key)]
	}
	if e != nil {
		if e.policyBytes == string(inc.Policy) {
			return e, nil
		}
		unfit, err := t.setPolicy(e, inc.Policy)
		f.Unfit += unfit
		return e, err
	}
	e, err := newEntry(inc.Key, inc.Policy)
	if err != nil {
		return nil, err
	}
	t.insert(e)
	s.count(e, 1)
	return e, nil
}

// count notes that a series was added (1) or removed (-1).
func (s *Shard) count(e *entry, n int) {
	s.series += n
	if e.kind == series.UpDown {
		s.upDowns += n
	}
}
