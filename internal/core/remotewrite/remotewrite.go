// Package remotewrite reads the requests of Prometheus remote write, 1.0 and 2.0, in
// place: what it returns points into the request. It takes and refuses what Prometheus'
// own decoders do. What of a request is valid, and where it goes, is the distributor's
// business; headers and compression are read before it.
package remotewrite

import (
	"fmt"
	"math"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/stage"
)

// Request is a decoded request. Its memory is used again by the next Decode: nothing in
// it may be kept beyond that, nor beyond the body that it was decoded from.
//
// The two versions differ in how labels are written, and in where metadata is: version 1
// has it by metric family, version 2 in each series.
type Request struct {
	Series   []Series
	Families []Family // of version 1

	// Compressed is the body as it came, for who passes it on; nil if there is none.
	Compressed []byte

	// Trip is that of the request, nil if nobody watches it. Decode sets it to nil.
	Trip *stage.Trip

	// Sender is who sent it; zero if nobody knows. Decode forgets it.
	Sender sender.Sender

	// More is asked before the request takes more memory, for so many bytes beyond those it
	// asked for before; nil for as much as it takes. An error ends Decode, which returns it.
	More func(bytes int) error

	v2         bool
	taken      int // bytes, and how many it may
	allowed    int
	full       error // of More
	body       []byte
	room       int    // of each list but histograms
	symbols    []part // of body
	refs       []uint32
	highest    uint32 // reference
	odd        int    // the last series with a name without a value, from 1 on; 0 if none
	samples    []Sample
	exemplars  []Exemplar
	histograms []Histogram
	keys       []byte // those whose fields do not follow one another in the body
	buckets    buckets

	// As refs and keys, of exemplars: those of a series may come in between.
	exemplarRefs []uint32
	exemplarKeys []byte
}

// A series or a sample of a real request takes at least partBytes, and a histogram
// histogramBytes. In a malicious one 2 bytes are enough, and what is decoded would be a
// hundred times as large. So a request has room for fewParts and as many as are real.
const (
	partBytes      = 6
	histogramBytes = 18
	fewParts       = 1024
)

// ErrTooManyParts means that a request is made of more parts than its length allows.
var ErrTooManyParts = fmt.Errorf("the request has more than %d series, samples or histograms, and of some of them nearly nothing: on average they are shorter than %d bytes", fewParts, partBytes)

// part is a part of a list, [from, to). Parts in place of slices halve what is written
// for a series.
type part struct{ from, to uint32 }

// Series is one time series: see the methods of Request for what it has.
type Series struct {
	labels                         labels
	samples, exemplars, histograms part
	Metadata                       Metadata // of version 2
}

// labels are in version 1 a part of the body, or of keys if copied, and in version 2 one
// of refs.
type labels struct {
	part
	copied bool
}

// Sample is one value of a series.
type Sample struct {
	Value float64
	Time  int64 // Unix milliseconds
	Start int64 // Unix milliseconds at which counting began; 0 if unknown, as always in version 1
}

// Exemplar is one observation, with the labels of what was observed.
type Exemplar struct {
	labels labels
	Value  float64
	Time   int64 // Unix milliseconds
}

// Metadata is what version 2 says of a series; help and unit are numbers of symbols.
type Metadata struct {
	Type       MetricType
	Help, Unit uint32
}

// Family is what version 1 says of the series of a metric.
type Family struct {
	Name, Help, Unit []byte
	Type             MetricType
}

// MetricType is what a metric is, with the numbers of both versions. One that has no
// name here may come.
type MetricType int32

// The types. Source: the specification of remote write 2.0, Metadata.MetricType.
const (
	UnknownType MetricType = iota
	CounterType
	GaugeType
	HistogramType
	GaugeHistogramType
	SummaryType
	InfoType
	StatesetType
)

// moreStep is what a request asks for at least, in bytes.
const moreStep = 16 << 10

// takes accounts for memory that the request is about to take, and reports whether it may.
func (r *Request) takes(bytes int) bool {
	r.taken += bytes
	return r.taken <= r.allowed || r.ask()
}

