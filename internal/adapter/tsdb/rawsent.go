package tsdb

import (
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// rawSent is a series as it came in a request.
type rawSent struct {
	request *write.Request
	series  *remotewrite.Series
}

// resolve returns the labels of the series after the request's rules. They are empty if a rule
// drops the series.
func (s rawSent) resolve() (labels.Labels, *outcome.Refusal) {
	return s.request.Terms.Rules.Resolve(s.request.Request, s.series)
}

// hasMetadata reports whether the series came with metadata of its metric.
func (s rawSent) hasMetadata() bool { return s.series.Metadata != (remotewrite.Metadata{}) }

// parts returns how many parts the series has.
func (s rawSent) parts() outcome.Counts { return s.request.Parts(s.series) }

// write counts parts as written.
func (s rawSent) write(parts outcome.Counts) { s.request.Outcome.Written.Add(parts) }

// drop counts parts as dropped.
func (s rawSent) drop(parts outcome.Counts) { s.request.Outcome.Dropped.Add(parts) }

// refuse counts parts as refused.
func (s rawSent) refuse(reason outcome.Reason, parts outcome.Counts, cause error) {
	s.request.Refuse(s.series, reason, parts, cause)
}

// rawValue is a sample of a request: a histogram if h has one, otherwise a float.
//
// Shape: 4 words, which the compiler keeps in registers.
type rawValue struct {
	t int64 // Unix milliseconds
	v float64
	h nativeHistogram
}

func (x rawValue) isFloat() bool { return x.h.integer == nil && x.h.float == nil }

// part counts x as a part of its request.
func (x rawValue) part() outcome.Counts {
	if x.isFloat() {
		return outcome.Counts{Samples: 1}
	}
	return outcome.Counts{Histograms: 1}
}

// point returns x as queries see it.
func (x rawValue) point() tile.Point {
	if x.isFloat() {
		return tile.Point{T: x.t, V: x.v}
	}
	return tile.Point{T: x.t, V: x.v, H: x.h.floats()}
}

// zeroAt returns the zero from which the series of x began to count.
func (x rawValue) zeroAt(start int64) rawValue {
	if x.isFloat() {
		return rawValue{t: start}
	}
	return rawValue{t: start, h: x.h.zero()}
}

func stamp(t int64) string { return time.UnixMilli(t).UTC().Format("2006-01-02T15:04:05.000Z") }
