// Package tile is the aggregator's state: what each series of a shard has
// counted since it began, and the tiles that are still open. It is a state
// machine without a clock: the same batches and boundaries in the same order
// give the same samples, bit for bit, which is what makes the journal a way to
// come back. When a boundary is due, and what becomes of the samples, is the
// aggregator's business.
package tile

import (
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/prometheus/common/model"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Config says how long series live. All shards share one.
type Config struct {
	CounterTTL time.Duration // of counters, timers and sets, after their last sample
	GaugeTTL   time.Duration
	CheckTTL   time.Duration
	UpDownTTL  time.Duration
	OutOfOrder time.Duration // how far before the last boundary a |T gauge may lie, from the next boundary on

	// Full are the tenants for which no more may wait to be stored. Their tiles repeat no
	// series, or what waits would grow with each boundary though nothing is counted. They
	// are those of one boundary: what shards share has none.
	Full []string
}

// ttl is in milliseconds.
func (c *Config) ttl(kind series.Kind) int64 {
	switch kind {
	case series.Gauge:
		return c.GaugeTTL.Milliseconds()
	case series.Check:
		return c.CheckTTL.Milliseconds()
	case series.UpDown:
		return c.UpDownTTL.Milliseconds()
	default:
		return c.CounterTTL.Milliseconds()
	}
}

// finest is the width by which tiles close; every other width is a multiple.
const finest = Width10s

// MaxAhead is how many tiles may be open at once. A window from further ahead
// joins the last of them: one sender with a fast clock must not open tiles that
// nobody will close for hours.
const MaxAhead = 6

// Shard is the state of one shard. It belongs to one goroutine at a time.
type Shard struct {
	config      *Config
	closed      int64 // boundary: end of the last closed tile, Unix milliseconds
	timedWindow int64 // Config.OutOfOrder of the last boundary, ms: folding obeys it, so a replay has to know it
	tenants     map[string]*tenant
	senders     map[Sender]*Received
	series      int // of all tenants
	upDowns     int // of these, the up/down counters
	reader      batch.Reader
	logs        [MaxAhead]log // of the open tiles, by end in tiles modulo MaxAhead
	spare       []byte        // for the next log
}

// tenant holds a tenant's series by key and by name, and what its stores do not have yet.
type tenant struct {
	name    string
	entries map[string]*entry
	byName  map[string]map[*entry]struct{}
	first   *entry     // the series of the last batch's first increment, see entry.next
	waiting []*Waiting // closed tiles, by boundary
	folded  int64      // end of the newest window that this process folded, Unix ms
}

// Sender is one process of one collector.
type Sender struct{ ID, Incarnation uint64 }

// Received is the last batch that came from a sender.
type Received struct {
	Sequence uint64
	Boundary int64 // Unix ms, of the shard at that time
}

// New returns an empty shard whose first tile begins at boundary, Unix
// milliseconds, a multiple of ten seconds.
func New(config *Config, boundary int64) *Shard {
	return &Shard{
		config:      config,
		closed:      boundary,
		timedWindow: config.OutOfOrder.Milliseconds(),
		tenants:     map[string]*tenant{},
		senders:     map[Sender]*Received{},
	}
}

// Closed is the boundary: the end of the last closed tile, Unix milliseconds.
func (s *Shard) Closed() int64 { return s.closed }

// Folded counts what became of the samples of one batch.
type Folded struct {
	Samples   uint64 // in a tile, the late ones included
	Late      uint64 // of which: their tile was closed, the oldest open one took them
	LateGauge uint64 // dropped: a gauge of a closed tile has nothing to say
	Refused   uint64 // the sum would be beyond what a float holds, or the increment makes no sense
	Ahead     uint64 // of which: their window lay too far ahead, the last open tile took them
	Dropped   uint64 // of earlier batches, from open tiles: their series has other buckets now
	Repeated  uint64 // dropped: a sender's own delta of an interval that ends no later than what was counted already
	Again     uint64 // batches, not samples: their sender's sequence says that they were folded before
}

// Add sums up the counts of several batches.
func (f *Folded) Add(g Folded) {
	f.Samples += g.Samples
	f.Late += g.Late
	f.LateGauge += g.LateGauge
	f.Refused += g.Refused
	f.Ahead += g.Ahead
	f.Dropped += g.Dropped
	f.Repeated += g.Repeated
	f.Again += g.Again
}

// Fold adds a batch to the open tiles. An error means that the batch is damaged;
// what could be read of it is folded, since a batch is never half sent.
func (s *Shard) Fold(b []byte) (Folded, error) {
	var f Folded
	r := &s.reader
	if err := r.Reset(b); err != nil {
		return f, err
	}
	h := &r.Header
	sender := Sender{h.Sender, h.Incarnation}
	last := s.senders[sender]
	switch {
	case last == nil:
		last = new(Received)
		s.senders[sender] = last
	case h.Sequence <= last.Sequence: // it was folded already
		f.Again++
		return f, nil
	}
	*last = Received{h.Sequence, s.closed}
	t := s.tenants[string(h.Tenant)]
	if t == nil {
		t = s.tenant(string(h.Tenant))
	}
	t.folded = max(t.folded, min(h.Second*1000+1000, s.closed+MaxAhead*finest.Millis()))
	for inc, next := r.Next(), &t.first; inc != nil; inc = r.Next() {
		e, err := s.entry(t, *next, inc, &f)
		if err != nil {
			f.Refused += uint64(inc.Samples)
			continue
		}
		*next, next = e, &e.next
		if inc.Delta != 0 {
			if inc.Delta <= e.lastDelta {
				f.Repeated += uint64(inc.Samples)
				continue
			}
			e.lastDelta = inc.Delta
		}
		s.fold(e, inc, &f)
	}
	return f, r.Err()
}

func (s *Shard) tenant(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{name: name, entries: map[string]*entry{}, byName: map[string]map[*entry]struct{}{}}
		s.tenants[name] = t
	}
	return t
}

