// Package batch is what one sender's window holds for one shard of one tenant:
// the unit that is journalled, that a follower will be fed, and that will travel
// between processes. It holds bytes only; folding them is tile's business.
// Layout: docs/format/batch.md.
package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
)

const version = 1

// maxSecond is the year 2255: seconds that become nanoseconds must not overflow.
const maxSecond = 9_000_000_000

// Header is what a batch says of all its increments.
type Header struct {
	Tenant      []byte // points into the batch when it was parsed
	Shard       uint16
	Sender      uint64 // the collector; the same after its restart
	Incarnation uint64 // the collector's process
	Sequence    uint64 // grows from batch to batch of an incarnation; a repeat has the same
	Second      int64  // Unix seconds, start of the window
	Birth       int64  // Unix nanoseconds at which the window's first packet was read
}

// countSize is the width of the number of increments, which ends the header and
// is known last.
const countSize = 4

// Begin appends a header whose increments follow. End must be called with the
// number of increments once they are all appended.
func Begin(dst []byte, h *Header) []byte {
	dst = append(dst, version)
	dst = binary.LittleEndian.AppendUint16(dst, h.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, h.Sender)
	dst = binary.LittleEndian.AppendUint64(dst, h.Incarnation)
	dst = binary.LittleEndian.AppendUint64(dst, h.Sequence)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Second))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Birth))
	dst = append(dst, make([]byte, countSize)...)
	dst = append(dst, byte(len(h.Tenant)))
	return append(dst, h.Tenant...)
}

// Fixed places of the header.
const (
	countAt    = 1 + 2 + 5*8
	tenantAt   = countAt + countSize
	headerSize = tenantAt + 1
)

// End writes the number of increments into the batch that Begin began.
func End(b []byte, increments uint32) { binary.LittleEndian.PutUint32(b[countAt:], increments) }

// Flags of an increment.
const (
	flagTime     = 1 << iota // has a time of its own (|T)
	flagRelative             // a gauge's change, not its value (StatsD's +5|g)
	flagSource               // has a source
	flagBounds               // a timer in classic buckets
)

// Increment is what happened to one series in the window. Slices point into the
// batch.
type Increment struct {
	Key     []byte // series.AppendKey
	Policy  []byte // series.AppendPolicy
	Samples uint32 // values on the wire, unweighted
	Time    int64  // Unix seconds of |T, 0 without
	Source  uint64 // which of the senders that a gauge is merged from, 0 without

	Value    float64                // counter: sum; gauge: last; check: status
	At       int64                  // gauge and check: Unix nanoseconds at which Value was read
	Relative bool                   // gauge: Value is a change
	Timer    *histogram.Exponential // timer, unless Classic is set
	Classic  []float64              // timer in classic buckets: counts by bound, the last for +Inf
	Sum      float64                // of Classic
	Set      *distinct.Set
}

// Kind is the kind of the increment's series.
func (i *Increment) Kind() series.Kind { return series.Kind(i.Key[0]) }

// Append appends the increment to a batch whose window starts at second.
func (i *Increment) Append(dst []byte, second int64) []byte {
	var flags byte
	if i.Time != 0 {
		flags |= flagTime
	}
	if i.Relative {
		flags |= flagRelative
	}
	if i.Source != 0 {
		flags |= flagSource
	}
	if i.Classic != nil {
		flags |= flagBounds
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(len(i.Key)))
	dst = append(dst, i.Key...)
	dst = binary.AppendUvarint(dst, uint64(len(i.Policy)))
	dst = append(dst, i.Policy...)
	dst = binary.AppendUvarint(dst, uint64(i.Samples))
	if i.Time != 0 {
		dst = binary.AppendVarint(dst, i.Time-second)
	}
	if i.Source != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, i.Source)
	}
	switch i.Kind() {
	case series.Counter:
		dst = histogram.AppendFloat(dst, i.Value)
	case series.Gauge, series.Check:
		dst = histogram.AppendFloat(dst, i.Value)
		dst = binary.AppendVarint(dst, i.At-second*1e9)
	case series.Timer:
		if i.Classic == nil {
			return i.Timer.Append(dst)
		}
		dst = histogram.AppendFloat(dst, i.Sum)
		dst = binary.AppendUvarint(dst, uint64(len(i.Classic)))
		for _, c := range i.Classic {
			dst = histogram.AppendFloat(dst, c)
		}
	case series.Set:
		dst = i.Set.Append(dst)
	}
	return dst
}

// Reader reads the increments of a batch one after the other. It may be used
// again for other batches and keeps its memory.
type Reader struct {
	Header Header

	rest    []byte
	left    uint32
	inc     Increment
	timer   histogram.Exponential
	set     distinct.Set
	classic []float64
	err     error
}

