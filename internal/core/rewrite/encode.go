package rewrite

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// encoder encodes series as bodies of remote write 2.0, as many as are needed. Field numbers:
// types.proto of the specification.
//
// It leaves out integers that are zero, since a reader treats a missing integer as zero. It writes
// doubles even if they are zero: -0 is not 0, and a reader refuses a body with too many short parts
// (remotewrite.ErrTooManyParts).
type encoder struct {
	request      *remotewrite.Request
	target, most int             // as in Rewriter, before compression
	outcome      outcome.Outcome // of the parts that are in no body

	b           []byte // series of the body
	complete    int    // number of complete series in b
	refs        map[string]uint32
	symbols     []string // the body's symbols, from 1; symbol 0 is empty
	symbolBytes int

	bodies []Body
	room   [][]byte // memory for bodies
}

// Wire types of protobuf.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
)

// closing is the room, in bytes, for the length of a series and the empty symbol.
const closing = 16

func (e *encoder) begin(r *remotewrite.Request, target, most int) {
	e.request, e.target, e.most, e.outcome = r, target, most, outcome.Outcome{}
	if e.refs == nil {
		e.refs = map[string]uint32{}
	}
	e.bodies = e.bodies[:0]
}

// end forgets the request, and returns its outcome so far.
func (e *encoder) end() outcome.Outcome {
	e.request = nil
	if cap(e.b) > keepBytes {
		e.b = nil
	}
	kept := 0
	for i, b := range e.room {
		if kept += cap(b); kept > keepBytes {
			e.room = e.room[:i] // the returned bodies keep their memory
			break
		}
	}
	return e.outcome
}

// mark is a place to which the encoder can go back.
type mark struct{ bytes, symbols, symbolBytes int }

func (e *encoder) mark() mark { return mark{len(e.b), len(e.symbols), e.symbolBytes} }

func (e *encoder) back(to mark) {
	for _, s := range e.symbols[to.symbols:] {
		delete(e.refs, s)
	}
	clear(e.symbols[to.symbols:])
	e.b, e.symbols, e.symbolBytes = e.b[:to.bytes], e.symbols[:to.symbols], to.symbolBytes
}

func (e *encoder) size() int { return len(e.b) + e.symbolBytes + closing }

// series adds a series to the body, or begins another body with it. It leaves out a series without
// parts. It cuts a series that is too large for one body. The parts of such a series come in the
// order in which a store takes them: floats and histograms merged by time, and exemplars last.
func (e *encoder) series(s *remotewrite.Series, ls labels.Labels) {
	whole := e.mark()
	if e.parts(s, ls, e.complete == 0) {
		return
	}
	e.back(whole)
	e.flush()
	e.parts(s, ls, true)
}

// parts encodes a series. It reports false if the series does not fit and `cut` is not set.
func (e *encoder) parts(s *remotewrite.Series, ls labels.Labels, cut bool) bool {
	r := e.request
	before := e.mark()
	message := e.open(s, ls)
	inMessage := 0
	add := func(reason outcome.Reason, part outcome.Counts, encode func()) bool {
		at := e.mark()
		encode()
		if e.size() <= e.target {
			inMessage++
			return true
		}
		if !cut {
			return false
		}
		if inMessage > 0 {
			e.back(at)
			e.close(message)
			e.complete++
			e.flush()
			before = e.mark()
			message, inMessage = e.open(s, ls), 0
			at = e.mark()
			encode()
		}
		if e.size() > e.most {
			e.back(at)
			refuse(&e.outcome, r, s, part, outcome.Refusal{Reason: reason, Cause: tooLarge(e.most)})
			return true
		}
		inMessage++
		return true
	}
	samples, histograms, exemplars := r.Samples(s), r.Histograms(s), r.Exemplars(s)
	for i := range samples {
		for len(histograms) > 0 && histograms[0].Time < samples[i].Time {
			if !add(outcome.BadHistogram, outcome.Counts{Histograms: 1}, func() { e.histogram(&histograms[0]) }) {
				return false
			}
			histograms = histograms[1:]
		}
		if !add(outcome.TooLongLabel, outcome.Counts{Samples: 1}, func() { e.sample(&samples[i]) }) {
			return false
		}
	}
	for i := range histograms {
		if !add(outcome.BadHistogram, outcome.Counts{Histograms: 1}, func() { e.histogram(&histograms[i]) }) {
			return false
		}
	}
	for i := range exemplars {
		if !add(outcome.BadExemplar, outcome.Counts{Exemplars: 1}, func() { e.exemplar(&exemplars[i]) }) {
			return false
		}
	}
	if inMessage == 0 {
		e.back(before)
		return true
	}
	e.close(message)
	e.complete++
	return true
}

