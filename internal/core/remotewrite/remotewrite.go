// Package remotewrite reads the requests of Prometheus remote write, 1.0 and 2.0, in
// place: what it returns points into the request. It takes and refuses what Prometheus'
// own decoders do. What of a request is valid, and where it goes, is the distributor's
// business; headers and compression are read before it.
package remotewrite

import "fmt"

// Request is a decoded request. Its memory is used again by the next Decode: nothing in
// it may be kept beyond that, nor beyond the body that it was decoded from.
//
// The two versions differ in how labels are written (see Labels), and in where metadata
// is: version 1 has it by metric family, version 2 in each series.
type Request struct {
	Series   []Series
	Families []Family // of version 1
	Symbols  [][]byte // of version 2; a series refers to them

	v2         bool
	samples    []Sample
	exemplars  []Exemplar
	histograms []Histogram
	keys       []byte // those whose fields do not follow one another in the body
	refs       []uint32
	buckets    buckets
	exemplar   struct { // as above, of exemplars: both may come in turns
		keys []byte
		refs []uint32
	}
}

// Series is one time series.
type Series struct {
	// Key is what version 1 has of the labels: its bytes in the body, whole fields of
	// the message. Equal keys have equal labels, but not the other way round.
	Key []byte
	// Refs are the labels in version 2: name, value, name, value, …; each is in range.
	Refs []uint32

	Samples    []Sample
	Exemplars  []Exemplar
	Histograms []Histogram
	Metadata   Metadata // of version 2
}

// Sample is one value of a series.
type Sample struct {
	Value float64
	Time  int64 // Unix milliseconds
	Start int64 // Unix milliseconds at which counting began; 0 if unknown, as always in version 1
}

// Exemplar is one observation, with the labels of what was observed.
type Exemplar struct {
	Key   []byte   // as of Series
	Refs  []uint32 // as of Series
	Value float64
	Time  int64 // Unix milliseconds
}

// Metadata is what version 2 says of a series; help and unit are numbers of symbols,
// in range.
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

// Label is a name and its value.
type Label struct{ Name, Value []byte }

// Labels appends the labels behind a key or refs of the request to to, in the order in
// which they were sent. They point into the body.
func (r *Request) Labels(to []Label, key []byte, refs []uint32) ([]Label, error) {
	if r.v2 {
		for i := 0; i < len(refs); i += 2 {
			to = append(to, Label{r.Symbols[refs[i]], r.Symbols[refs[i+1]]})
		}
		return to, nil
	}
	for i := 0; i < len(key); {
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

// addSeries begins a series; endSeries gives it what came in since. Lists that stay
// empty are not written: a series is as large as two cache lines.
func (r *Request) addSeries() *Series {
	r.Series = append(r.Series, Series{})
	return &r.Series[len(r.Series)-1]
}

func (r *Request) endSeries(s *Series, samples, exemplars, histograms int) {
	s.Samples = tail(r.samples, samples)
	if len(r.exemplars) > exemplars {
		s.Exemplars = tail(r.exemplars, exemplars)
	}
	if len(r.histograms) > histograms {
		s.Histograms = tail(r.histograms, histograms)
	}
}

// sample reads a Sample of either version; only the second has a start.
func (r *Request) sample(b []byte) bool {
	r.samples = append(r.samples, Sample{})
	s := &r.samples[len(r.samples)-1]
	for i := 0; i < len(b); {
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

// reset empties the request and keeps its memory.
func (r *Request) reset(v2 bool) {
	r.v2 = v2
	r.Series = r.Series[:0]
	r.Families = r.Families[:0]
	r.Symbols = r.Symbols[:0]
	r.samples = r.samples[:0]
	r.exemplars = r.exemplars[:0]
	r.histograms = r.histograms[:0]
	r.keys = r.keys[:0]
	r.refs = r.refs[:0]
	r.exemplar.keys = r.exemplar.keys[:0]
	r.exemplar.refs = r.exemplar.refs[:0]
	r.buckets.reset()
}

// tail is what was appended to list since it had the length from. The list may have
// moved meanwhile; what was before stays where it was for those who hold it.
func tail[T any](list []T, from int) []T { return list[from:len(list):len(list)] }
