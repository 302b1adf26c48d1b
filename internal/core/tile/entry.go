package tile

import (
	"cmp"
	"maps"
	"math"
	"slices"

	prom "github.com/prometheus/prometheus/model/histogram"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
)

// entry is the state of one series. What each increment touches comes first: with
// many series none of it is in a cache, and each line of 64 bytes costs as much as
// the arithmetic.
type entry struct {
	key         string // series.AppendKey; empty once the series is gone
	next        *entry // the series that followed in the last batch: the one to expect, no more
	policyBytes string
	policy      *series.Policy
	lastSeen    int64 // Unix ms, end of the last window with a sample
	lastDelta   int64 // Unix ms, end of the last interval that a sender's own delta covered; 0 for none
	kind        series.Kind
	started     bool            // total holds something
	live        [NumWidths]bool // the store's newest sample of the series is a value, no stale marker
	owes        [NumWidths]bool // total has counted what the store has not been given yet

	open       []openTile // by end, none before the boundary
	total      amount     // up to the boundary: what tiles add up to
	series     *Series
	lastStored [NumWidths]int64 // Unix ms of the newest sample handed out, 0 for none
	classic    []*Series        // in place of series: a timer's classic buckets, see classicSeries

	float   *prom.FloatHistogram   // of total, nil if it must be made anew
	sources map[uint64]sourceValue // of a gauge that is merged from several
	timed   []timedPoint           // stamped by the sender, by time, not handed out yet
	minute  distinct.Set           // of a set: what the open one-minute tile has so far

	exemplars map[int64]*batch.Exemplar // of a timer: the newest of each open tile, by its end; nil while none came
}

// timedPoint is a value that its sender stamped.
type timedPoint struct {
	t       int64 // Unix ms
	v       float64
	samples uint64 // values on the wire
}

// openTile is what a series has counted in one tile of the finest width.
type openTile struct {
	end     int64  // Unix ms
	samples uint64 // values on the wire
	amount
	sources map[uint64]sourceValue
}

// amount is a quantity of any kind: of a tile, or of all tiles so far.
type amount struct {
	value    float64 // counter, up/down counter: sum; gauge, check: the last
	at       int64   // gauge, check: Unix ns at which value was read
	relative bool    // gauge: value is a change
	newest   uint32  // of an open tile: the place of its newest increment in the shard's log
	timer    *histogram.Exponential
	classic  []float64 // timer in classic buckets: counts by bound, not cumulative
	sum      float64   // of classic
	set      *distinct.Set
}

// sourceValue is the last value of one of the senders that a gauge is merged
// from.
type sourceValue struct {
	value float64
	at    int64 // Unix ns
}

// setPolicy follows the policy that came with the last increment. It returns how
// many values on the wire are lost with open tiles that it had to drop.
func (e *entry) setPolicy(b []byte) (dropped uint64, err error) {
	p, err := series.ParsePolicy(b)
	if err != nil {
		return 0, err
	}
	if e.policy != nil && !slices.Equal(e.policy.Bounds, p.Bounds) {
		// Other buckets are other series: they begin at zero. What open tiles
		// hold in the old ones cannot be told in the new ones, and is dropped.
		for i := range e.open {
			dropped += e.open[i].samples
		}
		e.forget()
		e.classic, e.live, e.owes, e.open, e.exemplars = nil, [NumWidths]bool{}, [NumWidths]bool{}, nil, nil
	}
	e.policy, e.policyBytes = p, string(b)
	if e.kind == series.Timer && p.Bounds != nil && e.classic == nil {
		e.classic = classicSeries(e.series.Labels, p.Bounds)
	}
	return dropped, nil
}

// raw counts the values on the wire in the open tiles of the series.
func (e *entry) raw() (n uint64) {
	for i := range e.open {
		n += e.open[i].samples
	}
	for _, p := range e.timed {
		n += p.samples
	}
	return n
}

// forget drops all that the series counted: what comes next begins at zero.
func (e *entry) forget() {
	e.started, e.total, e.float, e.sources = false, amount{}, nil, nil
}