// open begins the message of a series, with labels and metadata, and returns where it begins.
func (e *encoder) open(s *remotewrite.Series, ls labels.Labels) (message int) {
	message = e.message(5)
	refs := e.message(1)
	ls.Range(func(l labels.Label) {
		e.b = binary.AppendUvarint(e.b, uint64(e.ref(l.Name)))
		e.b = binary.AppendUvarint(e.b, uint64(e.ref(l.Value)))
	})
	e.close(refs)
	if m := s.Metadata; m != (remotewrite.Metadata{}) {
		metadata := e.message(5)
		e.number(1, uint64(m.Type))
		e.number(3, e.text(m.Help))
		e.number(4, e.text(m.Unit))
		e.close(metadata)
	}
	return message
}

// text returns the index that a symbol of the request has in this body. Symbol 0 means that there is no
// text. So if an empty text has another index in the request, it gets an index of its own here, too.
func (e *encoder) text(of uint32) uint64 {
	text := e.request.Symbol(of)
	if of == 0 && len(text) == 0 {
		return 0
	}
	return uint64(e.ref(view(text)))
}

func (e *encoder) ref(s string) uint32 {
	if n, ok := e.refs[s]; ok {
		return n
	}
	e.symbols = append(e.symbols, s)
	n := uint32(len(e.symbols))
	e.refs[s] = n
	e.symbolBytes += 1 + uvarintSize(len(s)) + len(s)
	return n
}

func (e *encoder) sample(s *remotewrite.Sample) {
	m := e.message(2)
	e.fixed(1, s.Value)
	e.number(2, uint64(s.Time))
	e.number(3, uint64(s.Start))
	e.close(m)
}

func (e *encoder) exemplar(x *remotewrite.Exemplar) {
	m := e.message(4)
	refs := e.message(1)
	// A member checks the labels when it applies the exemplar. It refuses an exemplar with malformed
	// labels. It refuses an exemplar with the labels `unreadable` in the same way.
	all, err := e.request.ExemplarLabels(nil, x)
	if err != nil {
		all = unreadable
	}
	for _, l := range all {
		e.b = binary.AppendUvarint(e.b, uint64(e.ref(view(l.Name))))
		e.b = binary.AppendUvarint(e.b, uint64(e.ref(view(l.Value))))
	}
	e.close(refs)
	e.fixed(2, x.Value)
	e.number(3, uint64(x.Time))
	e.close(m)
}

// unreadable replaces labels that cannot be read. No store accepts it.
var unreadable = []remotewrite.Label{{}}

func (e *encoder) histogram(h *remotewrite.Histogram) {
	m := e.message(3)
	e.count(1, 2, h.Count)
	e.fixed(3, h.Sum)
	e.number(4, zigzag(int64(h.Schema)))
	e.fixed(5, h.ZeroThreshold)
	e.count(6, 7, h.ZeroCount)
	e.spans(8, h.NegativeSpans)
	e.deltas(9, h.NegativeDeltas)
	e.doubles(10, h.NegativeCounts)
	e.spans(11, h.PositiveSpans)
	e.deltas(12, h.PositiveDeltas)
	e.doubles(13, h.PositiveCounts)
	e.number(14, uint64(h.ResetHint))
	e.number(15, uint64(h.Time))
	e.doubles(16, h.CustomValues)
	e.number(17, uint64(h.Start))
	e.close(m)
}

