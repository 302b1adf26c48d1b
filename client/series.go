package client

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
)

// kind says how values are combined, and which letters the protocol has for the kind.
type kind uint8

const (
	count kind = iota
	gauge
	timing
	histogram
	distribution
	set
	event
	check
	numKinds
)

var kindLetters = [...]string{count: "c", gauge: "g", timing: "ms", histogram: "h", distribution: "d", set: "s"}

// series holds the values of one kind, name and tags until the flusher takes them.
//
// A gauge is two words. All other kinds have a cell. Once two goroutines have collided at the cell, the
// series gets several cells, so that no call waits for a goroutine that the scheduler has stopped in
// a cell. Each value is in exactly one cell until the flusher takes it. A series that leaves the
// table is retired: a call that still has a pointer to the series notices that, and looks it up again.
//
// A series is 128 bytes plus its text: one cache line that a call reads to find the series, and one that
// the call then writes.
type series struct {
	hash     uint64
	text     string // name|#tag,tag
	rate     float64
	name     uint16 // length of the name in text, in bytes
	tags     uint16 // number of tags
	kind     kind
	overflow bool
	idle     uint8 // flushes in a row without a call; only the flusher uses `idle` and `alone`
	alone    uint8 // flushes in a row without a collision

	more  atomic.Pointer[stripes] // nil until calls collide
	value atomic.Uint64           // a gauge's value, as its bits
	calls atomic.Uint64           // calls of the gauge since the last take; goneBit if retired

	first cell
}

const goneBit = 1 << 63

// cell aggregates some of the calls of a series. It has 64 bytes, the size of a cache line.
type cell struct {
	mu      sync.Mutex // held for some nanoseconds, to add values or to take them
	retired bool
	small   uint8 // flushes in a row that needed only a small part of values
	calls   uint64
	sum     float64
	values  []float64
	members *members
}

// stripes are the cells of a series whose calls collide. Eight goroutines can call at the same time
// without waiting. More than eight calls of one series in the same nanosecond occur only in benchmarks.
type stripes [8]cell

// away has only retired cells. It replaces the stripes of a retired series.
var away stripes

func init() {
	for i := range away {
		away[i].retired = true
	}
}

// limits are the bounds that all series share.
type limits struct {
	values int          // the largest number of values of a cell, or of members of a set
	room   atomic.Int64 // bytes left for values and members
}

func (l *limits) take(bytes int) bool {
	if l.room.Add(-int64(bytes)) >= 0 {
		return true
	}
	l.room.Add(int64(bytes))
	return false
}

func (l *limits) giveBack(bytes int) { l.room.Add(int64(bytes)) }

// newSeries makes a series. It copies name and tags, which must not contain separators.
func newSeries(hash uint64, k kind, rate float64, name string, tags []string) *series {
	var b strings.Builder
	b.WriteString(name)
	n := uint16(0)
	for _, tag := range tags {
		if n++; n == 1 {
			b.WriteString("|#")
		} else {
			b.WriteByte(',')
		}
		b.WriteString(tag)
	}
	return &series{hash: hash, text: b.String(), rate: rate, name: uint16(len(name)), tags: n, kind: k}
}

// is compares the series with a kind, rate, name and tags, and reports whether they are the same. The
// name and the tags may contain separators. A tag with a comma never matches: the series would hold it
// as two tags, so the numbers of tags differ.
func (s *series) is(k kind, rate float64, name string, tags []string) bool {
	if s.kind != k || s.rate != rate || int(s.name) != len(name) || int(s.tags) != len(tags) ||
		s.text[:len(name)] != name {
		return false
	}
	rest := s.text[len(name):]
	for i, tag := range tags {
		separator := 1
		if i == 0 {
			separator = len("|#")
		}
		if len(rest) < separator+len(tag) || i > 0 && rest[0] != ',' || rest[separator:separator+len(tag)] != tag {
			return false
		}
		rest = rest[separator+len(tag):]
	}
	return rest == ""
}

// set stores the value, then counts the call so that the flusher sends the value. It returns false if
// the series is retired: the caller must look it up again.
func (s *series) set(v float64) bool {
	s.value.Store(math.Float64bits(v))
	return s.calls.Add(1) < goneBit
}