// fold adds one increment to the tile of its time.
func (s *Shard) fold(e *entry, inc *batch.Increment, f *Folded) {
	width := finest.Millis()
	t := s.reader.Header.Second * 1000 // the start of the window
	if inc.Time != 0 {
		if inc.Kind() == series.Gauge || inc.Kind() == series.Check {
			s.foldTimed(e, inc, f)
			return
		}
		t = inc.Time * 1000
	}
	if inc.Delta != 0 {
		t = inc.Delta - 1 // the interval's end is no part of it
	}
	end := t - t%width + width
	late, ahead := end <= s.closed, end > s.closed+MaxAhead*width
	switch {
	// Programs from before up/down counters wrote them as gauges with Delta.
	case late && inc.Delta == 0 && (inc.Kind() == series.Gauge || inc.Kind() == series.Check):
		f.LateGauge += uint64(inc.Samples)
		return
	case late:
		// The oldest open tile takes it, so that totals stay exact.
		end = s.closed + width
	case ahead:
		end = s.closed + MaxAhead*width
	}
	tile := e.openTile(end)
	if !e.add(tile, inc) {
		f.Refused += uint64(inc.Samples)
		return
	}
	s.note(tile, inc, t)
	e.lastSeen = max(e.lastSeen, end-width, min(t+1000, end))
	f.Samples += uint64(inc.Samples)
	if late {
		f.Late += uint64(inc.Samples)
	}
	if ahead {
		f.Ahead += uint64(inc.Samples)
	}
}

// foldTimed notes a gauge that its sender stamped: it is written at its own time
// and not aggregated.
func (s *Shard) foldTimed(e *entry, inc *batch.Increment, f *Folded) {
	t := inc.Time * 1000
	if t < s.closed-s.timedWindow {
		f.LateGauge += uint64(inc.Samples)
		return
	}
	// Collectors refuse what is more than window.MaxAhead ahead of their clock. Twice that
	// leaves room for the lateness here and for clocks that differ.
	if limit := s.closed + 2*MaxAhead*finest.Millis(); t > limit {
		t = limit
		f.Ahead += uint64(inc.Samples)
	}
	e.addTimed(timedPoint{t, inc.Value, uint64(inc.Samples)})
	e.lastSeen = max(e.lastSeen, min(t, s.closed+finest.Millis()))
	f.Samples += uint64(inc.Samples)
}

