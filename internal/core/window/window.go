// Package window is the collector's table. It holds the counts of each context of one listener, in
// the open window and in the window that is being flushed. The table belongs to the goroutine that
// reads the socket; only a closed window is shared. The resolver decides what a context becomes;
// the flusher decides where increments go.
package window

import (
	"hash/maphash"
	"time"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/arena"
	"github.com/freshet-io/freshet/internal/lib/index"
)

// Resolver decides what a context becomes. The table asks it only about contexts that the table
// does not hold, so an answer may take some microseconds.
type Resolver interface {
	ResolveMetric(m *dogstatsd.Metric) Resolution
	ResolveCheck(c *dogstatsd.Check) Resolution

	// UpDown reports whether a rule makes a count an up/down counter, which may go down. The table
	// asks this about negative counts of contexts that it does not hold. The answer takes no place
	// for the series.
	UpDown(m *dogstatsd.Metric) bool

	// ResolveOverflow returns the overflow series of a metric name, kind and policy, under which samples
	// of series without a place are counted. An empty name stands for all names of the kind that have no
	// overflow series of their own.
	ResolveOverflow(kind series.Kind, name string, policy *series.Policy) Resolution
}

// Resolution is the series that a context belongs to.
type Resolution struct {
	Key    []byte         // series.AppendKey; valid until the resolver is asked again
	Shard  uint16         // series.Shard of Key
	Policy *series.Policy // nil only if Drop is true
	Source uint64         // distinguishes the sources of a merged gauge; 0 if there is nothing to merge
	Scale  float64        // factor of every value, 1 for none
	Drop   bool           // a rule drops the context

	Unnamed   bool          // see limit.Claim
	Sender    sender.Sender // zero if unknown
	Container []byte        // valid until the resolver is asked again
}

// Options are the choices that change what a line means.
type Options struct {
	OriginLabels   bool   // origin fields become labels, so they are part of a context
	RelativeGauges bool   // StatsD: "+5|g" changes a gauge; DogStatsD sets it to 5
	IdleWindows    uint32 // a context leaves after this many windows without a sample

	Limits *limit.Tenant // asked for a place for each new series; nil for no limits
}

// maxSpellings is how many contexts of one series the table holds. Tags in random order would
// otherwise fill it with their permutations.
const maxSpellings = 8

// maxDropped is how many dropped contexts a table remembers. They need this bound because they have
// no series, so the limits do not count them. Further dropped contexts take the slow path.
const maxDropped = 16_384

// Stats counts what the table did since it was made. Each value on the wire is in Samples, Dropped,
// Negative, TimedRefused, AheadRefused, Overflowed or LimitRefused.
type Stats struct {
	Samples uint64 // values that entered a window
	Dropped uint64 // values that a rule dropped
	// Refused: a counter cannot go down, since Prometheus treats a fall as a restart. An up/down
	// counter can go down.
	Negative     uint64
	TimedRefused uint64                   // refused: the series already has maxTimed times (|T) in the window
	AheadRefused uint64                   // refused: gauges and checks whose own time is more than MaxAhead ahead
	Overflowed   uint64                   // refused: they would make the series infinite
	LimitRefused [limit.NumReasons]uint64 // gauges and checks of new series without a place
	Folded       uint64                   // samples of overflow series, part of Samples, up to the last closed window
	Contexts     uint64                   // contexts held now
	Series       uint64                   // series held now, counting each source of a merged gauge
	Resolved     uint64                   // contexts that were new
	Respellings  uint64                   // samples of a series that had maxSpellings contexts already

	Exemplars        uint64 // on lines that entered a window; each series keeps the newest
	ExemplarsRefused uint64 // on such lines: too far ahead of the clock, or not finite after scaling
}

