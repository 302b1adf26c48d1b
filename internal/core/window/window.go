// Package window is the collector's table: what each context of one listener
// counted in the window that is open, and in the one that is being flushed. It
// belongs to the goroutine that reads the socket and is shared with nobody until
// a window is closed. What a context becomes is the resolver's decision; where
// increments go is the flusher's.
package window

import (
	"hash/maphash"
	"iter"
	"sync/atomic"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Resolver decides what a context becomes. It is asked only about contexts that
// the table does not hold, so it may take its time: microseconds, not more.
type Resolver interface {
	ResolveMetric(m *dogstatsd.Metric) Resolution
	ResolveCheck(c *dogstatsd.Check) Resolution

	// ResolveOverflow returns the series that the samples of series without a place
	// are counted under: that of the metric name, of the given kind and policy. An
	// empty name stands for the names of the kind that have no series.
	ResolveOverflow(kind series.Kind, name string, policy *series.Policy) Resolution
}

// Resolution is the series that a context belongs to.
type Resolution struct {
	Key    []byte         // series.AppendKey; the resolver's memory until it is asked again
	Shard  uint16         // series.Shard of Key
	Policy *series.Policy // never nil unless Drop
	Source uint64         // tells merged gauges apart, 0 if there is nothing to merge
	Scale  float64        // factor of every value, 1 for none
	Drop   bool           // a rule drops the context

	Unnamed   bool         // see limit.Claim
	Sender    limit.Sender // zero if nobody knows
	Container []byte       // the resolver's memory, too
}

// Options are the choices that change what a line means.
type Options struct {
	OriginLabels   bool   // origin fields become labels, so they are part of a context
	RelativeGauges bool   // StatsD: "+5|g" changes a gauge; DogStatsD sets it to 5
	IdleWindows    uint32 // a context leaves after so many windows without a sample

	Limits *limit.Tenant // asked for a place for each new series; nil for no limits
}

// maxSpellings is the number of contexts that may share one series in the table.
// Tags written in a random order would otherwise fill it with their permutations.
const maxSpellings = 8

// maxDropped is the number of dropped contexts that a table remembers. They have
// no series whose number is limited; what is beyond takes the slow path.
const maxDropped = 16_384

// Stats counts what the table did since it was made. Each value that it was given
// is in Samples, Dropped, Negative, TimedRefused, Overflowed or LimitRefused.
type Stats struct {
	Samples      uint64                   // values that entered a window
	Dropped      uint64                   // values that a rule dropped
	Negative     uint64                   // refused: a counter cannot go down, in Prometheus that is a restart
	TimedRefused uint64                   // refused: their series has maxTimed other times (|T) in the window
	Overflowed   uint64                   // refused: with them the series would not be finite
	LimitRefused [limit.NumReasons]uint64 // gauges and checks of new series without a place
	Folded       uint64                   // of Samples: those in overflow series, up to the last closed window
	Contexts     uint64                   // contexts held now
	Series       uint64                   // series held now, sources of merged gauges apart
	Resolved     uint64                   // contexts that were new
	Respellings  uint64                   // samples of a series that had maxSpellings contexts already
}

// Plus adds what a table did that came after: it counts on, and holds what it
// holds.
func (s Stats) Plus(later Stats) Stats {
	later.Samples += s.Samples
	later.Dropped += s.Dropped
	later.Negative += s.Negative
	later.TimedRefused += s.TimedRefused
	later.Overflowed += s.Overflowed
	for reason := range s.LimitRefused {
		later.LimitRefused[reason] += s.LimitRefused[reason]
	}
	later.Folded += s.Folded
	later.Resolved += s.Resolved
	later.Respellings += s.Respellings
	return later
}

// Table is the contexts and series of one listener.
type Table struct {
	resolver Resolver
	options  Options
	seed     maphash.Seed

	slots   []slot // open addressing, a power of two, at most half full
	entries []entry
	free    []uint32 // entries that left
	series  map[sourced]*record
	scratch []byte
	dropped int // contexts that a rule drops

	overflows map[overflowName]*overflow
	folded    []*record // overflow series of the open window
	recovered int64     // limit.Tenant.Over when passers-by last had to leave

	open    uint8     // which of the two windows is being filled
	windows [2]Window // the other one may be with the flusher
	ordinal uint32    // windows closed so far
	sweep   uint32    // next entry to look at for idleness

	stats Stats
}

// slot leads from a hash to an entry; 0 is free, so entries count from 1.
type slot struct {
	hash  uint32
	entry uint32
}

// entry is one context: a spelling of a series.
type entry struct {
	key    []byte // see (*Table).contextKey
	series *record
	scale  float64 // of the context: a.ms and a.s may be one series
	hash   uint32
	used   uint32 // ordinal of the last window with a sample
}

// record is one series, with an accumulator for each of the two windows. Of a
// context that a rule drops it says nothing else.
type record struct {
	key         []byte // series.AppendKey
	policy      *series.Policy
	policyBytes []byte // series.AppendPolicy of policy
	source      uint64
	place       limit.Place // 0 without limits, and of overflow series
	shard       uint16
	drop        bool
	spellings   uint8  // contexts that lead to it, at most maxSpellings
	born        uint32 // ordinal of the window with its first sample
	used        uint32 // ordinal of the last window with a sample, by whichever spelling
	windows     [2]accumulator
}

// sourced is a series key and the source of a merged gauge.
type sourced struct {
	key    string
	source uint64
}

// New returns an empty table.
func New(resolver Resolver, options Options) *Table {
	t := &Table{
		resolver: resolver,
		options:  options,
		seed:     maphash.MakeSeed(),
		slots:    make([]slot, 1024),
		entries:  make([]entry, 1, 256),
		series:   map[sourced]*record{},

		overflows: map[overflowName]*overflow{},
	}
	for i := range t.windows {
		t.windows[i].index = uint8(i)
	}
	return t
}

// Start says when the first window begins. now is Unix nanoseconds.
func (t *Table) Start(now int64) {
	t.windows[t.open].begin(now)
	// A flood that goes on, as while the rules are changed that let it in, is to be
	// recovered from; others were, by the table before this one.
	if limits := t.options.Limits; limits != nil && now-limits.Over() >= calm {
		t.recovered = limits.Over()
	}
}

// Stats returns the counts so far.
func (t *Table) Stats() Stats {
	s := t.stats
	s.Contexts, s.Series = uint64(t.held()), uint64(len(t.series))
	return s
}

// Metric counts the values of a metric that was read at now, Unix nanoseconds.
func (t *Table) Metric(m *dogstatsd.Metric, now int64) {
	if m.Type == dogstatsd.Count {
		t.refuseNegative(m)
		if len(m.Values) == 0 { // what is refused takes no place either
			return
		}
	}
	samples := uint64(max(1, len(m.Values)))
	key := t.contextKey(byte(m.Type), m.Name, m.Tags, nil, &m.Origin)
	r, scale := t.lookup(key)
	if r == nil {
		resolved := t.resolver.ResolveMetric(m)
		if r, scale = t.add(key, &resolved, samples, now); r == nil {
			return
		}
	}
	if r.drop {
		t.stats.Dropped += samples
		return
	}
	fate := t.touch(r, now).metric(r.policy, m, scale, samples, now, t.options.RelativeGauges)
	t.count(fate, samples)
}

// count counts what became of samples that reached the open window.
func (t *Table) count(f fate, samples uint64) {
	switch f {
	case taken:
		t.stats.Samples += samples
	case tooManyTimes:
		t.stats.TimedRefused += samples
	case overflows:
		t.stats.Overflowed += samples
	}
}

// refuseNegative takes negative increments out of a counter's values.
func (t *Table) refuseNegative(m *dogstatsd.Metric) {
	kept := m.Values[:0]
	for _, v := range m.Values {
		if v < 0 {
			t.stats.Negative++
			continue
		}
		kept = append(kept, v)
	}
	m.Values = kept
}

// Check notes the status of a service check that was read at now.
func (t *Table) Check(c *dogstatsd.Check, now int64) {
	key := t.contextKey(0, c.Name, c.Tags, c.Host, &c.Origin)
	r, _ := t.lookup(key)
	if r == nil {
		resolved := t.resolver.ResolveCheck(c)
		if r, _ = t.add(key, &resolved, 1, now); r == nil {
			return
		}
	}
	if r.drop {
		t.stats.Dropped++
		return
	}
	t.count(t.touch(r, now).check(c, now), 1)
}

// touch returns the series' accumulator in the open window.
func (t *Table) touch(r *record, now int64) *accumulator {
	w := &t.windows[t.open]
	a := &r.windows[t.open]
	if !a.touched {
		a.touched = true
		r.used = t.ordinal
		w.touched = append(w.touched, r)
		if len(w.touched) == 1 {
			w.Birth = now
		}
	}
	return a
}

// Close ends the open window and begins the next one. It returns the window to
// flush, nil if nothing happened in it. While the last window is still with the
// flusher it closes nothing and reports false: the open window goes on, so that
// a slow disk stretches windows and loses nothing. now is Unix nanoseconds.
func (t *Table) Close(now int64) (w *Window, ok bool) {
	w = &t.windows[t.open]
	next := &t.windows[1-t.open]
	if next.flushing.Load() {
		return nil, false
	}
	t.ordinal++
	t.countFolded()
	t.leaveIdle()
	t.leaveIdleOverflows()
	t.recover(now)
	if len(w.touched) == 0 {
		w.begin(now)
		return nil, true
	}
	// A stretched window is stamped by its end, since its increments are not
	// late. A clock that went back leaves the stamp where the window began.
	w.Second = max(w.Second, now/1e9-1)
	w.flushing.Store(true)
	t.open = 1 - t.open
	next.begin(now)
	return w, true
}

// Second is the Unix second in which the open window began.
func (t *Table) Second() int64 { return t.windows[t.open].Second }

// Window is what a table counted in one window, handed to the flusher.
type Window struct {
	Second int64 // Unix seconds
	Birth  int64 // Unix nanoseconds, when the first sample was read

	index    uint8
	touched  []*record
	scratch  batch.Increment
	flushing atomic.Bool // set by the table, cleared by the flusher
}

// Series is what a window holds of one series.
type Series struct {
	Key     []byte
	Samples uint64 // values on the wire
}

// Series yields each series that has something in the window. It must be read
// before Flush.
func (w *Window) Series() iter.Seq[Series] {
	return func(yield func(Series) bool) {
		for _, r := range w.touched {
			if !yield(Series{r.key, r.windows[w.index].samples()}) {
				return
			}
		}
	}
}

func (w *Window) begin(now int64) { w.Second = now / 1e9 }