// takeGauge returns the value, and how many calls set it. The value may come from a call that only the
// next take counts. In this case the value is sent twice, but no value is missed.
func (s *series) takeGauge(retire bool) (v float64, calls uint64) {
	if retire {
		calls = s.calls.Swap(goneBit)
	} else {
		calls = s.calls.Swap(0)
	}
	return math.Float64frombits(s.value.Load()), calls
}

// lock returns a locked cell.
func (s *series) lock() *cell {
	if s.first.mu.TryLock() {
		return &s.first
	}
	return s.lockOther()
}

func (s *series) lockOther() *cell {
	more := s.more.Load()
	for more == nil {
		s.more.CompareAndSwap(nil, new(stripes))
		more = s.more.Load()
	}
	i := rand.Uint32()
	for range len(more) {
		if c := &more[i%uint32(len(more))]; c.mu.TryLock() {
			return c
		}
		i++
	}
	c := &more[i%uint32(len(more))]
	c.mu.Lock()
	return c
}

// add, record and insert return false, and do nothing, if the cell is retired.
func (s *series) add(n float64) bool {
	c := s.lock()
	defer c.mu.Unlock()
	if c.retired {
		return false
	}
	c.calls++
	c.sum += n
	return true
}

// record keeps a value. If there are too many values, the new value may replace a random one, so that
// each value since the last flush is kept with the same probability.
func (s *series) record(v float64, l *limits) bool {
	c := s.lock()
	defer c.mu.Unlock()
	if c.retired {
		return false
	}
	c.calls++
	if len(c.values) < cap(c.values) || c.grow(l) {
		c.values = append(c.values, v)
	} else if i := rand.Uint64N(c.calls); i < uint64(len(c.values)) {
		c.values[i] = v
	}
	return true
}

// firstValues is how many values each cell may always hold, even if other cells use all memory.
const firstValues = 16

const valueBytes = 8

// grow makes room for one more value, if the limits allow. After a value has been left out, the cell
// must not grow: the next value would be kept with a higher probability than earlier values.
func (c *cell) grow(l *limits) bool {
	n := cap(c.values)
	if c.calls-1 > uint64(n) || n >= l.values {
		return false
	}
	larger := min(l.values, max(firstValues, 2*n))
	if n > 0 && !l.take(valueBytes*(larger-n)) {
		return false
	}
	c.values = append(make([]float64, 0, larger), c.values...)
	return true
}

// shrink releases the memory of values.
func (c *cell) shrink(l *limits) {
	l.giveBack(valueBytes * max(0, cap(c.values)-min(firstValues, l.values)))
	c.values = nil
}

// members holds the members of a set since the last flush, and the members of the flush before that. A
// member that comes again need not be copied again. The flusher reads the earlier members without a
// lock, since they no longer change.
type members struct {
	now, before map[string]string // each member maps to itself
	empty       map[string]string // for use in the next flush; only the flusher uses it
}

// memberBytes is the size of a member's entry in a map, without its text.
const memberBytes = 96

func costOf(member string) int { return memberBytes + len(member) }

// insertion is the result of inserting a member.
type insertion uint8

const (
	inserted insertion = iota
	crowded            // inserted, and there is little room left
	full
	malformed
	gone // the cell is retired, and nothing was done
)

func (s *series) insert(member string, client *Client) insertion {
	c := s.lock()
	defer c.mu.Unlock()
	if c.retired {
		return gone
	}
	if c.members == nil {
		c.members = &members{now: map[string]string{}}
	}
	m := c.members
	if _, known := m.now[member]; known {
		c.calls++
		return inserted
	}
	known, ok := m.before[member]
	if !ok {
		if known, ok = client.cleanMember(s, member); !ok {
			return malformed
		}
		if _, again := m.now[known]; again { // `known` is the cleaned spelling, which the set has already
			c.calls++
			return inserted
		}
	}
	l := &client.limits
	if len(m.now) >= l.values || !l.take(costOf(known)) {
		return full
	}
	c.calls++
	m.now[known] = known
	if 4*len(m.now) > 3*l.values {
		return crowded
	}
	return inserted
}

