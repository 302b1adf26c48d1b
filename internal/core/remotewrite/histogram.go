package remotewrite

// Histogram is a native histogram as sent, with integer or float counts. Both versions have the
// same message.
type Histogram struct {
	Count, ZeroCount               Count
	Sum                            float64
	Schema                         int32
	ZeroThreshold                  float64
	NegativeSpans, PositiveSpans   []Span
	NegativeDeltas, PositiveDeltas []int64   // for integer counts: differences from bucket to bucket
	NegativeCounts, PositiveCounts []float64 // for float counts: counts of the buckets
	ResetHint                      ResetHint
	CustomValues                   []float64 // upper bounds of the buckets, in schema -53
	Time, Start                    int64     // as in Sample
}

// Span is a run of buckets.
type Span struct {
	Offset int32 // distance from the end of the previous span; in the first span, the index of the first bucket
	Length uint32
}

// Count is a number of observations. The zero Count means that no count was sent.
type Count struct {
	Form    CountForm
	Integer uint64
	Float   float64
}

// CountForm is the type in which a Count was sent.
type CountForm uint8

// The forms of a Count.
const (
	NoCount CountForm = iota
	IntegerCount
	FloatCount
)

// ResetHint says whether the counts restarted since the sample before.
type ResetHint int32

// The hints. Source: prompb/types.proto of prometheus/prometheus, Histogram.ResetHint.
const (
	UnknownReset ResetHint = iota
	Reset
	NoReset
	GaugeReset // the histogram goes up and down
)

// buckets is memory for the lists of histograms. Each kind of list has its own memory, since a message
// may interleave the kinds.
type buckets struct {
	negativeSpans, positiveSpans                 []Span
	negativeDeltas, positiveDeltas               []int64
	negativeCounts, positiveCounts, customValues []float64
}

func (l *buckets) reset() {
	*l = buckets{
		l.negativeSpans[:0], l.positiveSpans[:0], l.negativeDeltas[:0], l.positiveDeltas[:0],
		l.negativeCounts[:0], l.positiveCounts[:0], l.customValues[:0],
	}
}

func (r *Request) histogramRoom() int { return fewParts + len(r.body)/histogramBytes }

// histogram reads the Histogram in b from i on.
func (r *Request) histogram(b []byte, i int) bool {
	// Each number in the histogram's lists takes at least a byte.
	if len(r.histograms) == r.histogramRoom() || !r.takes(histogramMemory+numberMemory*(len(b)-i)) {
		return false
	}
	var h Histogram
	l := &r.buckets
	begun := *l
	known := upTo(16)
	if r.v2 {
		known = upTo(17)
	}
	for i < len(b) {
		tag, from, next := field(b, i)
		switch {
		case next < 0 && tag&7 == wireBytes:
			return false
		case tag == 1<<3|wireVarint:
			h.Count.Form, h.Count.Float = IntegerCount, 0
			h.Count.Integer, next = varint(b, from)
		case tag == 2<<3|wire64:
			h.Count.Form, h.Count.Integer = FloatCount, 0
			h.Count.Float, next = double(b, from)
		case tag == 3<<3|wire64:
			h.Sum, next = double(b, from)
		case tag == 4<<3|wireVarint:
			h.Schema, next = zigzag32(b, from)
		case tag == 5<<3|wire64:
			h.ZeroThreshold, next = double(b, from)
		case tag == 6<<3|wireVarint:
			h.ZeroCount.Form, h.ZeroCount.Float = IntegerCount, 0
			h.ZeroCount.Integer, next = varint(b, from)
		case tag == 7<<3|wire64:
			h.ZeroCount.Form, h.ZeroCount.Integer = FloatCount, 0
			h.ZeroCount.Float, next = double(b, from)
		case tag == 8<<3|wireBytes:
			l.negativeSpans, next = span(l.negativeSpans, b[:next], from)
		case tag == 9<<3|wireBytes:
			l.negativeDeltas, next = packed(l.negativeDeltas, b, from, next, zigzag)
		case tag == 9<<3|wireVarint:
			l.negativeDeltas, next = one(l.negativeDeltas, b, from, zigzag)
		case tag == 10<<3|wireBytes:
			l.negativeCounts, next = packed(l.negativeCounts, b, from, next, double)
		case tag == 10<<3|wire64:
			l.negativeCounts, next = one(l.negativeCounts, b, from, double)
		case tag == 11<<3|wireBytes:
			l.positiveSpans, next = span(l.positiveSpans, b[:next], from)
		case tag == 12<<3|wireBytes:
			l.positiveDeltas, next = packed(l.positiveDeltas, b, from, next, zigzag)
		case tag == 12<<3|wireVarint:
			l.positiveDeltas, next = one(l.positiveDeltas, b, from, zigzag)
		case tag == 13<<3|wireBytes:
			l.positiveCounts, next = packed(l.positiveCounts, b, from, next, double)
		case tag == 13<<3|wire64:
			l.positiveCounts, next = one(l.positiveCounts, b, from, double)
		case tag == 14<<3|wireVarint:
			h.ResetHint, next = enum[ResetHint](b, from)
		case tag == 15<<3|wireVarint:
			h.Time, next = integer(b, from)
		case tag == 16<<3|wireBytes:
			l.customValues, next = packed(l.customValues, b, from, next, double)
		case tag == 16<<3|wire64:
			l.customValues, next = one(l.customValues, b, from, double)
		case tag == 17<<3|wireVarint && r.v2:
			h.Start, next = integer(b, from)
		default:
			next = other(b, i, tag, known)
		}
		if next < 0 {
			return false
		}
		i = next
	}
	h.NegativeSpans = tail(l.negativeSpans, len(begun.negativeSpans))
	h.PositiveSpans = tail(l.positiveSpans, len(begun.positiveSpans))
	h.NegativeDeltas = tail(l.negativeDeltas, len(begun.negativeDeltas))
	h.PositiveDeltas = tail(l.positiveDeltas, len(begun.positiveDeltas))
	h.NegativeCounts = tail(l.negativeCounts, len(begun.negativeCounts))
	h.PositiveCounts = tail(l.positiveCounts, len(begun.positiveCounts))
	h.CustomValues = tail(l.customValues, len(begun.customValues))
	r.histograms = append(r.histograms, h)
	return true
}

// span reads the span that fills b[i:], and appends it to the list `to`.
func span(to []Span, b []byte, i int) ([]Span, int) {
	var s Span
	for i < len(b) {
		var next int
		switch tag, from, _ := field(b, i); tag {
		case 1<<3 | wireVarint:
			s.Offset, next = zigzag32(b, from)
		case 2<<3 | wireVarint:
			s.Length, next = number32(b, from)
		default:
			next = other(b, i, tag, upTo(2))
		}
		if next < 0 {
			return to, bad
		}
		i = next
	}
	return append(to, s), i
}

// tail returns the elements of `list` from index `from` on, or nil if there are none. If appending
// moved the list, earlier slices of it keep the old memory.
func tail[T any](list []T, from int) []T {
	if len(list) == from {
		return nil // not an empty list, since custom bounds are nil if there are none
	}
	return list[from:len(list):len(list)]
}