// Plus adds the counts of a later table. The numbers of contexts and series held now come from the
// later table alone.
func (s Stats) Plus(later Stats) Stats {
	later.Samples += s.Samples
	later.Dropped += s.Dropped
	later.Negative += s.Negative
	later.TimedRefused += s.TimedRefused
	later.AheadRefused += s.AheadRefused
	later.Overflowed += s.Overflowed
	later.Exemplars += s.Exemplars
	later.ExemplarsRefused += s.ExemplarsRefused
	for reason := range s.LimitRefused {
		later.LimitRefused[reason] += s.LimitRefused[reason]
	}
	later.Folded += s.Folded
	later.Resolved += s.Resolved
	later.Respellings += s.Respellings
	return later
}

// Table holds the contexts and series of one listener. It is laid out for a million of them:
// counting a sample of a known context touches a slot, the context and the series' record, a cache
// line or two each. The garbage collector finds next to nothing to scan.
//
// Shape: about 370 bytes for a counter or gauge of 4 tags, including the memory of the limits. When a
// series is made, it gets all the memory that windows need, so a flush allocates nothing.
type Table struct {
	resolver Resolver
	options  Options
	seed     maphash.Seed

	contexts index.Index // arena.Refs in keys, by the hash of the spelling
	series   index.Index // numbers of records, by the hash of key and source
	keys     arena.Arena // contexts, and the keys of series without a place
	scales   []float64   // factors of contexts; the first is 1
	others   []byte      // scratch of `rest`
	scratch  []byte      // scratch of policyOf

	records       records
	last          uint32   // highest number of a record so far
	free          uint32   // first of the list of free records
	extras        []*extra // by record.extra
	freeExtras    []uint32
	policies      []policy // by record.policy
	policyNumbers map[string]uint32
	held          int // series with contexts
	dropped       int // contexts that a rule drops

	overflows     map[overflowName]uint32
	overflowNames []overflowName // keys of overflows, unordered
	overflowSweep int            // index of the next overflow to check for idleness
	folded        []uint32       // overflow series of the open window

	open       uint8       // index of the window that is being filled
	windows    [2]Window   // the flusher may have the window that is not open
	noted      noted       // used only by the flusher
	ordinal    uint32      // 1 + windows closed so far
	sweep      uint32      // last record checked for idleness
	recovered  int64       // limit.Tenant.Over at the last recovery
	recovering uint32      // last record checked in the recovery under way
	unclaimed  limit.Place // last place without a holder that this recovery checked

	stats Stats
}

// New returns an empty table.
func New(resolver Resolver, options Options) *Table {
	t := &Table{
		resolver: resolver,
		options:  options,
		seed:     maphash.MakeSeed(),
		scales:   []float64{1},
		extras:   make([]*extra, 1), // 0 is none

		policyNumbers: map[string]uint32{},
		overflows:     map[overflowName]uint32{},
		ordinal:       1,
	}
	for i := range t.windows {
		w := &t.windows[i]
		w.index, w.limits, w.keys, w.noted = uint8(i), options.Limits, &t.keys, &t.noted
	}
	return t
}

// Start begins the first window. `now` is Unix nanoseconds.
func (t *Table) Start(now int64) {
	t.windows[t.open].begin(now)
	// This table recovers only from a flood that is still going on, such as one during which the rules
	// change. The previous table has recovered from earlier floods.
	if limits := t.options.Limits; limits != nil && now-limits.Over() >= int64(time.Second) {
		t.recovered = limits.Over()
	}
}

// Stats returns the counts so far.
func (t *Table) Stats() Stats {
	s := t.stats
	s.Series = uint64(t.held)
	return s
}

// countMetric counts the values of a metric whose context has this hash.
func (t *Table) countMetric(hash uint64, m *dogstatsd.Metric, now int64) {
	if m.Type == dogstatsd.Count && negative(m.Values) && !t.upDown(hash, m) {
		t.refuseNegative(m)
		if len(m.Values) == 0 { // all refused, so it takes no place
			return
		}
	}
	samples := m.Samples()
	rest := t.rest(nil, &m.Origin)
	number, scale := t.find(hash, byte(m.Type), m.Name, m.Tags, rest)
	if number == 0 {
		resolved := t.resolver.ResolveMetric(m)
		if number, scale = t.add(&spelling{byte(m.Type), m.Name, m.Tags, rest}, &resolved, samples, now); number == 0 {
			return
		}
	}
	if r := t.touch(number, now); r.is(drops) {
		t.stats.Dropped += samples
	} else {
		t.count(t.metric(number, r, m, scale, samples, now), samples)
	}
}

