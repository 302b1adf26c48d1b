// Package dogstatsd reads the DogStatsD protocol, versions 1.0 to 1.6, and plain
// StatsD: bytes of a datagram in, metrics, events and service checks out, in
// place and without allocating. What a name or a tag becomes is mapping's
// business; which fields are supported, and how, is in docs/dogstatsd.md.
//
// The files, from the top; each uses names of those below it alone:
//
//	explain.go      what each field of a line means, and where a line goes wrong
//	line.go         a metric line, read by its marks
//	event.go        events and service checks
//	buckets.go      values that the sender has put into buckets
//	tags.go         tags, one after the other
//	parser.go       the lines of a datagram
//	marks.go        where the bytes stand that give a line its shape
//	marks_amd64.go  how they are found
//	marks_other.go  that they are not, elsewhere
//	block.go        the marks of one block
//	number.go       numbers
//	dogstatsd.go    what a line may hold
//	reason.go       why a line is malformed
package dogstatsd

// MaxTime is the latest second that a line may name, in the year 2255: its
// nanoseconds still fit an int64. A client that writes milliseconds where seconds
// belong is beyond it for every date since April 1970.
const MaxTime = 9_000_000_000

// Type is the type that a metric line declares.
type Type uint8

const (
	Count        Type = iota + 1 // c
	Gauge                        // g
	Timing                       // ms
	Histogram                    // h
	Distribution                 // d
	Set                          // s
	Buckets                      // nh, values that the sender has put into buckets
)

// Line says what Parser.Next found.
type Line uint8

const (
	End        Line = iota // no more lines in the datagram
	MetricLine             // Parser.Metric is filled
	EventLine              // Parser.Event is filled
	CheckLine              // Parser.Check is filled
)

// Origin is what a client says of where it runs. The fields are raw bytes of the
// datagram, nil where the line has none.
type Origin struct {
	Container   []byte // c: the container id, without its "ci-" or "cid-" (also the v1.2 form)
	Inode       []byte // c:in-, the inode of the cgroup
	External    []byte // e: the raw external data, "it-false,cn-web,pu-1234"
	Cardinality []byte // card: none, low, orchestrator or high
}

// Metric is one line of values. All slices but Values point into the datagram;
// Values belongs to the parser and is used again by the next line.
type Metric struct {
	Type     Type
	Name     []byte
	Tags     []byte    // raw, between '#' and the next field; nil or empty if there are none
	Values   []float64 // finite; at least one, except for sets; of Buckets the sum, then by bucket a value in it and how many there are
	Set      []byte    // a set's raw value, may contain ':'
	Rate     float64   // MinRate to 1; 1 where the line has none or it does not apply
	Time     int64     // Unix seconds of |T, 0 where the line has none
	Relative bool      // a gauge whose value began with + or -
	Origin   Origin
	Exemplar Exemplar // of a timer; without a Trace where the line has none

	rare bool // Time, Origin or Exemplar may be set
}

// Exemplar is one measurement of a timer, by whose trace one can see what it did.
type Exemplar struct {
	Trace []byte  // the trace's id as it was sent, 1 to MaxTrace hexadecimal digits
	Value float64 // finite
	Time  int64   // Unix milliseconds, 1 to those of MaxTime
}

// MaxTrace is the length of the longest trace id, as W3C and OpenTelemetry have it: 16
// bytes in hexadecimal digits.
const MaxTrace = 32

// Timer reports whether the values of the type are measurements, of which the
// distribution counts.
func (t Type) Timer() bool {
	return t == Timing || t == Histogram || t == Distribution || t == Buckets
}

// Samples is how many values the line has on the wire. A set's value is one, and so are
// all buckets of a line, as they are a sample in remote write.
func (m *Metric) Samples() uint64 {
	if m.Type == Buckets {
		return 1
	}
	return uint64(max(1, len(m.Values)))
}

// Measurements is how many values of a timer the line stands for.
func (m *Metric) Measurements() (n float64) {
	if m.Type != Buckets {
		return float64(len(m.Values)) / m.Rate
	}
	for i := 2; i < len(m.Values); i += 2 {
		n += m.Values[i]
	}
	return n / m.Rate
}

// Event is one event. Slices point into the datagram; Text may still hold the
// two bytes `\n` for a line break (Unescape).
type Event struct {
	Title, Text []byte
	Time        int64  // Unix seconds, 0 where the line has none
	Host        []byte // h:
	Key         []byte // k:, the aggregation key
	Priority    []byte // p:, normal or low; nil means normal
	Source      []byte // s:, the source type
	Alert       []byte // t:, error, warning, info or success; nil means info
	Tags        []byte
	Origin      Origin
}

// Check is one service check. Slices point into the datagram.
type Check struct {
	Name    []byte
	Status  uint8  // 0 OK, 1 warning, 2 critical, 3 unknown
	Time    int64  // Unix seconds, 0 where the line has none
	Host    []byte // h:
	Message []byte // m:, still escaped
	Tags    []byte
	Origin  Origin
}
