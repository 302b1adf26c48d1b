package entry

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

func appendTime(b []byte, ms int64) []byte {
	if ms < 0 || ms > maxTime {
		panic(fmt.Sprintf("BUG: %d ms in an entry", ms))
	}
	return binary.AppendUvarint(b, uint64(ms))
}

func appendLimit(b []byte, n int) []byte {
	if n < 0 {
		panic(fmt.Sprintf("BUG: a limit of %d in an entry", n))
	}
	return binary.AppendUvarint(b, uint64(n))
}

func appendName(b []byte, s string) []byte {
	if s == "" {
		panic("BUG: a tenant without a name in an entry")
	}
	return appendText(b, s, maxTenant)
}

func appendText(b []byte, s string, most int) []byte {
	if len(s) > most {
		panic(fmt.Sprintf("BUG: the text %.80q… in an entry has %d bytes, and at most %d bytes are allowed", s, len(s), most))
	}
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// reader takes fields from the front of b. After a malformed field, bad is set and all further
// fields are zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) cut(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.cut(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.cut(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.cut(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// number takes a uvarint that does not exceed `most`. It accepts only the shortest form, so that an
// entry has one encoding.
func (r *reader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || n > 1 && r.b[n-1] == 0 || v > most {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) number32() uint32 { return uint32(r.number(math.MaxUint32)) }

func (r *reader) time() int64 { return int64(r.number(maxTime)) }

func (r *reader) limit() int { return int(r.number(math.MaxInt)) }

func (r *reader) text(most uint64) string {
	b := r.cut(int(r.number(most)))
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (r *reader) name() string {
	s := r.text(maxTenant)
	r.bad = r.bad || s == ""
	return s
}

// list takes the rest of b as a list.
func (r *reader) list() List {
	l := List(r.cut(len(r.b)))
	if !l.valid() {
		r.bad = true
		return nil
	}
	return l
}