// entry returns the series of an increment, new if need be, and keeps its policy
// up to date. It is likely the expected one, which is nil or a series that is or
// was held: batches of a sender list their series in the same order, and to look
// there first spares the map, most of which is in no cache.
func (s *Shard) entry(t *tenant, expected *entry, inc *batch.Increment, f *Folded) (*entry, error) {
	e := expected
	if e == nil || e.key != string(inc.Key) {
		e = t.entries[string(inc.Key)]
	}
	if e != nil {
		if e.policyBytes == string(inc.Policy) {
			return e, nil
		}
		t.remove(e) // other buckets have other names
		defer t.insert(e)
		dropped, err := e.setPolicy(inc.Policy)
		f.Dropped += dropped
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

// count notes that a series came, 1, or left, -1.
func (s *Shard) count(e *entry, n int) {
	s.series += n
	if e.kind == series.UpDown {
		s.upDowns += n
	}
}

func newEntry(key, policy []byte) (*entry, error) {
	kind, ls, err := series.ParseKey(key)
	if err != nil {
		return nil, fmt.Errorf("series: %w", err)
	}
	e := &entry{kind: kind, key: string(key), series: &Series{Labels: ls, Kind: kind}}
	_, err = e.setPolicy(policy)
	return e, err
}

func (t *tenant) insert(e *entry) {
	t.entries[e.key] = e
	for _, s := range e.stored() {
		name := s.Labels.Get(model.MetricNameLabel)
		if t.byName[name] == nil {
			t.byName[name] = map[*entry]struct{}{}
		}
		t.byName[name][e] = struct{}{}
	}
}

func (t *tenant) remove(e *entry) {
	delete(t.entries, e.key)
	for _, s := range e.stored() {
		name := s.Labels.Get(model.MetricNameLabel)
		if delete(t.byName[name], e); len(t.byName[name]) == 0 {
			delete(t.byName, name)
		}
	}
}

// Len is the number of series held.
func (s *Shard) Len() int { return s.series }

// HasUpDown reports whether any series held is an up/down counter.
func (s *Shard) HasUpDown() bool { return s.upDowns > 0 }

// TenantLen is the number of series held of a tenant.
func (s *Shard) TenantLen(name string) int {
	if t := s.tenants[name]; t != nil {
		return len(t.entries)
	}
	return 0
}

// Holds reports whether a series of a tenant is held.
func (s *Shard) Holds(name string, key []byte) bool {
	t := s.tenants[name]
	return t != nil && t.entries[string(key)] != nil
}

// Knows reports whether the batch of a header was folded already.
func (s *Shard) Knows(h *batch.Header) bool {
	last := s.senders[Sender{h.Sender, h.Incarnation}]
	return last != nil && h.Sequence <= last.Sequence
}

// Raw returns how many values on the wire are in tiles, by tenant: in open ones,
// and in those that are closed and wait to be stored.
func (s *Shard) Raw() map[string]uint64 {
	held := map[string]uint64{}
	for _, t := range s.tenants {
		for _, e := range t.entries {
			held[t.name] += e.raw()
		}
		for _, w := range t.waiting {
			held[t.name] += w.Raw
		}
	}
	return held
}

// LastSeen is the end of the last window that counted something in a series that is
// held, Unix milliseconds; 0 for none. It looks at all series.
func (s *Shard) LastSeen() (ms int64) {
	for _, t := range s.tenants {
		for _, e := range t.entries {
			ms = max(ms, e.lastSeen)
		}
	}
	return ms
}

// Series yields each series that is held, by tenant, with each of the sources of
// a merged gauge; 0 where there is nothing to merge.
func (s *Shard) Series() iter.Seq[Held] {
	return func(yield func(Held) bool) {
		for _, t := range s.tenants {
			for _, e := range t.entries {
				if !e.held(t.name, yield) {
					return
				}
			}
		}
	}
}

// Held is a series of a shard.
type Held struct {
	Tenant string
	Key    string // series.AppendKey
	Source uint64

	LastSeen int64 // Unix ms, end of the last window with a sample
	Delta    bool  // its sender counts by itself: it came by OTLP
}

func (e *entry) held(tenant string, yield func(Held) bool) bool {
	sources := maps.Clone(e.sources)
	for _, t := range e.open {
		if sources == nil {
			sources = map[uint64]sourceValue{}
		}
		maps.Copy(sources, t.sources)
	}
	if len(sources) == 0 {
		return yield(Held{Tenant: tenant, Key: e.key, LastSeen: e.lastSeen, Delta: e.lastDelta != 0})
	}
	for source := range sources {
		if !yield(Held{Tenant: tenant, Key: e.key, Source: source, LastSeen: e.lastSeen}) {
			return false
		}
	}
	return true
}
