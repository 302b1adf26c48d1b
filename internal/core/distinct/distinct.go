// Package distinct counts distinct values: exactly up to a limit, then by a HyperLogLog sketch.
// Both can be merged, so the answer does not depend on the order of the values, on where they were
// counted, or on how often they came.
package distinct

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/axiomhq/hyperloglog"
	"github.com/cespare/xxhash/v2"
)

// exact is the largest number of distinct values that are counted one by one: they take 8 KiB of hashes,
// half the size of the sketch.
const exact = 1024

// precision is the precision of a sketch: 2^14 registers, which take 16 KiB and give a standard
// error of 0.8 %.
const precision = 14

// Set counts the distinct values added to it. The zero value is empty. Reset keeps its memory.
type Set struct {
	hashes []uint64            // not sorted; may have repeats until compact runs
	sketch *hyperloglog.Sketch // replaces hashes once there are more than 1,024 values
}

// Hash returns the hash by which a value is counted; it is the same in every process.
func Hash(value []byte) uint64 { return xxhash.Sum64(value) }

// HashString is Hash for a string.
func HashString(value string) uint64 { return xxhash.Sum64String(value) }

// Add counts the value with this hash. It allocates only while the set grows.
func (s *Set) Add(hash uint64) {
	if s.sketch != nil {
		s.sketch.InsertHash(hash)
		return
	}
	// A repeated value is usually the one that was added last.
	if n := len(s.hashes); n > 0 && s.hashes[n-1] == hash {
		return
	}
	s.hashes = append(s.hashes, hash)
	if len(s.hashes) > 2*exact {
		s.compact()
	}
}

// compact removes repeats, and switches to a sketch if more than `exact` distinct values remain.
func (s *Set) compact() {
	slices.Sort(s.hashes)
	s.hashes = slices.Compact(s.hashes)
	if len(s.hashes) <= exact {
		return
	}
	s.sketch, _ = hyperloglog.NewSketch(precision, false) // the only possible error is a bad precision
	for _, h := range s.hashes {
		s.sketch.InsertHash(h)
	}
	s.hashes = s.hashes[:0]
}

// Merge adds all values of `other`, and does not change `other`.
func (s *Set) Merge(other *Set) {
	if other.sketch == nil {
		for _, h := range other.hashes {
			s.Add(h)
		}
		return
	}
	if s.sketch == nil {
		s.sketch, _ = hyperloglog.NewSketch(precision, false)
		for _, h := range s.hashes {
			s.sketch.InsertHash(h)
		}
		s.hashes = s.hashes[:0]
	}
	// Merge fails only if precisions differ, and all sketches have the same precision.
	_ = s.sketch.Merge(other.sketch)
}

// Len returns the number of distinct values, exact up to 1,024.
func (s *Set) Len() uint64 {
	if s.sketch == nil {
		s.compact()
	}
	if s.sketch == nil {
		return uint64(len(s.hashes))
	}
	return s.sketch.Estimate()
}

// Reset empties the set.
func (s *Set) Reset() { s.hashes, s.sketch = s.hashes[:0], nil }

var errEncoding = errors.New("set is malformed")

// Append appends s to `dst`: either the number of hashes and the hashes, or 0, the sketch's length
// and the sketch. Layout: docs/format/batch.md.
func (s *Set) Append(dst []byte) []byte {
	if s.sketch == nil {
		s.compact()
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.hashes)))
	for _, h := range s.hashes {
		dst = binary.LittleEndian.AppendUint64(dst, h)
	}
	if len(s.hashes) > 0 {
		return dst
	}
	var sketch []byte
	if s.sketch != nil {
		sketch, _ = s.sketch.MarshalBinary() // never fails
	}
	dst = binary.AppendUvarint(dst, uint64(len(sketch)))
	return append(dst, sketch...)
}

// Parse replaces s by what Append wrote at the front of b, and returns the rest of b.
func (s *Set) Parse(b []byte) (rest []byte, err error) {
	s.Reset()
	n, size := binary.Uvarint(b)
	if size <= 0 || n > exact || n*8 > uint64(len(b)-size) {
		return nil, errEncoding
	}
	b = b[size:]
	for range n {
		s.hashes = append(s.hashes, binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	if n > 0 {
		return b, nil
	}
	n, size = binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, errEncoding
	}
	b = b[size:]
	if n == 0 {
		return b, nil
	}
	if n != 8+1<<precision { // a header and the registers; the library's sparse form is not used
		return nil, errEncoding
	}
	sketch := new(hyperloglog.Sketch)
	if err := sketch.UnmarshalBinary(b[:n]); err != nil {
		return nil, errEncoding
	}
	// A sketch of another precision could never be merged, so refuse it now.
	whole, _ := hyperloglog.NewSketch(precision, false)
	if err := whole.Merge(sketch); err != nil {
		return nil, errEncoding
	}
	s.sketch = whole
	return b[n:], nil
}
