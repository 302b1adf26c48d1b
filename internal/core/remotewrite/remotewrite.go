// Package remotewrite decodes the requests of Prometheus remote write, 1.0 and 2.0, in place:
// results point into the request. It accepts and refuses the same requests as Prometheus' own
// decoders. Its callers handle headers and compression; the distributor validates the content and
// passes it on.
package remotewrite

import (
	"fmt"
	"math"

	"github.com/freshet-io/freshet/internal/core/outcome"
)

// Request is a decoded request. The next Decode reuses its memory. So no part of the request may be
// used after the next Decode, or after the body is reused.
//
// The versions differ in the encoding of labels, and in metadata: version 1 has it by metric
// family, version 2 in each series.
type Request struct {
	Series   []Series
	Families []Family // of version 1

	// Cuts has the series at which the parts of a large built request begin, except the first part. An
	// index that comes twice begins a part without series. A group's log has an entry for each part.
	Cuts []int

	v2         bool
	more       func(bytes int) error // the function given to Bound; nil once the request is decoded
	taken      int                   // bytes taken so far, which `more` has allowed
	allowed    int
	full       error // what `more` returned, if it refused
	body       []byte
	room       int    // maximum length of each list, except the list of histograms
	symbols    []part // parts of body
	refs       []uint32
	highest    uint32 // the highest reference
	odd        int    // the last series in which a name has no value, counted from 1; 0 if none
	samples    []Sample
	exemplars  []Exemplar
	histograms []Histogram
	keys       []byte // copies of keys whose fields are not adjacent in the body
	buckets    buckets

	// exemplarRefs and exemplarKeys are separate from refs and keys, since exemplars may come between
	// the labels of a series.
	exemplarRefs []uint32
	exemplarKeys []byte
}

// In a real request, a series or a sample takes at least partBytes bytes, and a histogram takes at
// least histogramBytes. In a malicious request 2 bytes are enough, and the decoded form would be a
// hundred times as large. So a request may have fewParts parts of any size. It may have more if its
// body is long enough for parts of the sizes above.
const (
	partBytes      = 6
	histogramBytes = 18
	fewParts       = 1024
)

// ErrTooManyParts means that a request has more parts than its length allows.
var ErrTooManyParts = fmt.Errorf("the request has more than %d series, samples or histograms, "+
	"and they are shorter than %d bytes on average: some are nearly empty", fewParts, partBytes)

// part is a part of a list, [from, to). With parts in place of slices, a Series takes half the
// memory.
type part struct{ from, to uint32 }

// Series is one time series. Methods of Request return its contents.
type Series struct {
	labels                         labels
	samples, exemplars, histograms part
	Metadata                       Metadata // in version 2
}

// labels is the place of a label set. In version 1 it is a part of the body, or of Request.keys if the
// labels were copied; in version 2 it is a part of Request.refs.
type labels struct {
	part
	copied bool
}

// Sample is one value of a series.
type Sample struct {
	Value float64
	Time  int64 // Unix milliseconds
	Start int64 // Unix milliseconds when counting began; 0 if unknown, as always in version 1
}

// Exemplar is one observation, with labels of its own, such as the id of a trace.
type Exemplar struct {
	labels labels
	Value  float64
	Time   int64 // Unix milliseconds
}

// Metadata is a series' metadata in version 2. Help and Unit are indexes of symbols.
type Metadata struct {
	Type       MetricType
	Help, Unit uint32
}

// Family is a metric's metadata in version 1.
type Family struct {
	Name, Help, Unit []byte
	Type             MetricType
}

// MetricType is the type of a metric, numbered as in both versions. A request may contain other
// values than the constants.
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

// Bound bounds the memory that the next Decode takes. Before Decode takes memory, it calls `more` with
// the number of bytes. If `more` returns an error, Decode ends and returns it. Decode forgets `more`
// when it ends, since a decoded request is only data and must not keep its caller alive.
func (r *Request) Bound(more func(bytes int) error) { r.more = more }

// moreStep is the least memory that Decode asks for at once, in bytes.
const moreStep = 16 << 10

// takes(bytes) is called before the request takes memory. It counts the bytes, and reports whether they
// are allowed.
func (r *Request) takes(bytes int) bool {
	r.taken += bytes
	return r.taken <= r.allowed || r.ask()
}

