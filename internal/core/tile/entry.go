package tile

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"unsafe"

	prom "github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/prefetch"
)

// entry is the state of one series. The package comment draws its states.
//
// The fields that each increment touches come first. With many series, no field is in a CPU cache,
// and loading a line of 64 bytes costs as much as the arithmetic.
type entry struct {
	key         string // series.AppendKey; empty once the series is gone
	next        *entry // hint: the series that followed the last time, perhaps in the next batch
	policyBytes string
	policy      *series.Policy
	lastSeen    int64 // Unix ms, end of the last window with a sample
	kind        series.Kind
	inBuckets   bool            // the timer has classic buckets, in rare.classic
	started     bool            // total is not empty
	live        [NumWidths]bool // the store's newest sample of the series is a value, not a stale marker
	owes        [NumWidths]bool // total includes something that the store has not been given yet

	open       []openTile // in order of their ends, which are after the boundary
	total      amount     // the sum of all tiles up to the boundary
	series     *Series
	lastStored [NumWidths]int64 // Unix ms of the newest sample handed out, 0 for none
	rare       *rare            // nil if all its fields are empty: see has and needs
}

// rare has the fields of an entry that most series do not need.
type rare struct {
	lastDelta int64        // Unix ms, end of the last interval that a sender's own delta covered; 0 for none
	classic   []*Series    // replaces series for a timer with classic buckets, see classicSeries
	timed     []timedPoint // stamped by the sender, in order of time, not handed out yet
	minute    distinct.Set // of a set: the values of the open one-minute tile

	exemplars map[int64]*batch.Exemplar // of a timer: the newest of each open tile, by the tile's end; nil for none
}

var noRare rare // never changed

// has returns the rare fields of a series, which the caller must not change.
func (e *entry) has() *rare {
	if e.rare == nil {
		return &noRare
	}
	return e.rare
}

// needs returns the rare fields of a series, to be changed.
func (e *entry) needs() *rare {
	if e.rare == nil {
		e.rare = new(rare)
	}
	return e.rare
}

// fetch asks the CPU for the memory of series that a loop over `all` needs soon after all[i].
func fetch(all []*entry, i int) {
	const far, near = 6, 3
	if i+far >= len(all) {
		return
	}
	e := unsafe.Pointer(all[i+far])
	prefetch.Lines([]unsafe.Pointer{
		e, unsafe.Add(e, cacheLine), unsafe.Add(e, 2*cacheLine), unsafe.Pointer(unsafe.SliceData(all[i+near].open)),
	})
}

// cacheLine is the size of a line of the CPU's caches, in bytes.
const cacheLine = 64

// timedPoint is a value with a sender's timestamp.
type timedPoint struct {
	t       int64 // Unix ms
	v       float64
	samples uint64 // values on the wire
}

// openTile has the counts of a series in one tile of the finest width.
type openTile struct {
	end     int64  // Unix ms
	samples uint64 // values on the wire
	amount
}

// amount has the counts or the value of a series of any kind, in one tile or in all tiles so far.
type amount struct {
	value    float64   // counter, up/down counter: sum; gauge, check: the last
	at       int64     // gauge, check: Unix ns at which value was read
	newest   uint32    // of an open tile: the place of its newest increment in the trail
	relative bool      // gauge: value is a change
	contents *contents // what is more than a value; nil if there is nothing: see has and needs
}

// contents has the part of an amount that counters and most gauges do not need.
type contents struct {
	timer   *histogram.Exponential
	float   *prom.FloatHistogram // of the timer of a total; nil if it must be remade
	classic []float64            // timer in classic buckets: counts per bound, not cumulative
	sum     float64              // of the values counted in classic
	set     *distinct.Set
	sources map[uint64]sourceValue // of a gauge that is merged from several sources
}

var noContents contents // never changed

// has returns the contents of an amount, which the caller must not change.
func (a *amount) has() *contents {
	if a.contents == nil {
		return &noContents
	}
	return a.contents
}

// needs returns the contents of an amount, to be changed.
func (a *amount) needs() *contents {
	if a.contents == nil {
		a.contents = new(contents)
	}
	return a.contents
}

// clone returns a copy that can change alone. A set is never changed after its tile is closed, nor is a histogram of
// the stores.
func (c *contents) clone() *contents {
	if c == nil {
		return nil
	}
	d := *c
	if c.timer != nil {
		d.timer = c.timer.Clone()
	}
	d.classic, d.sources = slices.Clone(c.classic), maps.Clone(c.sources)
	return &d
}