// Check notes the status of a service check that was read at `now`.
func (t *Table) Check(c *dogstatsd.Check, now int64) {
	rest := t.rest(c.Host, &c.Origin)
	number, _ := t.find(t.hashOf(0, c.Name, c.Tags, rest), 0, c.Name, c.Tags, rest)
	if number == 0 {
		resolved := t.resolver.ResolveCheck(c)
		if number, _ = t.add(&spelling{0, c.Name, c.Tags, rest}, &resolved, 1, now); number == 0 {
			return
		}
	}
	if r := t.touch(number, now); r.is(drops) {
		t.stats.Dropped++
	} else {
		t.count(t.check(r, c, now), 1)
	}
}

// count counts the fate of samples that reached the open window.
func (t *Table) count(f fate, samples uint64) {
	switch f {
	case taken:
		t.stats.Samples += samples
	case tooManyTimes:
		t.stats.TimedRefused += samples
	case tooFarAhead:
		t.stats.AheadRefused += samples
	case overflows:
		t.stats.Overflowed += samples
	}
}

func negative(values []float64) bool {
	for _, v := range values {
		if v < 0 {
			return true
		}
	}
	return false
}

// upDown reports whether a negative count, whose context has this hash, may join its series. It
// looks the context up a second time, so that other counts have no extra cost.
func (t *Table) upDown(hash uint64, m *dogstatsd.Metric) bool {
	number, _ := t.find(hash, byte(m.Type), m.Name, m.Tags, t.rest(nil, &m.Origin))
	if number == 0 {
		return t.resolver.UpDown(m)
	}
	return t.records.at(number).is(upDown)
}

// refuseNegative removes negative increments from a counter's values.
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

// touch returns the record of a series and makes sure that it is in the open window.
func (t *Table) touch(number uint32, now int64) *record {
	r := t.records.at(number)
	if r.used != t.ordinal {
		r.flags &^= passerBy
		t.enter(number, r, now)
	}
	return r
}

// enter puts a series into the open window. The series must not be in it yet.
func (t *Table) enter(number uint32, r *record, now int64) {
	r.used = t.ordinal
	if !r.is(drops) {
		t.windows[t.open].enter(number, r, now)
	}
}

// Close ends the open window and begins the next one. It returns the window to flush, or nil if the
// window is empty. While the flusher still has the last window, Close does nothing and reports
// false: the open window goes on, so that a slow disk stretches windows but loses nothing. `now` is
// Unix nanoseconds.
//
// Packets wait meanwhile, so Close takes at most a few milliseconds, however large the table. A
// series leaves the table only while it is in neither window.
func (t *Table) Close(now int64) (w *Window, ok bool) {
	w = &t.windows[t.open]
	next := &t.windows[1-t.open]
	if next.flushing.Load() {
		return nil, false
	}
	t.ordinal++
	t.countFolded()
	t.leaveIdle(now)
	t.leaveIdleOverflows(now)
	t.recover(now)
	if w.series == 0 {
		w.begin(now)
		return nil, true
	}
	// A stretched window gets the time of its end, since its increments are not late. If the clock went
	// back, the window keeps the time at which it began.
	w.Second = max(w.Second, now/1e9-1)
	w.ordinal, w.records, w.extras, w.policies = t.ordinal, t.records, t.extras, t.policies
	w.flushing.Store(true)
	t.open = 1 - t.open
	next.begin(now)
	return w, true
}

// Second is the Unix second in which the open window began.
func (t *Table) Second() int64 { return t.windows[t.open].Second }