func (r *Request) ask() bool {
	if r.full != nil {
		return false
	}
	step := max(moreStep, r.taken-r.allowed, r.allowed/2)
	if r.full = r.more(step); r.full != nil {
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
	refMemory       = 4 // a reference; takes at least 1 byte on the wire
	numberMemory    = 8 // a number in a histogram; takes at least 1 byte on the wire
)

// Label is a name and its value.
type Label struct{ Name, Value []byte }

// Key returns the labels of a series in version 1 as sent: the bytes of whole fields of the message.
// Equal keys mean equal labels, but equal labels may have different keys.
func (r *Request) Key(s *Series) []byte { return s.labels.key(r.body, r.keys) }

func (l *labels) key(body, copies []byte) []byte {
	if l.copied {
		body = copies
	}
	return body[l.from:l.to:l.to]
}

// Refs returns the labels of a series in version 2, as indexes of symbols: name, value, name, value, …
func (r *Request) Refs(s *Series) []uint32 { return r.refs[s.labels.from:s.labels.to] }

// Symbol returns a symbol of version 2 by its index.
func (r *Request) Symbol(ref uint32) []byte {
	if ref == 0 && len(r.symbols) == 0 {
		return nil // missing metadata refers to symbol 0
	}
	s := r.symbols[ref]
	return r.body[s.from:s.to:s.to]
}

// Samples returns the samples of a series, as sent.
func (r *Request) Samples(s *Series) []Sample { return r.samples[s.samples.from:s.samples.to] }

// Exemplars returns the exemplars of a series, as sent.
func (r *Request) Exemplars(s *Series) []Exemplar {
	return r.exemplars[s.exemplars.from:s.exemplars.to]
}

// Histograms returns the histograms of a series, as sent.
func (r *Request) Histograms(s *Series) []Histogram {
	return r.histograms[s.histograms.from:s.histograms.to]
}

// Labels appends the labels of a series to the list `to`, in the order sent. They point into the
// body.
func (r *Request) Labels(to []Label, s *Series) ([]Label, error) {
	if r.v2 {
		return r.pairs(to, r.Refs(s))
	}
	return readLabels(to, r.Key(s))
}

// ExemplarLabels is Labels for an exemplar.
func (r *Request) ExemplarLabels(to []Label, e *Exemplar) ([]Label, error) {
	if r.v2 {
		return r.pairs(to, r.exemplarRefs[e.labels.from:e.labels.to])
	}
	return readLabels(to, e.labels.key(r.body, r.exemplarKeys))
}

// maxLabels is the largest number of labels that are read from a series. A label may take only 2
// bytes on the wire, and takes 48 in memory.
const maxLabels = 10_000

// ErrTooManyLabels means that a series has more than maxLabels labels.
var ErrTooManyLabels = fmt.Errorf("the series has more than %d labels", maxLabels)

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
		_, from, next := field(key, i) // a key has only whole labels
		var l Label
		if !l.decode(key[from:next]) {
			return to, fmt.Errorf("label %d of the series is not a protobuf message Label", len(to)+1)
		}
		to = append(to, l)
		i = next
	}
	return to, nil
}

// reset prepares the request for another body and keeps its memory.
func (r *Request) reset(body []byte, v2 bool) error {
	if len(body) > math.MaxInt32 {
		return fmt.Errorf("the body has %d bytes, and the limit is %d", len(body), math.MaxInt32)
	}
	r.v2, r.body, r.highest, r.odd = v2, body, 0, 0
	r.taken, r.allowed, r.full = 0, 0, nil
	if r.more == nil {
		r.allowed = math.MaxInt
	}
	r.room = fewParts + len(body)/partBytes
	r.Series = r.Series[:0]
	r.Families = r.Families[:0]
	r.Cuts = r.Cuts[:0]
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

// addSeries begins a series with empty lists. endSeries sets them to the parts that were added
// since.
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

// sample reads the Sample in b from i on. The Sample may be of either version, but only version 2 has a
// start.
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

// field reads a field that is unknown, or whose tag is not in its shortest form.
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

// Symbols returns how many symbols a request of version 2 has.
func (r *Request) Symbols() int { return len(r.symbols) }

// Counts returns how many parts of each kind all series have together.
func (r *Request) Counts() outcome.Counts {
	return outcome.Counts{Samples: len(r.samples), Histograms: len(r.histograms), Exemplars: len(r.exemplars)}
}

// Newest returns the time of the newest sample or histogram of all series, if there is one.
func (r *Request) Newest() (newest int64, any bool) {
	newest = math.MinInt64
	for i := range r.Series {
		for _, s := range r.Samples(&r.Series[i]) {
			newest = max(newest, s.Time)
		}
		histograms := r.Histograms(&r.Series[i])
		for j := range histograms {
			newest = max(newest, histograms[j].Time)
		}
	}
	return newest, newest > math.MinInt64
}

// maxKept is how many series or samples a reused request may have room for. Larger requests are
// rare, and would stay in memory.
const maxKept = 50_000

// Small reports whether a request is worth keeping for the next one.
func (r *Request) Small() bool {
	b := &r.buckets
	return max(cap(r.Series), cap(r.Families), cap(r.symbols), cap(r.refs)/16, cap(r.samples), 4*cap(r.exemplars),
		8*cap(r.histograms),
		cap(r.keys)/64, cap(r.exemplarRefs)/16, cap(r.exemplarKeys)/64, cap(b.negativeSpans)/8, cap(b.positiveSpans)/8,
		cap(b.negativeDeltas)/8,
		cap(b.positiveDeltas)/8, cap(b.negativeCounts)/8, cap(b.positiveCounts)/8, cap(b.customValues)/8) <= maxKept
}