func (r *Request) ask() bool {
	if r.full != nil {
		return false
	}
	step := max(moreStep, r.taken-r.allowed, r.allowed/2)
	if r.full = r.More(step); r.full != nil {
		return false
	}
	r.allowed += step
	return true
}

// Bytes that the parts of a request take in memory.
const (
	seriesMemory    = 56
	sampleMemory    = 24
	exemplarMemory  = 32
	histogramMemory = 320
	familyMemory    = 80
	symbolMemory    = 8
	refMemory       = 4 // of at least a byte on the wire
	numberMemory    = 8 // of a bucket, of at least a byte on the wire
)

// Label is a name and its value.
type Label struct{ Name, Value []byte }

// Key is what version 1 has of the labels of a series: its bytes in the body, whole fields
// of the message. Equal keys have equal labels, but not the other way round.
func (r *Request) Key(s *Series) []byte { return s.labels.key(r.body, r.keys) }

func (l *labels) key(body, copies []byte) []byte {
	if l.copied {
		body = copies
	}
	return body[l.from:l.to:l.to]
}

// Refs are the labels of a series in version 2, as numbers of symbols: name, value, name,
// value, …
func (r *Request) Refs(s *Series) []uint32 { return r.refs[s.labels.from:s.labels.to] }

// Symbol returns a symbol of version 2 by its number.
func (r *Request) Symbol(ref uint32) []byte {
	if ref == 0 && len(r.symbols) == 0 {
		return nil // metadata that was not sent has no help
	}
	s := r.symbols[ref]
	return r.body[s.from:s.to:s.to]
}

// Samples, Exemplars and Histograms of a series, as they were sent.
func (r *Request) Samples(s *Series) []Sample { return r.samples[s.samples.from:s.samples.to] }

// Exemplars: see Samples.
func (r *Request) Exemplars(s *Series) []Exemplar {
	return r.exemplars[s.exemplars.from:s.exemplars.to]
}

// Histograms: see Samples.
func (r *Request) Histograms(s *Series) []Histogram {
	return r.histograms[s.histograms.from:s.histograms.to]
}

// Labels appends the labels of a series to to, in the order in which they were sent. They
// point into the body.
func (r *Request) Labels(to []Label, s *Series) ([]Label, error) {
	if r.v2 {
		return r.pairs(to, r.Refs(s))
	}
	return readLabels(to, r.Key(s))
}

// ExemplarLabels is Labels of an exemplar.
func (r *Request) ExemplarLabels(to []Label, e *Exemplar) ([]Label, error) {
	if r.v2 {
		return r.pairs(to, r.exemplarRefs[e.labels.from:e.labels.to])
	}
	return readLabels(to, e.labels.key(r.body, r.exemplarKeys))
}

// maxLabels is how many labels are looked at: on the wire one has two bytes, and in memory
// 48.
const maxLabels = 10_000

// ErrTooManyLabels means that nobody looks at so many.
var ErrTooManyLabels = fmt.Errorf("it has more than %d labels", maxLabels)

func (r *Request) pairs(to []Label, refs []uint32) ([]Label, error) {
	if len(refs)/2 > maxLabels {
		return to, ErrTooManyLabels
	}
	for i := 0; i < len(refs); i += 2 {
		to = append(to, Label{r.Symbol(refs[i]), r.Symbol(refs[i+1])})
	}
	return to, nil
}

func readLabels(to []Label, key []byte) ([]Label, error) {
	for i := 0; i < len(key); {
		if len(to) == maxLabels {
			return to, ErrTooManyLabels
		}
		_, from, next := field(key, i) // nothing but whole labels is in a key
		var l Label
		if !l.decode(key[from:next]) {
			return to, fmt.Errorf("label %d of the series is not a protobuf message Label", len(to)+1)
		}
		to = append(to, l)
		i = next
	}
	return to, nil
}