// takeAll calls `take` for each cell. `take` empties the cell, retires the cell if `retire` is set, and
// returns the calls of the cell. A series that is being retired gets no new cells. takeAll removes
// the stripes when calls have not collided for a while.
func (s *series) takeAll(retire bool, take func(c *cell, retire bool) uint64) (calls uint64) {
	more, unused := s.more.Load(), false
	if retire {
		more = s.more.Swap(&away)
	} else if unused = more != nil && s.alone >= idleHalfFull; unused {
		s.more.Store(nil)
	}
	calls = take(&s.first, retire)
	if more == nil || more == &away {
		return calls
	}
	met := uint64(0)
	for i := range more {
		met += take(&more[i], retire || unused)
	}
	s.alone = next(s.alone)
	if met > 0 || unused {
		s.alone = 0
	}
	return calls + met
}

// held returns how many calls of the series wait for the flusher.
func (s *series) held() (calls uint64) {
	if s.kind == gauge {
		if calls = s.calls.Load(); calls >= goneBit { // later calls have gone to another series
			calls = 0
		}
		return calls
	}
	add := func(c *cell) {
		c.mu.Lock()
		calls += c.calls
		c.mu.Unlock()
	}
	add(&s.first)
	if more := s.more.Load(); more != nil {
		for i := range more {
			add(&more[i])
		}
	}
	return calls
}

// takeSum empties a counter's cell.
func (c *cell) takeSum(retire bool) (sum float64, calls uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum, calls = c.sum, c.calls
	c.sum, c.calls = 0, 0
	c.retired = c.retired || retire
	return sum, calls
}

// next returns n + 1, but at most 254, so that the count never wraps around.
func next(n uint8) uint8 { return min(n+1, math.MaxUint8-1) }

// spares are empty buffers for values, one of each size. The sizes are powers of two.
type spares [64][]float64

func sizeOf(n int) int { return bits.Len(uint(n - 1)) }

// takeValues empties a cell of values. It swaps in a spare buffer of the same size, so it holds the lock
// no longer than other calls do. The returned values are valid until the next call of takeValues.
func (c *cell) takeValues(retire bool, spare *spares, scratch *[]float64, l *limits) (values []float64, calls uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = c.retired || retire
	values, calls = c.values, c.calls
	c.calls = 0
	if cap(values) == 0 {
		return nil, calls
	}
	if 4*len(values) > cap(values) || cap(values) <= firstValues {
		c.small = 0
	} else {
		c.small = next(c.small)
	}
	size := sizeOf(cap(values))
	switch other := spare[size]; {
	case retire || c.small >= idleHalfFull:
		c.small = 0
		c.shrink(l)
	case len(values) == 0:
	case cap(other) == cap(values):
		c.values = other[:0]
		spare[size] = values // its values are valid until the next cell of this size is emptied
	default: // no spare of this size yet: copy the values and make one
		*scratch = append((*scratch)[:0], values...)
		spare[size] = make([]float64, 0, cap(values))
		c.values, values = values[:0], *scratch
	}
	return values, calls
}

// takeMembers empties a set's cell. The returned map is valid until the next call for this cell.
func (c *cell) takeMembers(retire bool, l *limits) (taken map[string]string, calls uint64) {
	c.mu.Lock()
	m := c.members
	calls = c.calls
	c.calls = 0
	c.retired = c.retired || retire
	if m == nil || len(m.now) == 0 && len(m.before) == 0 && !retire {
		c.mu.Unlock()
		return nil, calls
	}
	old := m.before
	m.before, m.now = m.now, m.empty
	if m.now == nil {
		m.now = map[string]string{}
	}
	taken = m.before
	c.mu.Unlock()

	release(old, l)
	m.empty = nil
	if len(old) <= 2*len(taken)+firstValues { // a larger map is not worth keeping
		clear(old)
		m.empty = old
	}
	if retire {
		release(taken, l)
	}
	return taken, calls
}

func release(members map[string]string, l *limits) {
	bytes := 0
	for m := range members {
		bytes += costOf(m)
	}
	l.giveBack(bytes)
}