// openTile returns the tile that ends at end.
func (e *entry) openTile(end int64) *openTile {
	if len(e.open) > 0 && e.open[0].end == end { // as nearly always
		return &e.open[0]
	}
	i, found := slices.BinarySearchFunc(e.open, end, func(t openTile, end int64) int { return cmp.Compare(t.end, end) })
	if !found {
		e.open = slices.Insert(e.open, i, openTile{end: end})
	}
	return &e.open[i]
}

// add folds an increment into a tile. It reports false, and leaves the tile as it
// was, if the increment does not fit the series or the sum would overflow.
func (e *entry) add(t *openTile, inc *batch.Increment) bool {
	switch e.kind {
	case series.Counter:
		if inc.Value < 0 || !e.bears(inc.Value, amountValue) {
			return false
		}
		t.value += inc.Value
	case series.UpDown:
		if !e.bears(inc.Value, amountValue) {
			return false
		}
		t.value += inc.Value
	case series.Gauge, series.Check:
		if inc.Relative && !e.bears(inc.Value, amountValue) {
			return false
		}
		e.addGauge(t, inc)
	case series.Timer:
		if !e.addTimer(t, inc) {
			return false
		}
		if inc.Exemplar != nil {
			e.keepExemplar(t.end, inc.Exemplar)
		}
	case series.Set:
		if t.set == nil {
			t.set = new(distinct.Set)
		}
		t.set.Merge(inc.Set)
	}
	t.samples += uint64(inc.Samples)
	return true
}

// bears reports whether the series can take more of something: its total must
// stay finite in whichever order the open tiles join it, or PromQL would have
// nothing to subtract from and no checkpoint could be read.
func (e *entry) bears(more float64, of func(*amount) float64) bool {
	sum := math.Abs(more) + math.Abs(of(&e.total))
	for i := range e.open {
		sum += math.Abs(of(&e.open[i].amount))
	}
	return !math.IsInf(sum, 0) && !math.IsNaN(sum)
}

func amountValue(a *amount) float64 { return a.value }

func timerSum(a *amount) float64 {
	if a.timer == nil {
		return a.sum
	}
	return a.timer.Sum
}

func timerCount(a *amount) (n float64) {
	if a.timer != nil {
		return a.timer.Count
	}
	for _, c := range a.classic {
		n += c
	}
	return n
}

// addGauge keeps the value that was read last, whoever's batch came first.
func (e *entry) addGauge(t *openTile, inc *batch.Increment) {
	if e.policy.Merge != series.MergeLast {
		if t.sources == nil {
			t.sources = map[uint64]sourceValue{}
		}
		if last, known := t.sources[inc.Source]; !known || inc.At >= last.at {
			t.sources[inc.Source] = sourceValue{inc.Value, inc.At}
		}
		return
	}
	switch {
	case inc.Relative:
		if t.at == 0 {
			t.relative = true
		}
		t.value += inc.Value
		t.at = max(t.at, inc.At)
	case t.at == 0 || t.relative || inc.At >= t.at:
		t.value, t.at, t.relative = inc.Value, inc.At, false
	}
}

func (e *entry) addTimer(t *openTile, inc *batch.Increment) bool {
	more := amount{timer: inc.Timer, classic: inc.Classic, sum: inc.Sum}
	if inc.Classic == nil && inc.Timer == nil || !e.bears(timerSum(&more), timerSum) || !e.bears(timerCount(&more), timerCount) {
		return false
	}
	if inc.Classic != nil {
		if len(inc.Classic) != len(e.policy.Bounds)+1 {
			return false
		}
		t.addClassic(inc.Classic, inc.Sum)
		return true
	}
	if e.policy.Bounds != nil {
		return false
	}
	if t.timer == nil {
		t.timer = new(histogram.Exponential)
		t.timer.Reset(inc.Timer.Schema)
	}
	t.timer.Merge(inc.Timer, int(e.policy.MaxBuckets))
	return true
}

