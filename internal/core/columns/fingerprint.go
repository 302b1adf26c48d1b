package columns

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// Fingerprint returns a hash of a result: of labels, times, and the bits of all values. Series may be
// in any order.
func Fingerprint(v parser.Value) (sum uint64) {
	switch v := v.(type) {
	case promql.Matrix:
		for _, s := range v {
			h := newHash(s.Metric)
			for _, p := range s.Floats {
				h.ints(uint64(p.T), math.Float64bits(p.F))
			}
			for _, p := range s.Histograms {
				h.ints(uint64(p.T))
				h.histogram(p.H)
			}
			sum += h.Sum64()
		}
	case promql.Vector:
		for _, s := range v {
			h := newHash(s.Metric)
			h.ints(uint64(s.T), math.Float64bits(s.F))
			if s.H != nil {
				h.histogram(s.H)
			}
			sum += h.Sum64()
		}
	default:
		return xxhash.Sum64String(v.String())
	}
	return sum
}

type hash struct {
	*xxhash.Digest
	buffer []byte
}

func newHash(of labels.Labels) *hash {
	h := &hash{Digest: xxhash.New()}
	h.ints(of.Hash())
	return h
}

func (h *hash) ints(all ...uint64) {
	for _, v := range all {
		h.buffer = binary.LittleEndian.AppendUint64(h.buffer[:0], v)
		h.Write(h.buffer)
	}
}

func (h *hash) floats(all []float64) {
	h.ints(uint64(len(all)))
	for _, f := range all {
		h.ints(math.Float64bits(f))
	}
}

func (h *hash) histogram(of *histogram.FloatHistogram) {
	h.ints(uint64(of.Schema), uint64(of.CounterResetHint), math.Float64bits(of.ZeroThreshold),
		math.Float64bits(of.ZeroCount), math.Float64bits(of.Count), math.Float64bits(of.Sum))
	for _, spans := range [][]histogram.Span{of.PositiveSpans, of.NegativeSpans} {
		h.ints(uint64(len(spans)))
		for _, s := range spans {
			h.ints(uint64(s.Offset), uint64(s.Length))
		}
	}
	h.floats(of.PositiveBuckets)
	h.floats(of.NegativeBuckets)
	h.floats(of.CustomValues)
}
