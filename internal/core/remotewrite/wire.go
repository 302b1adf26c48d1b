package remotewrite

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Wire types of protobuf, the lower three bits of a tag. The other bits are the number of the
// field.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wireGroup  = 3
	wireEnd    = 4
	wire32     = 5
)

// The functions below read b from i on, and return the position where they ended, or `bad`. They accept
// and refuse the same bytes as Prometheus' generated decoders, even where the format does not say:
// numbers of more than 64 bits lose the upper bits, groups are skipped, and the last number of a packed
// list may end beyond the list.

// bad is the position that means malformed input.
const bad = -1

// field reads a tag, and the length if the field has one: its value is then b[from:next]. For
// other fields the value begins at `from`, and the caller finds `next`.
func field(b []byte, i int) (tag uint64, from, next int) {
	if i+1 < len(b) && b[i]&0x87 == wireBytes && b[i] > 7 && b[i+1] < 0x80 {
		if next = i + 2 + int(b[i+1]); next <= len(b) {
			return uint64(b[i]), i + 2, next
		}
	}
	return longField(b, i)
}

func longField(b []byte, i int) (tag uint64, from, next int) {
	v, at := varint(b, i)
	number, wire := int32(v>>3), v&7
	if at < 0 || number <= 0 || wire == wireEnd {
		return 0, bad, bad
	}
	if wire == wireBytes {
		from, next = length(b, at)
		return uint64(number)<<3 | wire, from, next
	}
	return uint64(number)<<3 | wire, at, bad
}

// other(b, i, tag, known) handles a field for which the caller has no case. It skips a field whose
// number is not in the bit set `known`. If the number is in the set, the field has the wrong wire type,
// and it returns `bad`.
func other(b []byte, i int, tag uint64, known uint32) (next int) {
	if number := tag >> 3; number == 0 || number < 32 && known>>number&1 != 0 {
		return bad
	}
	return skip(b, i)
}

// upTo returns the bit set of the numbers from 1 to n, for `other`.
func upTo(n int) uint32 { return 2<<n - 2 }

func varint(b []byte, i int) (v uint64, next int) {
	if i < len(b) {
		if v = uint64(b[i]); v < 0x80 {
			return v, i + 1
		}
	}
	return longVarint(b, i)
}

// longVarint reads numbers of up to 8 bytes at once, such as times, which have 6: it joins their
// groups of 7 bits to pairs, the pairs to fours, and the fours to the number.
func longVarint(b []byte, i int) (v uint64, next int) {
	if i+8 <= len(b) {
		v = binary.LittleEndian.Uint64(b[i:])
		if end := ^v & 0x8080808080808080; end != 0 {
			n := bits.TrailingZeros64(end) // the last byte's highest bit
			v &= (1<<n - 1) & 0x7f7f7f7f7f7f7f7f
			v = v&0x007f007f007f007f | v&0x7f007f007f007f00>>1
			v = v&0x00003fff00003fff | v&0x3fff00003fff0000>>2
			v = v&0x000000000fffffff | v&0x0fffffff00000000>>4
			return v, i + (n+1)/8
		}
	}
	return slowVarint(b, i)
}

func slowVarint(b []byte, i int) (v uint64, next int) {
	for shift := uint(0); shift < 64; shift += 7 {
		if i >= len(b) {
			return 0, bad
		}
		c := b[i]
		i++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, i
		}
	}
	return 0, bad
}

func length(b []byte, i int) (from, next int) {
	n, from := varint(b, i)
	if from < 0 || n > uint64(len(b)-from) {
		return bad, bad
	}
	return from, from + int(n)
}

func integer(b []byte, i int) (v int64, next int) {
	u, next := varint(b, i)
	return int64(u), next
}

func number32(b []byte, i int) (v uint32, next int) {
	u, next := varint(b, i)
	return uint32(u), next
}

func enum[E ~int32](b []byte, i int) (v E, next int) {
	u, next := varint(b, i)
	return E(u), next
}

// zigzag reads a value of type sint64, zigzag32 one of type sint32.
func zigzag(b []byte, i int) (v int64, next int) {
	u, next := varint(b, i)
	return int64(u>>1) ^ -int64(u&1), next
}

func zigzag32(b []byte, i int) (v int32, next int) {
	u, next := varint(b, i)
	return int32(uint32(u)>>1) ^ -int32(u&1), next
}

func double(b []byte, i int) (v float64, next int) {
	if i+8 > len(b) {
		return 0, bad
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b[i:])), i + 8
}

// one(to, b, i, read) reads a single value of a repeated field, and appends it to the list `to`. The
// function packed appends all values up to `end`.
func one[T any](to []T, b []byte, i int, read func(b []byte, i int) (T, int)) ([]T, int) {
	v, next := read(b, i)
	return append(to, v), next
}

func packed[T any](to []T, b []byte, i, end int, read func(b []byte, i int) (T, int)) ([]T, int) {
	for i < end {
		var v T
		if v, i = read(b, i); i < 0 {
			return to, bad
		}
		to = append(to, v)
	}
	return to, i
}

// skip skips a field, from its tag on.
func skip(b []byte, i int) (next int) {
	for depth := 0; i < len(b); {
		v, at := varint(b, i)
		if at < 0 {
			return bad
		}
		switch v & 7 {
		case wireVarint:
			_, at = varint(b, at)
		case wire64:
			at += 8
		case wireBytes:
			_, at = length(b, at)
		case wireGroup:
			depth++
		case wireEnd:
			if depth == 0 {
				return bad
			}
			depth--
		case wire32:
			at += 4
		default:
			return bad
		}
		if at < 0 || at > len(b) {
			return bad
		}
		if i = at; depth == 0 {
			return i
		}
	}
	return bad
}