// count encodes a count in the field of its form, even if it is zero: the form says whether the
// histogram has integers or floats.
func (e *encoder) count(integer, float int, c remotewrite.Count) {
	switch c.Form {
	case remotewrite.IntegerCount:
		e.tag(integer, wireVarint)
		e.b = binary.AppendUvarint(e.b, c.Integer)
	case remotewrite.FloatCount:
		e.fixed(float, c.Float)
	}
}

func (e *encoder) spans(field int, all []remotewrite.Span) {
	for _, s := range all {
		m := e.message(field)
		e.number(1, zigzag(int64(s.Offset)))
		e.number(2, uint64(s.Length))
		e.close(m)
	}
}

func (e *encoder) deltas(field int, all []int64) {
	if len(all) == 0 {
		return
	}
	m := e.message(field)
	for _, d := range all {
		e.b = binary.AppendUvarint(e.b, zigzag(d))
	}
	e.close(m)
}

func (e *encoder) doubles(field int, all []float64) {
	if len(all) == 0 {
		return
	}
	m := e.message(field)
	for _, v := range all {
		e.b = binary.LittleEndian.AppendUint64(e.b, math.Float64bits(v))
	}
	e.close(m)
}

func (e *encoder) tag(field, wire int) {
	e.b = binary.AppendUvarint(e.b, uint64(field<<3|wire))
}

func (e *encoder) number(field int, v uint64) {
	if v != 0 {
		e.tag(field, wireVarint)
		e.b = binary.AppendUvarint(e.b, v)
	}
}

func (e *encoder) fixed(field int, v float64) {
	e.tag(field, wire64)
	e.b = binary.LittleEndian.AppendUint64(e.b, math.Float64bits(v))
}

// message begins a message, list or text in a field; close sets its length.
func (e *encoder) message(field int) (from int) {
	e.tag(field, wireBytes)
	return len(e.b)
}

func (e *encoder) close(from int) {
	n := len(e.b) - from
	size := uvarintSize(n)
	e.b = append(e.b, make([]byte, size)...)
	copy(e.b[from+size:], e.b[from:from+n])
	binary.PutUvarint(e.b[from:], uint64(n))
}

// flush ends the body, unless it is empty. The symbols come last, since only then are all of them
// known. That is allowed: fields of a message may come in any order.
func (e *encoder) flush() {
	if e.complete > 0 {
		e.string(4, nil)
		for _, s := range e.symbols {
			e.string(4, []byte(s))
		}
		e.body(entry.RemoteWrite2)
	}
	e.back(mark{})
	e.complete = 0
}

func (e *encoder) string(field int, s []byte) {
	e.tag(field, wireBytes)
	e.b = append(binary.AppendUvarint(e.b, uint64(len(s))), s...)
}

// body compresses b into a body.
func (e *encoder) body(form entry.Form) {
	n := len(e.bodies)
	if n == len(e.room) {
		e.room = append(e.room, nil)
	}
	e.room[n] = compress(e.room[n], e.b)
	e.bodies = append(e.bodies, Body{Form: form, Bytes: e.room[n]})
}

// family adds the metadata of a metric to a body of remote write 1.0. It leaves out metadata that
// fits into no entry: a store would not keep it.
func (e *encoder) family(f *remotewrite.Family) {
	for {
		at := e.mark()
		m := e.message(3)
		e.number(1, uint64(f.Type))
		for _, t := range [...]struct {
			field int
			text  []byte
		}{{2, f.Name}, {4, f.Help}, {5, f.Unit}} {
			if len(t.text) > 0 {
				e.string(t.field, t.text)
			}
		}
		e.close(m)
		if e.size() <= e.target || at.bytes == 0 && e.size() <= e.most {
			return
		}
		e.back(at)
		if at.bytes == 0 {
			return
		}
		e.flushFamilies()
	}
}

func (e *encoder) flushFamilies() {
	if len(e.b) > 0 {
		e.body(entry.RemoteWrite1)
	}
	e.b = e.b[:0]
}

func uvarintSize(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}

func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

// view returns b as a string without a copy, valid while b does not change.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