// reset begins with another body and keeps the memory.
func (r *Request) reset(body []byte, v2 bool) error {
	if len(body) > math.MaxInt32 {
		return fmt.Errorf("the body has %d bytes, and at most %d can be read", len(body), math.MaxInt32)
	}
	r.v2, r.body, r.highest, r.odd = v2, body, 0, 0
	r.taken, r.allowed, r.full = 0, 0, nil
	if r.More == nil {
		r.allowed = math.MaxInt
	}
	r.Compressed, r.Trip, r.Sender = nil, nil, sender.Sender{}
	r.room = fewParts + len(body)/partBytes
	r.Series = r.Series[:0]
	r.Families = r.Families[:0]
	r.symbols = r.symbols[:0]
	r.refs = r.refs[:0]
	r.samples = r.samples[:0]
	r.exemplars = r.exemplars[:0]
	r.histograms = r.histograms[:0]
	r.keys = r.keys[:0]
	r.buckets.reset()
	r.exemplarRefs = r.exemplarRefs[:0]
	r.exemplarKeys = r.exemplarKeys[:0]
	return nil
}

// addSeries begins a series, whose lists are empty; endSeries gives it what came in since.
func (r *Request) addSeries() *Series {
	r.Series = append(r.Series, Series{
		samples:    part{from: uint32(len(r.samples))},
		exemplars:  part{from: uint32(len(r.exemplars))},
		histograms: part{from: uint32(len(r.histograms))},
	})
	return &r.Series[len(r.Series)-1]
}

func (r *Request) endSeries(s *Series) {
	s.samples.to = uint32(len(r.samples))
	s.exemplars.to = uint32(len(r.exemplars))
	s.histograms.to = uint32(len(r.histograms))
}

// sample reads the Sample in b from i on, of either version; only the second has a start.
func (r *Request) sample(b []byte, i int) bool {
	if len(r.samples) == r.room || !r.takes(sampleMemory) {
		return false
	}
	r.samples = append(r.samples, Sample{})
	s := &r.samples[len(r.samples)-1]
	for i < len(b) {
		next := bad
		switch tag := b[i]; {
		case tag == 1<<3|wire64:
			s.Value, next = double(b, i+1)
		case tag == 2<<3|wireVarint:
			s.Time, next = integer(b, i+1)
		case tag == 3<<3|wireVarint && r.v2:
			s.Start, next = integer(b, i+1)
		default:
			next = s.field(b, i, r.v2)
		}
		if next < 0 {
			return false
		}
		i = next
	}
	return true
}

// field reads a field whose tag is not written as short as it can be, or is unknown.
func (s *Sample) field(b []byte, i int, v2 bool) (next int) {
	tag, from, _ := field(b, i)
	switch {
	case tag == 1<<3|wire64:
		s.Value, next = double(b, from)
	case tag == 2<<3|wireVarint:
		s.Time, next = integer(b, from)
	case tag == 3<<3|wireVarint && v2:
		s.Start, next = integer(b, from)
	case v2:
		next = other(b, i, tag, upTo(3))
	default:
		next = other(b, i, tag, upTo(2))
	}
	return next
}

// Version2 reports whether the request came in version 2.
func (r *Request) Version2() bool { return r.v2 }

// Symbols is how many symbols a request of version 2 has.
func (r *Request) Symbols() int { return len(r.symbols) }

// Counts are the parts of all series together.
func (r *Request) Counts() outcome.Counts {
	return outcome.Counts{Samples: len(r.samples), Histograms: len(r.histograms), Exemplars: len(r.exemplars)}
}

// maxKept is how many series or samples a request has room for that is used again.
// Larger ones are rare, and would stay in memory.
const maxKept = 50_000

// Small reports whether a request is worth keeping for the next one.
func (r *Request) Small() bool {
	b := &r.buckets
	return max(cap(r.Series), cap(r.Families), cap(r.symbols), cap(r.refs)/16, cap(r.samples), 4*cap(r.exemplars), 8*cap(r.histograms),
		cap(r.keys)/64, cap(r.exemplarRefs)/16, cap(r.exemplarKeys)/64, cap(b.negativeSpans)/8, cap(b.positiveSpans)/8, cap(b.negativeDeltas)/8,
		cap(b.positiveDeltas)/8, cap(b.negativeCounts)/8, cap(b.positiveCounts)/8, cap(b.customValues)/8) <= maxKept
}
