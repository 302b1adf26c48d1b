package fields

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

// A Reader takes what was appended, and nothing else.
func TestFieldsComeBack(t *testing.T) {
	b := []byte{7}
	b = binary.AppendUvarint(b, math.MaxUint64)
	b = binary.AppendVarint(b, math.MinInt64)
	b = binary.LittleEndian.AppendUint64(b, 9)
	b = AppendBytes(b, "text")
	b = AppendBytes(b, []byte{})
	b = binary.AppendUvarint(b, 2)
	read := func(b []byte) (r Reader, same bool) {
		r = Reader{B: b}
		same = r.Byte() == 7
		same = r.Uvarint() == math.MaxUint64 && same
		same = r.Varint() == math.MinInt64 && same
		same = r.Uint64() == 9 && same
		same = r.Text() == "text" && same
		same = len(r.Bytes()) == 0 && same
		return r, r.Count() == 2 && same
	}
	if r, same := read(append(bytes.Clone(b), 1, 2)); !same || r.Bad || r.Done() || len(r.B) != 2 {
		t.Errorf("%+v", r)
	}
	for n := range b {
		if r, same := read(b[:n]); same || !r.Bad || r.Done() {
			t.Errorf("the first %d of %d bytes are no error", n, len(b))
		}
	}
}

// A number has one form, and a length must fit.
func TestMalformedFields(t *testing.T) {
	for what, take := range map[string]func(*Reader){
		"a longer form of 1": func(r *Reader) { r.B = []byte{0x81, 0}; r.Uvarint() },
		"a signed one":       func(r *Reader) { r.B = []byte{0x81, 0}; r.Varint() },
		"too large a number": func(r *Reader) { r.B = bytes.Repeat([]byte{0xff}, 11); r.Uvarint() },
		"too many items":     func(r *Reader) { r.B = []byte{3, 1, 1}; r.Count() },
		"too long a text":    func(r *Reader) { r.B = []byte{3, 1, 1}; r.Text() },
		"nothing":            func(r *Reader) { r.Byte() },
		"7 bytes":            func(r *Reader) { r.B = make([]byte, 7); r.Uint64() },
	} {
		var r Reader
		if take(&r); !r.Bad || r.Done() || r.Byte() != 0 || r.Uvarint() != 0 || r.Count() != 0 || r.Text() != "" {
			t.Errorf("%s: %+v", what, r)
		}
	}
}
