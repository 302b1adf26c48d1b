// Package dogstatsd reads the DogStatsD protocol, versions 1.0 to 1.6, and plain StatsD. It turns
// the bytes of a datagram into metrics, events and service checks, in place and without
// allocating. Package mapping decides what names and tags become; docs/dogstatsd.md lists the
// supported fields.
//
// The files, from the top; each file uses only names from files below it:
//
//	explain.go      what each field of a line means, and where a line goes wrong
//	parser.go       the lines of a datagram
//	head.go         the head and the fields of a usual metric line, read by marks
//	event.go        events and service checks
//	buckets.go      values in buckets that the sender made
//	tags.go         tags
//	fields.go       the optional fields of metric lines, and of all lines
//	marks.go        places of the bytes that structure a line
//	marks_amd64.go  the search for these bytes on amd64
//	marks_other.go  other machines, which use no marks
//	block.go        the marks of one block
//	number.go       numbers
//	dogstatsd.go    the content of a line
//	reason.go       why a line is malformed
package dogstatsd

// MaxTime is the latest time that a line may have, in Unix seconds. It is in the year 2255. As
// nanoseconds it still fits an int64. A time written in milliseconds by mistake exceeds MaxTime if
// its date is after April 1970.
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
	Buckets                      // nh, values in buckets that the sender made
)

// Line says what Parser.Next found.
type Line uint8

const (
	End        Line = iota // no more lines in the datagram
	MetricLine             // Parser.Metric is filled
	EventLine              // Parser.Event is filled
	CheckLine              // Parser.Check is filled
)

// Origin is what a client reports about where it runs. The fields are raw bytes of the datagram,
// nil if absent.
type Origin struct {
	Container   []byte // c: the container id, without the prefix "ci-" or "cid-"; v1.2 has no prefix
	Inode       []byte // c:in-, the inode of the cgroup
	External    []byte // e: the raw external data, "it-false,cn-web,pu-1234"
	Cardinality []byte // card: none, low, orchestrator or high
}

// UsedInode returns the inode if it says of which container a line is: the container's id comes before it, as in the
// Agent. Otherwise the result is nil.
func (o *Origin) UsedInode() []byte {
	if len(o.Container) > 0 || len(o.Inode) == 0 {
		return nil
	}
	return o.Inode
}

// Metric is one line of values. All slices except Values point into the datagram. The parser owns
// Values and reuses it for the next line.
type Metric struct {
	Type     Type
	Name     []byte
	Tags     []byte    // raw, between '#' and the next field; nil or empty if there are none
	Values   []float64 // finite; sets have none. For Buckets: the sum, then pairs of a value and its count
	Set      []byte    // a set's raw value, may contain ':'
	Rate     float64   // MinRate to 1; 1 if absent or not applicable
	Time     int64     // Unix seconds of |T, 0 if absent
	Relative bool      // a gauge whose value began with + or -
	Origin   Origin
	Exemplar Exemplar // of a timer; Trace is empty if absent

	rare bool // Time, Origin or Exemplar may be set
}

// Exemplar is one measurement of a timer, with the id of the measurement's trace.
type Exemplar struct {
	Trace []byte  // the trace's id as sent, 1 to MaxTrace hexadecimal digits
	Value float64 // finite
	Time  int64   // Unix milliseconds, at most 1000 times MaxTime
}

// MaxTrace is the length of the longest trace id, according to W3C and OpenTelemetry: 16 bytes in
// hexadecimal digits.
const MaxTrace = 32

// Timer reports whether the values of the type are measurements, whose distribution matters.
func (t Type) Timer() bool {
	return t == Timing || t == Histogram || t == Distribution || t == Buckets
}

// Samples returns how many values the line has on the wire. A set's value counts as one. All
// buckets of a line together count as one, since they are one sample in remote write.
func (m *Metric) Samples() uint64 {
	if m.Type == Buckets {
		return 1
	}
	return uint64(max(1, len(m.Values)))
}

// Measurements returns how many measurements of a timer the line represents, corrected for the
// sampling rate.
func (m *Metric) Measurements() (n float64) {
	if m.Type != Buckets {
		return float64(len(m.Values)) / m.Rate
	}
	for i := 2; i < len(m.Values); i += 2 {
		n += m.Values[i]
	}
	return n / m.Rate
}

// Event is one event. Slices point into the datagram; Text may still hold the two bytes `\n` for a
// line break: see Unescape.
type Event struct {
	Title, Text []byte
	Time        int64  // Unix seconds, 0 if absent
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
	Time    int64  // Unix seconds, 0 if absent
	Host    []byte // h:
	Message []byte // m:, still escaped
	Tags    []byte
	Origin  Origin
}
