package batch

import (
	"encoding/binary"
	"errors"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/histogram"
)

// Exemplar is one measurement of a timer, with the id of the trace of that measurement.
//
// Shape: 56 bytes without pointers. Copying an exemplar allocates nothing, so each series can reuse the
// memory of its exemplar.
type Exemplar struct {
	Value float64
	Time  int64 // Unix milliseconds
	Trace Trace
}

// Trace is the id of a trace.
type Trace struct {
	digits [dogstatsd.MaxTrace]byte
	length uint8
}

// TraceOf returns the trace whose id has these digits, at most dogstatsd.MaxTrace.
func TraceOf(digits []byte) (t Trace) {
	t.length = uint8(copy(t.digits[:], digits))
	return t
}

// String returns the id as it was sent.
func (t *Trace) String() string { return string(t.digits[:t.length]) }

// Append appends the exemplar to `dst`, with its time as the distance from `base`, which is in Unix
// milliseconds.
func (e *Exemplar) Append(dst []byte, base int64) []byte {
	dst = append(dst, e.Trace.length)
	dst = append(dst, e.Trace.digits[:e.Trace.length]...)
	dst = histogram.AppendFloat(dst, e.Value)
	return binary.AppendVarint(dst, e.Time-base)
}

var errExemplar = errors.New("exemplar is malformed")

// Parse reads an exemplar from the front of b, in the form of Append. It refuses the same exemplars that
// core/dogstatsd refuses in a line. `base` must not be negative.
func (e *Exemplar) Parse(b []byte, base int64) (rest []byte, err error) {
	if len(b) == 0 || int(b[0]) >= len(b) {
		return nil, errExemplar
	}
	end := 1 + int(b[0])
	if !dogstatsd.IsTrace(b[1:end]) {
		return nil, errExemplar
	}
	e.Trace = TraceOf(b[1:end])
	if e.Value, b, err = histogram.CutFloat(b[end:]); err != nil {
		return nil, errExemplar
	}
	d, n := binary.Varint(b)
	if n <= 0 || d <= -base || d > maxSecond*1e3-base {
		return nil, errExemplar
	}
	e.Time = base + d
	return b[n:], nil
}