// Reset begins to read b, which must not change until the reader is done.
func (r *Reader) Reset(b []byte) error {
	r.left, r.rest, r.err = 0, nil, nil
	if len(b) < headerSize || b[0] != version {
		return errors.New("batch: unknown version or too short")
	}
	h := &r.Header
	h.Shard = binary.LittleEndian.Uint16(b[1:])
	h.Sender = binary.LittleEndian.Uint64(b[3:])
	h.Incarnation = binary.LittleEndian.Uint64(b[11:])
	h.Sequence = binary.LittleEndian.Uint64(b[19:])
	h.Second = int64(binary.LittleEndian.Uint64(b[27:]))
	h.Birth = int64(binary.LittleEndian.Uint64(b[35:]))
	n := int(b[tenantAt])
	if h.Shard >= series.Shards || n == 0 || len(b) < headerSize+n {
		return errors.New("batch: header is malformed")
	}
	if h.Second < 0 || h.Second > maxSecond {
		return fmt.Errorf("batch: window at second %d", h.Second)
	}
	h.Tenant = b[headerSize : headerSize+n]
	r.left = binary.LittleEndian.Uint32(b[countAt:])
	r.rest = b[headerSize+n:]
	return nil
}

// Next returns the next increment, valid until the next call, or nil at the end
// or after an error.
func (r *Reader) Next() *Increment {
	if r.left == 0 || r.err != nil {
		if r.err == nil && len(r.rest) > 0 {
			r.err = errors.New("batch: bytes follow the last increment")
		}
		return nil
	}
	r.left--
	if err := r.read(); err != nil {
		r.err = fmt.Errorf("batch: increment %d from the end: %w", r.left, err)
		return nil
	}
	return &r.inc
}

// Err tells why Next ended before the end, if it did.
func (r *Reader) Err() error { return r.err }

var errIncrement = errors.New("malformed")

func (r *Reader) read() error {
	i := &r.inc
	*i = Increment{}
	if len(r.rest) == 0 {
		return errIncrement
	}
	flags := r.rest[0]
	r.rest = r.rest[1:]
	if i.Key = r.cut(); len(i.Key) == 0 || !i.Kind().Valid() {
		return errIncrement
	}
	i.Policy = r.cut()
	samples := r.uvarint()
	if samples > math.MaxUint32 {
		return errIncrement
	}
	i.Samples = uint32(samples)
	if flags&flagTime != 0 {
		i.Time = r.Header.Second + r.varint()
		if i.Time <= 0 || i.Time > maxSecond {
			return errIncrement
		}
	}
	if flags&flagSource != 0 {
		if len(r.rest) < 8 {
			return errIncrement
		}
		i.Source = binary.LittleEndian.Uint64(r.rest)
		r.rest = r.rest[8:]
	}
	if r.err != nil {
		return r.err
	}
	i.Relative = flags&flagRelative != 0
	return r.readValue(i, flags)
}

func (r *Reader) readValue(i *Increment, flags byte) (err error) {
	switch i.Kind() {
	case series.Counter:
		i.Value, r.rest, err = histogram.CutFloat(r.rest)
	case series.Gauge, series.Check:
		if i.Value, r.rest, err = histogram.CutFloat(r.rest); err != nil {
			return err
		}
		delta := r.varint()
		if delta > 1e18 || delta < -1e18 {
			return errIncrement
		}
		i.At = r.Header.Second*1e9 + delta
	case series.Timer:
		if flags&flagBounds != 0 {
			return r.readClassic(i)
		}
		r.rest, err = r.timer.Parse(r.rest)
		i.Timer = &r.timer
	case series.Set:
		r.rest, err = r.set.Parse(r.rest)
		i.Set = &r.set
	}
	if err != nil {
		return err
	}
	return r.err
}

func (r *Reader) readClassic(i *Increment) (err error) {
	if i.Sum, r.rest, err = histogram.CutFloat(r.rest); err != nil {
		return err
	}
	n := r.uvarint()
	if r.err != nil || n == 0 || n > series.MaxBounds+1 {
		return errIncrement
	}
	r.classic = r.classic[:0]
	for range n {
		var c float64
		if c, r.rest, err = histogram.CutFloat(r.rest); err != nil || c < 0 {
			return errIncrement
		}
		r.classic = append(r.classic, c)
	}
	i.Classic = r.classic
	return nil
}

// cut takes bytes after their length off the front.
func (r *Reader) cut() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.err = errIncrement
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *Reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.err = errIncrement
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *Reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.err = errIncrement
		return 0
	}
	r.rest = r.rest[n:]
	return v
}
