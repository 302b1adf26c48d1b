package tile

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/freshet-io/freshet/internal/core/batch"
)

// Fields of a state, as docs/format/checkpoint.md draws them.

func appendString[T string | []byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// appendFloat writes all bits: a total may be any float.
func appendFloat(dst []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
}

// Flags of an amount.
const (
	flagRelative = 1 << iota
	flagTimer
	flagClassic
	flagSet
)

// appendAmount begins an amount. Its flags tell what follows.
func appendAmount(dst []byte, flags byte, value float64, at int64) []byte {
	return binary.AppendVarint(appendFloat(append(dst, flags), value), at)
}

// appendSources ends an amount. Only a merged gauge has sources.
func appendSources(dst []byte, sources map[uint64]sourceValue) []byte {
	if len(sources) == 0 {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(sources)))
	for _, id := range slices.Sorted(maps.Keys(sources)) {
		dst = binary.LittleEndian.AppendUint64(dst, id)
		dst = appendFloat(dst, sources[id].value)
		dst = binary.AppendVarint(dst, sources[id].at)
	}
	return dst
}

var errState = errors.New("state of a shard is malformed")

// decoder reads b, which holds the unread rest of the input. After an error it returns zeros.
type decoder struct {
	version byte
	b       []byte
	err     error
}

func (d *decoder) fail() {
	d.err = errState
	d.b = nil
}

// rest makes b the unread rest of the input, after another package has read a part.
func (d *decoder) rest(b []byte, err error) {
	if err != nil {
		d.fail()
		return
	}
	d.b = b
}

// amount reads what appendAmount wrote. Flags that the kind does not have are an error.
func (d *decoder) amount(known byte) (flags byte, value float64, at int64) {
	if flags, value, at = d.byte(), d.float(), d.varint(); flags&^known != 0 {
		d.fail()
	}
	return flags, value, at
}

func (d *decoder) sources() map[uint64]sourceValue {
	n := d.count(17)
	if n == 0 {
		return nil
	}
	sources := make(map[uint64]sourceValue, n)
	for range n {
		id := d.fixed()
		sources[id] = sourceValue{value: d.float(), at: d.varint()}
	}
	return sources
}

func (d *decoder) exemplar() *batch.Exemplar {
	x := new(batch.Exemplar)
	d.rest(x.Parse(d.b, 0))
	return x
}

// count reads the number of elements that follow. Each has at least `size` bytes.
func (d *decoder) count(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/size) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) fixed() uint64 {
	if len(d.b) < 8 {
		d.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

func (d *decoder) float() float64 { return math.Float64frombits(d.fixed()) }

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}
