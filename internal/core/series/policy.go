package series

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
)

// Merge says how a gauge's values from several sources become one value, after a rule dropped the label
// that distinguished the sources.
type Merge uint8

const (
	MergeLast Merge = iota // the value that was read last; the default
	MergeSum
	MergeMin
	MergeMax
)

// Policy is what the configuration decides for a series beyond its name and labels. All series
// of a rule share it, and it is immutable.
type Policy struct {
	Merge      Merge     // of gauges
	Schema     int8      // of native histograms, -4 to 8; bucket bounds grow by 2^(2^-Schema)
	MaxBuckets uint16    // of native histograms; beyond it the resolution is halved
	Bounds     []float64 // upper bounds of classic buckets, ascending, without +Inf; nil for native
}

// DefaultPolicy is the policy of a series without a rule. With schema 3, each bound is 9 % above
// the bound before it, as Prometheus recommends for instrumentation. 160 buckets then span more
// than six decimal orders of magnitude.
var DefaultPolicy = Policy{Schema: 3, MaxBuckets: 160}

// Buckets returns the bounds as text, such as 0.1,1,10. It is empty for a native histogram.
func (p *Policy) Buckets() string {
	var b []byte
	for i, bound := range p.Bounds {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, bound, 'g', -1, 64)
	}
	return string(b)
}

// MaxBounds limits the classic buckets of a rule.
const MaxBounds = 256

// AppendPolicy appends p to `dst`. The default takes no bytes. Layout: docs/format/batch.md.
func AppendPolicy(dst []byte, p *Policy) []byte {
	if p.Merge == DefaultPolicy.Merge && p.Schema == DefaultPolicy.Schema &&
		p.MaxBuckets == DefaultPolicy.MaxBuckets && p.Bounds == nil {
		return dst
	}
	dst = append(dst, byte(p.Merge), byte(p.Schema))
	dst = binary.LittleEndian.AppendUint16(dst, p.MaxBuckets)
	for _, b := range p.Bounds {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(b))
	}
	return dst
}

var errPolicy = errors.New("series policy is malformed")

// ParsePolicy is the inverse of AppendPolicy. Its result may be shared.
func ParsePolicy(b []byte) (*Policy, error) {
	if len(b) == 0 {
		return &DefaultPolicy, nil
	}
	if len(b) < 4 || (len(b)-4)%8 != 0 || (len(b)-4)/8 > MaxBounds {
		return nil, errPolicy
	}
	p := &Policy{Merge: Merge(b[0]), Schema: int8(b[1]), MaxBuckets: binary.LittleEndian.Uint16(b[2:])}
	if p.Merge > MergeMax || p.Schema < -4 || p.Schema > 8 || p.MaxBuckets < 1 {
		return nil, errPolicy
	}
	for b = b[4:]; len(b) > 0; b = b[8:] {
		v := math.Float64frombits(binary.LittleEndian.Uint64(b))
		if math.IsNaN(v) || math.IsInf(v, 0) || (len(p.Bounds) > 0 && v <= p.Bounds[len(p.Bounds)-1]) {
			return nil, errPolicy
		}
		p.Bounds = append(p.Bounds, v)
	}
	return p, nil
}
