package histogram

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
)

var errEncoding = errors.New("histogram is malformed")

// Append appends h to `dst`. Layout: docs/format/batch.md.
func (h *Exponential) Append(dst []byte) []byte {
	dst = append(dst, byte(h.Schema))
	dst = AppendFloat(dst, h.Count)
	dst = AppendFloat(dst, h.Sum)
	dst = AppendFloat(dst, h.Zero)
	dst = h.Positive.append(dst)
	return h.Negative.append(dst)
}

func (b *Buckets) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b.Index)))
	last := int32(0)
	for i, index := range b.Index {
		dst = binary.AppendVarint(dst, int64(index)-int64(last))
		dst = AppendFloat(dst, b.Count[i])
		last = index
	}
	return dst
}

// Parse reads what Append wrote at the front of `b`. It replaces the content of `h`, reuses `h`'s
// memory, and returns the rest of `b`.
func (h *Exponential) Parse(b []byte) (rest []byte, err error) {
	if len(b) == 0 || int8(b[0]) < MinSchema || int8(b[0]) > MaxSchema {
		return nil, errEncoding
	}
	h.Reset(int8(b[0]))
	b = b[1:]
	for _, f := range []*float64{&h.Count, &h.Sum, &h.Zero} {
		if *f, b, err = CutFloat(b); err != nil {
			return nil, err
		}
	}
	if h.Count < 0 || h.Zero < 0 {
		return nil, errEncoding
	}
	if b, err = h.Positive.parse(b); err != nil {
		return nil, err
	}
	return h.Negative.parse(b)
}

// MaxIndex bounds the index of a bucket: it lies between -MaxIndex and MaxIndex, even for the
// largest and the smallest double at the highest resolution.
const MaxIndex = 1100 << MaxSchema

func (b *Buckets) parse(from []byte) (rest []byte, err error) {
	n, size := binary.Uvarint(from)
	if size <= 0 || n > uint64(len(from)) {
		return nil, errEncoding
	}
	from = from[size:]
	last := int64(0)
	for i := range n {
		delta, size := binary.Varint(from)
		if size <= 0 || (i > 0 && delta <= 0) || delta > 2*MaxIndex || delta < -2*MaxIndex {
			return nil, errEncoding
		}
		last += delta
		if last > MaxIndex || last < -MaxIndex {
			return nil, errEncoding
		}
		var count float64
		if count, from, err = CutFloat(from[size:]); err != nil {
			return nil, err
		}
		if count < 0 {
			return nil, errEncoding
		}
		b.Index = append(b.Index, int32(last))
		b.Count = append(b.Count, count)
	}
	return from, nil
}

// AppendFloat appends a finite float as a uvarint of the float's 8 bytes in reverse order. So a short
// mantissa takes few bytes: whole numbers up to 8,192 take one to four bytes.
func AppendFloat(dst []byte, v float64) []byte {
	return binary.AppendUvarint(dst, bits.ReverseBytes64(math.Float64bits(v)))
}

// CutFloat reads what AppendFloat wrote at the front of b. It refuses NaN and infinities, which
// would spoil every sum.
func CutFloat(b []byte) (v float64, rest []byte, err error) {
	u, size := binary.Uvarint(b)
	v = math.Float64frombits(bits.ReverseBytes64(u))
	if size <= 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, nil, errEncoding
	}
	return v, b[size:], nil
}
