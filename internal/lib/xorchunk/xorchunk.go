// Package xorchunk reads whole chunks of floats that TSDB has encoded.
package xorchunk

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"

	"github.com/prometheus/prometheus/promql"
)

// ErrDamaged says that a chunk ends before its last sample, or has a value of more than 64 bits.
var ErrDamaged = errors.New("a chunk of floats is damaged")

// Append appends the samples of a chunk that chunkenc.XORChunk has encoded. chunkenc's own iterator needs two virtual
// calls for each sample, and keeps its state in memory; this loop keeps it in registers. The encoding is described in
// TSDB's docs/format/chunks.md.
func Append(to []promql.FPoint, chunk []byte) ([]promql.FPoint, error) {
	if len(chunk) < 2 {
		return to, ErrDamaged
	}
	n := int(binary.BigEndian.Uint16(chunk))
	chunk = chunk[2:]
	if n == 0 {
		return to, nil
	}
	t, size := binary.Varint(chunk)
	if size <= 0 || len(chunk) < size+8 {
		return to, ErrDamaged
	}
	v := binary.BigEndian.Uint64(chunk[size:])
	chunk = chunk[size+8:]
	to = append(to, promql.FPoint{T: t, F: math.Float64frombits(v)})
	if n == 1 {
		return to, nil
	}
	delta, size := binary.Uvarint(chunk)
	if size <= 0 {
		return to, ErrDamaged
	}
	chunk = chunk[size:]
	step := int64(delta)
	meaningful, trailing := uint64(64), uint64(0) // of the xor of two values, in bits
	var next uint64                               // bits of the chunk, from the most significant on
	have := 0                                     // how many; negative after bits beyond the end, which are zeros
	for i := 1; i < n; i++ {
		if len(chunk) >= 8 {
			next |= binary.BigEndian.Uint64(chunk) >> (uint(have) & 63)
			chunk = chunk[(63-have)>>3:]
			have |= 56
		} else {
			next, have, chunk = lastBits(next, have, chunk)
		}
		if i > 1 {
			// The leading ones, four at most, say how many bits the change of the step has.
			switch ones := bits.LeadingZeros64(^next); ones {
			case 0:
				next <<= 1
				have--
			case 1, 2, 3:
				width := uint(11 + 3*ones)
				next <<= uint(ones + 1)
				change := int64(next >> (64 - width))
				if change > 1<<(width-1) { // the encoding's range has one more than two's complement
					change -= 1 << width
				}
				step += change
				next <<= width
				have -= ones + 1 + int(width)
			default:
				next, have = next<<4, have-4
				var change uint64
				change, next, have, chunk = longBits(64, next, have, chunk)
				step += int64(change)
			}
		}
		t += step
		if next>>63 == 0 {
			next <<= 1
			have--
		} else {
			if next>>62 == 2 {
				next <<= 2
				have -= 2
			} else {
				leading := next << 2 >> 59
				if meaningful = next << 7 >> 58; meaningful == 0 {
					meaningful = 64
				}
				if leading+meaningful > 64 {
					return to, ErrDamaged
				}
				trailing = 64 - leading - meaningful
				next <<= 13
				have -= 13
			}
			if int(meaningful) <= have {
				v ^= next >> ((64 - meaningful) & 63) << (trailing & 63)
				next <<= meaningful
				have -= int(meaningful)
			} else {
				var changed uint64
				changed, next, have, chunk = longBits(meaningful, next, have, chunk)
				v ^= changed << (trailing & 63)
			}
		}
		if have < 0 {
			return to, ErrDamaged
		}
		to = append(to, promql.FPoint{T: t, F: math.Float64frombits(v)})
	}
	return to, nil
}

// lastBits adds as many of the last bytes of a chunk to its next bits as there is room for.
func lastBits(next uint64, have int, chunk []byte) (uint64, int, []byte) {
	for have <= 56 && len(chunk) > 0 {
		next |= uint64(chunk[0]) << (uint(56-have) & 63)
		chunk = chunk[1:]
		have += 8
	}
	return next, have, chunk
}

// longBits reads n bits, possibly more than `next` has.
func longBits(n, next uint64, have int, chunk []byte) (v, _ uint64, _ int, _ []byte) {
	for n > 0 {
		next, have, chunk = lastBits(next, have, chunk)
		part := min(n, 32)
		v = v<<part | next>>(64-part)
		next <<= part
		have -= int(part)
		n -= part
	}
	return v, next, have, chunk
}
