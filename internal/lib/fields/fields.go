// Package fields takes fields from the front of bytes, for decoders of small saved forms. Numbers are varints in
// their shortest form, so that each value has one encoding.
package fields

import "encoding/binary"

// Reader takes fields from the front of B. After a malformed field, Bad is set, B is empty, and all further
// fields are zero.
type Reader struct {
	B   []byte
	Bad bool
}

// Fail makes the rest of the fields malformed.
func (r *Reader) Fail() { r.Bad, r.B = true, nil }

// Done reports whether all bytes were taken, and none was malformed.
func (r *Reader) Done() bool { return !r.Bad && len(r.B) == 0 }

// Byte takes a byte.
func (r *Reader) Byte() byte {
	if len(r.B) == 0 {
		r.Fail()
		return 0
	}
	c := r.B[0]
	r.B = r.B[1:]
	return c
}

// Uint64 takes 8 bytes, little-endian.
func (r *Reader) Uint64() uint64 {
	if len(r.B) < 8 {
		r.Fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(r.B)
	r.B = r.B[8:]
	return v
}

// Uvarint takes an unsigned varint.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.B)
	if !r.cut(n) {
		return 0
	}
	return v
}

// Varint takes a signed varint.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.B)
	if !r.cut(n) {
		return 0
	}
	return v
}

// cut removes a varint of n bytes, unless it is malformed or has a shorter form.
func (r *Reader) cut(n int) bool {
	if n <= 0 || n > 1 && r.B[n-1] == 0 {
		r.Fail()
		return false
	}
	r.B = r.B[n:]
	return true
}

// Count takes the number of the items that follow. Each item takes at least one byte, so a number larger than
// the remaining bytes is malformed.
func (r *Reader) Count() int {
	n := r.Uvarint()
	if n > uint64(len(r.B)) {
		r.Fail()
		return 0
	}
	return int(n)
}

// Bytes takes what AppendBytes appended. They are a part of B.
func (r *Reader) Bytes() []byte {
	n := r.Count()
	b := r.B[:n:n]
	r.B = r.B[n:]
	return b
}

// Text is Bytes in its own memory.
func (r *Reader) Text() string { return string(r.Bytes()) }

// AppendBytes appends a length and the bytes.
func AppendBytes[T ~string | ~[]byte](to []byte, b T) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}