// keepExemplar keeps an exemplar for the tile that ends at end, if it is the tile's newest.
// Of two at one time the one that came last counts, as in a window.
func (e *entry) keepExemplar(end int64, x *batch.Exemplar) {
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

// handOutExemplar puts the exemplar of the tile that ends at end to its samples: that of
// the histogram, or of the classic bucket in which the measurement is.
func (e *entry) handOutExemplar(end int64, samples []Sample) {
	x := e.exemplars[end]
	if x == nil {
		return
	}
	delete(e.exemplars, end)
	bucket := 0
	if e.classic != nil {
		bucket, _ = slices.BinarySearch(e.policy.Bounds, x.Value) // bounds are inclusive above
	}
	samples[bucket].Exemplar = x
}

func (a *amount) addClassic(counts []float64, sum float64) {
	if a.classic == nil {
		a.classic = make([]float64, len(counts))
	}
	for i, c := range counts {
		a.classic[i] += c
	}
	a.sum += sum
}

// addTimed keeps a stamped point in the order of time; the last one of a time
// wins, and stands for the others.
func (e *entry) addTimed(p timedPoint) {
	i, found := slices.BinarySearchFunc(e.timed, p.t, func(q timedPoint, t int64) int { return cmp.Compare(q.t, t) })
	if found {
		p.samples += e.timed[i].samples
		e.timed[i] = p
		return
	}
	e.timed = slices.Insert(e.timed, i, p)
}

// absorb adds a tile to the total.
func (e *entry) absorb(t *openTile) {
	e.started, e.float = true, nil
	for w := range e.owes {
		e.owes[w] = true
	}
	switch e.kind {
	case series.Counter, series.UpDown:
		e.total.value += t.value
	case series.Gauge, series.Check:
		e.absorbGauge(t)
	case series.Timer:
		if t.classic != nil {
			e.total.addClassic(t.classic, t.sum)
		}
		if t.timer != nil {
			if e.total.timer == nil {
				e.total.timer = new(histogram.Exponential)
				e.total.timer.Reset(t.timer.Schema)
			}
			e.total.timer.Merge(t.timer, int(e.policy.MaxBuckets))
		}
	case series.Set:
		e.total.set = t.set
		if t.set != nil {
			e.minute.Merge(t.set)
		}
	}
}

func (e *entry) absorbGauge(t *openTile) {
	if len(t.sources) > 0 {
		if e.sources == nil {
			e.sources = map[uint64]sourceValue{}
		}
		maps.Copy(e.sources, t.sources)
		e.total.value = e.merged(e.sources)
		return
	}
	if t.at == 0 {
		return
	}
	if t.relative {
		e.total.value += t.value
	} else {
		e.total.value = t.value
	}
	e.total.at = t.at
}

// merged is the value of a gauge that several senders report. Sources are added
// in a fixed order: a sum must have the same bits each time it is computed.
func (e *entry) merged(sources map[uint64]sourceValue) float64 {
	var v float64
	for i, id := range slices.Sorted(maps.Keys(sources)) {
		value := sources[id].value
		switch {
		case i == 0:
			v = value
		case e.policy.Merge == series.MergeSum:
			v += value
		case e.policy.Merge == series.MergeMin:
			v = min(v, value)
		case e.policy.Merge == series.MergeMax:
			v = max(v, value)
		}
	}
	return v
}

// clone copies what absorbing a tile would change.
func (e *entry) clone() *entry {
	c := &entry{
		series: e.series, classic: e.classic, kind: e.kind, policy: e.policy,
		live: e.live, owes: e.owes, lastStored: e.lastStored,
		started: e.started, total: e.total, float: e.float, sources: maps.Clone(e.sources),
	}
	if e.total.timer != nil {
		c.total.timer = e.total.timer.Clone()
	}
	c.total.classic = slices.Clone(e.total.classic)
	if e.kind == series.Set {
		c.minute.Merge(&e.minute)
	}
	return c
}