// sourceValue is the last value of one source of a merged gauge.
type sourceValue struct {
	value float64
	at    int64 // Unix ns
}

// amount returns the amount of an open tile, or of all closed ones if t is nil.
func (e *entry) amount(t *openTile) *amount {
	if t == nil {
		return &e.total
	}
	return &t.amount
}

// stored returns the series by which the stores know the entry: several for classic buckets.
func (e *entry) stored() []*Series {
	if classic := e.has().classic; classic != nil {
		return classic
	}
	return []*Series{e.series}
}

// openTile returns the tile that ends at `end`.
func (e *entry) openTile(end int64) *openTile {
	if len(e.open) > 0 && e.open[0].end == end { // nearly always
		return &e.open[0]
	}
	i, found := slices.BinarySearchFunc(e.open, end, func(t openTile, end int64) int { return cmp.Compare(t.end, end) })
	if !found {
		e.open = slices.Insert(e.open, i, openTile{end: end})
	}
	return &e.open[i]
}

// bears reports whether the sum that `of` selects can grow by `more` without an overflow. The total
// must stay finite in whatever order the open tiles join it: otherwise PromQL could not subtract,
// and a checkpoint could not be read.
func (e *entry) bears(more float64, of func(*amount) float64) bool {
	sum := math.Abs(more) + math.Abs(of(&e.total))
	for i := range e.open {
		sum += math.Abs(of(&e.open[i].amount))
	}
	return !math.IsInf(sum, 0) && !math.IsNaN(sum)
}

func amountValue(a *amount) float64 { return a.value }

// addTimed keeps a stamped point in order of time. A point replaces an earlier point with the same
// timestamp, and takes over that point's number of samples.
func (e *entry) addTimed(p timedPoint) {
	r := e.needs()
	i, found := slices.BinarySearchFunc(r.timed, p.t, func(q timedPoint, t int64) int { return cmp.Compare(q.t, t) })
	if found {
		p.samples += r.timed[i].samples
		r.timed[i] = p
		return
	}
	r.timed = slices.Insert(r.timed, i, p)
}

// pending reports whether the store of a width lacks some of the series' counts.
func (e *entry) pending(w Width) bool { return len(e.open) > 0 || e.owes[w] }

// raw returns how many values on the wire are in the open tiles of the series.
func (e *entry) raw() (n uint64) {
	for i := range e.open {
		n += e.open[i].samples
	}
	for _, p := range e.has().timed {
		n += p.samples
	}
	return n
}

// forget drops everything that the series counted: it starts again at zero.
func (e *entry) forget() { e.started, e.total = false, amount{} }

// copyTo makes c a copy of the series without its open tiles. c may hold an older copy. Closing the
// copy does not change e.
func (e *entry) copyTo(c *entry) {
	*c = entry{
		series: e.series, kind: e.kind, inBuckets: e.inBuckets, policy: e.policy,
		live: e.live, owes: e.owes, lastStored: e.lastStored,
		started: e.started, total: e.total, open: c.open[:0], rare: c.rare,
	}
	c.total.contents = e.total.contents.clone()
	if c.rare != nil {
		c.rare.minute.Reset()
		*c.rare = rare{minute: c.rare.minute}
	}
	if e.rare != nil {
		c.needs().classic = e.rare.classic
		c.rare.minute.Merge(&e.rare.minute)
	}
}

// held yields the series once, or once per source if it is a merged gauge.
func (e *entry) held(tenant string, yield func(Held) bool) bool {
	sources := maps.Clone(e.total.has().sources)
	for _, t := range e.open {
		if sources == nil {
			sources = map[uint64]sourceValue{}
		}
		maps.Copy(sources, t.has().sources)
	}
	if len(sources) == 0 {
		return yield(Held{Tenant: tenant, Key: e.key, LastSeen: e.lastSeen, Delta: e.has().lastDelta != 0})
	}
	for source := range sources {
		if !yield(Held{Tenant: tenant, Key: e.key, Source: source, LastSeen: e.lastSeen}) {
			return false
		}
	}
	return true
}

// form says whether a zero or a stale marker replaces the value of a sample.
type form struct{ zero, stale bool }

var staleNaN = math.Float64frombits(value.StaleNaN)

// appendValue appends a sample with value v, or with the value that f puts in its place.
func appendValue(out []Sample, s *Series, t int64, f form, v float64) []Sample {
	switch {
	case f.stale:
		v = staleNaN
	case f.zero:
		v = 0
	}
	return append(out, Sample{Series: s, T: t, V: v})
}
