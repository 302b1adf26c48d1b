// Package batch encodes the samples that one producer counted in one window, for one shard of one
// tenant. The journal appends batches, processes send them to each other, and package tile folds
// them. Layout: docs/format/batch.md.
//
// Producers hand the batches of a window to the aggregator by Push(ctx, batches). The error of Push
// says what became of them:
//
//	nil          they count, and survive the death of the process
//	ErrUnsynced  they count, and survive the death of the process, but perhaps not a power loss
//	FullError    the batches of the tenants that it names are refused for good; the others count
//	ErrRefused   none counts, and none ever will
//	any other    none counts
//
// After ErrUnsynced, and after any error that this list does not name, the producer should push the
// batches again. If the aggregator has already counted a batch, it recognizes the repeat. After Push has
// returned, the aggregator no longer uses the memory of the batches.
package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
)

const version = 1

// Flags of a batch. A reader refuses a batch with an unknown flag, because flags share a byte with
// the version.
const (
	versionMask = 0x0f
	flagUpDown  = 0x10 // Header.UpDown
	knownFlags  = flagUpDown
)

// maxSecond bounds the times in a batch. The parser has the same bound, so an accepted sample
// never makes a batch that cannot be read.
const maxSecond = dogstatsd.MaxTime

// Header has the fields that all increments of a batch share.
type Header struct {
	Tenant      []byte // after parsing, points into the batch
	Shard       uint16
	Producer    uint64 // the collector or distributor that made the batch; a restart keeps the number
	Incarnation uint64 // one life of the producer
	Sequence    uint64 // grows with each batch of a shard and incarnation; repeats have the same number. See Writer.Begin
	Second      int64  // Unix seconds, start of the window
	Birth       int64  // Unix nanoseconds at which the window's first packet was read
	UpDown      bool   // some increments may be of up/down counters; set by Writer
}

// countSize is the size of the header's last field, the number of increments. End writes it.
const countSize = 4

// Begin appends a header. Append the increments after it, then call End with their number.
func Begin(dst []byte, h *Header) []byte {
	first := byte(version)
	if h.UpDown {
		first |= flagUpDown
	}
	dst = append(dst, first)
	dst = binary.LittleEndian.AppendUint16(dst, h.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, h.Producer)
	dst = binary.LittleEndian.AppendUint64(dst, h.Incarnation)
	dst = binary.LittleEndian.AppendUint64(dst, h.Sequence)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Second))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Birth))
	dst = append(dst, make([]byte, countSize)...)
	dst = append(dst, byte(len(h.Tenant)))
	return append(dst, h.Tenant...)
}

// Fixed offsets in the header.
const (
	countAt    = 1 + 2 + 5*8
	tenantAt   = countAt + countSize
	headerSize = tenantAt + 1
)

// End writes the number of increments into the batch that Begin began.
func End(b []byte, increments uint32) { binary.LittleEndian.PutUint32(b[countAt:], increments) }

// Flags of an increment.
const (
	flagTime     = 1 << iota // the increment has a time of its own (|T)
	flagRelative             // a gauge's change, not its value (StatsD's +5|g)
	flagSource               // the increment has a source
	flagBounds               // the increment is a timer in classic buckets
	flagDelta                // Delta is set
	flagExemplar             // the increment is a timer with an exemplar

	flagsOfIncrement = flagTime | flagRelative | flagSource | flagBounds | flagDelta | flagExemplar
)

// Increment is what happened to one series in the window. Its slices point into the batch.
type Increment struct {
	Key     []byte // series.AppendKey
	Policy  []byte // series.AppendPolicy
	Samples uint32 // how many values came on the wire, unweighted
	Time    int64  // Unix seconds of |T, 0 if absent
	Source  uint64 // identifies one of the values of a merged gauge; 0 if absent
	Delta   int64  // Unix milliseconds at which a sender's own delta ends, to recognize repeats; 0 if absent

	Value    float64                // counter, up/down counter: sum; gauge: last; check: status
	At       int64                  // gauge and check: Unix nanoseconds at which Value was read
	Relative bool                   // gauge: Value is a change
	Timer    *histogram.Exponential // timer, unless Classic is set
	Classic  []float64              // timer in classic buckets: counts by bound, the last for +Inf
	Sum      float64                // sum of the values in Classic
	Set      *distinct.Set
	Exemplar *Exemplar // only for timers; nil for none

	flags byte   // set by Reader
	brief []byte // the bytes after the policy; set by Reader
}

// Kind is the kind of the increment's series.
func (i *Increment) Kind() series.Kind { return series.Kind(i.Key[0]) }

// lengthSize is the size of the length before each increment. Append fills it in last.
const lengthSize = 4

// Append appends the increment to a batch whose window starts at `second`.
func (i *Increment) Append(dst []byte, second int64) []byte {
	start := len(dst) + lengthSize
	dst = i.appendBody(append(dst, make([]byte, lengthSize)...), second)
	binary.LittleEndian.PutUint32(dst[start-lengthSize:], uint32(len(dst)-start))
	return dst
}

func (i *Increment) appendBody(dst []byte, second int64) []byte {
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
	if i.Delta != 0 {
		flags |= flagDelta
	}
	if i.Exemplar != nil {
		flags |= flagExemplar
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
	if i.Delta != 0 {
		dst = binary.AppendVarint(dst, i.Delta-second*1e3)
	}
	switch i.Kind() {
	case series.Counter, series.UpDown:
		dst = histogram.AppendFloat(dst, i.Value)
	case series.Gauge, series.Check:
		dst = histogram.AppendFloat(dst, i.Value)
		dst = binary.AppendVarint(dst, i.At-second*1e9)
	case series.Timer:
		dst = i.appendTimer(dst)
	case series.Set:
		dst = i.Set.Append(dst)
	}
	// The exemplar comes last: a reader that does not know the flag sees trailing bytes and
	// skips the increment.
	if i.Exemplar != nil {
		dst = i.Exemplar.Append(dst, second*1e3)
	}
	return dst
}

func (i *Increment) appendTimer(dst []byte) []byte {
	if i.Classic == nil {
		return i.Timer.Append(dst)
	}
	dst = histogram.AppendFloat(dst, i.Sum)
	dst = binary.AppendUvarint(dst, uint64(len(i.Classic)))
	for _, c := range i.Classic {
		dst = histogram.AppendFloat(dst, c)
	}
	return dst
}

// Reader reads the increments of a batch one after the other. It can be reused for other
// batches and keeps its memory.
type Reader struct {
	Header Header

	rest    []byte // unread increments
	left    uint32 // number of unread increments
	skipped uint32 // malformed increments
	unknown byte   // unknown flags of the skipped increments
	err     error  // why the batch ended early

	body     []byte // unread part of the current increment
	bad      bool   // a field of body could not be read
	inc      Increment
	timer    histogram.Exponential
	set      distinct.Set
	classic  []float64
	exemplar Exemplar
}

// Series yields the key and the policy of each increment, in order, up to the place where the batch is damaged. It
// reads nothing else, and so costs a fraction of Next.
func Series(b []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, policy []byte) bool) {
		var r Reader
		if r.Reset(b) != nil {
			return
		}
		for ; r.left > 0 && r.cutBody(); r.left-- {
			if r.bad = len(r.body) == 0; r.bad {
				continue
			}
			r.body = r.body[1:]
			key, policy := r.cut(), r.cut()
			if !r.bad && len(key) > 0 && series.Kind(key[0]).Valid() && !yield(key, policy) {
				return
			}
		}
	}
}

// ErrNewer means that a newer version wrote the batch, in a form that this version cannot read.
var ErrNewer = errors.New("written by a newer version")

// ParseHeader returns the header of a batch. It points into b.
func ParseHeader(b []byte) (h Header, err error) {
	if len(b) < headerSize {
		return h, errors.New("batch: too short")
	}
	if v := b[0] & versionMask; v != version {
		return h, fmt.Errorf("batch: has version %d, and this program reads %d: %w", v, version, ErrNewer)
	}
	if unknown := b[0] &^ versionMask &^ knownFlags; unknown != 0 {
		return h, fmt.Errorf("batch: has the unknown flag %#02x: %w", unknown, ErrNewer)
	}
	h.UpDown = b[0]&flagUpDown != 0
	h.Shard = binary.LittleEndian.Uint16(b[1:])
	h.Producer = binary.LittleEndian.Uint64(b[3:])
	h.Incarnation = binary.LittleEndian.Uint64(b[11:])
	h.Sequence = binary.LittleEndian.Uint64(b[19:])
	h.Second = int64(binary.LittleEndian.Uint64(b[27:]))
	h.Birth = int64(binary.LittleEndian.Uint64(b[35:]))
	n := int(b[tenantAt])
	if h.Shard >= series.Shards || n == 0 || len(b) < headerSize+n {
		return h, errors.New("batch: header is malformed")
	}
	if h.Second < 0 || h.Second > maxSecond {
		return h, fmt.Errorf("batch: header has window second %d, which is out of range", h.Second)
	}
	h.Tenant = b[headerSize : headerSize+n]
	return h, nil
}

// Reset starts reading b, which must not change until the reader is done.
func (r *Reader) Reset(b []byte) (err error) {
	r.left, r.skipped, r.unknown, r.rest, r.err = 0, 0, 0, nil, nil
	if r.Header, err = ParseHeader(b); err != nil {
		return err
	}
	r.left = binary.LittleEndian.Uint32(b[countAt:])
	r.rest = b[headerSize+len(r.Header.Tenant):]
	return nil
}

// Next returns the next increment, which is valid until the next call. It returns nil at the end,
// or where the batch is cut short. It skips malformed increments.
func (r *Reader) Next() *Increment {
	for r.left > 0 && r.err == nil {
		if !r.cutBody() {
			r.err = fmt.Errorf("batch: cut short: %d increments are missing", r.left)
			return nil
		}
		r.left--
		if r.read() {
			return &r.inc
		}
		r.skipped++
	}
	if r.err == nil && len(r.rest) > 0 {
		r.err = errors.New("batch: bytes follow the last increment")
	}
	return nil
}

// Err is for use after Next has returned nil. It says which increments are missing: the malformed
// ones that Next skipped, or all increments behind the place where the batch is damaged.
func (r *Reader) Err() error {
	switch {
	case r.err != nil || r.skipped == 0:
		return r.err
	case r.unknown != 0:
		return fmt.Errorf("batch: skipped %d increments, some with the unknown flag %#02x: %w",
			r.skipped, r.unknown, ErrNewer)
	}
	return fmt.Errorf("batch: skipped %d malformed increments", r.skipped)
}

// cutBody takes the next increment from the front of the batch.
func (r *Reader) cutBody() bool {
	if len(r.rest) < lengthSize {
		return false
	}
	n := uint64(binary.LittleEndian.Uint32(r.rest))
	if n > uint64(len(r.rest)-lengthSize) {
		return false
	}
	r.body, r.rest = r.rest[lengthSize:lengthSize+n], r.rest[lengthSize+n:]
	return true
}

// read reads the increment in body. It reports whether every byte of the increment is well-formed.
func (r *Reader) read() bool {
	i := &r.inc
	*i = Increment{}
	r.bad = false
	if len(r.body) == 0 {
		return false
	}
	flags := r.body[0]
	r.body = r.body[1:]
	if flags&^flagsOfIncrement != 0 {
		r.unknown |= flags &^ flagsOfIncrement
		return false
	}
	if i.Key = r.cut(); len(i.Key) == 0 || !i.Kind().Valid() || i.Kind() == series.UpDown && !r.Header.UpDown {
		return false
	}
	i.Policy = r.cut()
	i.flags, i.brief = flags, r.body
	return r.readBrief(flags)
}

// readBrief reads the fields after the policy.
func (r *Reader) readBrief(flags byte) bool {
	i := &r.inc
	samples := r.uvarint()
	if samples > math.MaxUint32 {
		return false
	}
	i.Samples = uint32(samples)
	if flags&flagTime != 0 {
		i.Time = r.offset(r.Header.Second, maxSecond)
		r.bad = r.bad || i.Time == 0
	}
	if flags&flagSource != 0 {
		if len(r.body) < 8 {
			return false
		}
		i.Source = binary.LittleEndian.Uint64(r.body)
		r.body = r.body[8:]
	}
	if flags&flagDelta != 0 {
		i.Delta = r.offset(r.Header.Second*1e3, maxSecond*1e3)
		r.bad = r.bad || i.Delta == 0
	}
	i.Relative = flags&flagRelative != 0
	if !r.bad {
		r.readValue(i, flags)
	}
	if flags&flagExemplar != 0 && !r.bad {
		r.readExemplar(i)
	}
	return !r.bad && len(r.body) == 0
}

// AppendBrief appends the length of an increment that was read, then its fields except the key and the
// policy. These two are the same in all increments of a series.
func (i *Increment) AppendBrief(dst []byte) []byte {
	if n := len(i.brief) + 1; n < 0x80 { // nearly always the length fits in one byte
		dst = append(dst, byte(n), i.flags)
	} else {
		dst = append(binary.AppendUvarint(dst, uint64(n)), i.flags)
	}
	return append(dst, i.brief...)
}

// Brief reads an increment from the front of b, in the form of AppendBrief. `kind` is the series' kind,
// and `second` the start of the batch's window. The key of the increment has only the kind. The
// increment is valid until the next call of Next or Brief; it is nil if b is malformed.
func (r *Reader) Brief(kind series.Kind, second int64, b []byte) *Increment {
	r.rest, r.left, r.err = nil, 0, nil
	r.inc = Increment{Key: kindKeys[kind : kind+1]}
	r.body, r.bad = b, false
	r.Header.Second = second
	body := r.cut()
	if r.bad || len(body) == 0 {
		return nil
	}
	r.body = body[1:]
	if !r.readBrief(body[0]) {
		return nil
	}
	return &r.inc
}

// kindKeys has, for each kind, the byte with which the keys of its series begin.
var kindKeys = func() (keys [256]byte) {
	for i := range keys {
		keys[i] = byte(i)
	}
	return keys
}()

func (r *Reader) readValue(i *Increment, flags byte) {
	var err error
	switch i.Kind() {
	case series.Counter, series.UpDown:
		i.Value = r.float()
	case series.Gauge, series.Check:
		i.Value = r.float()
		i.At = r.offset(r.Header.Second*1e9, maxSecond*1e9)
	case series.Timer:
		if flags&flagBounds != 0 {
			r.readClassic(i)
			return
		}
		r.body, err = r.timer.Parse(r.body)
		i.Timer = &r.timer
	case series.Set:
		r.body, err = r.set.Parse(r.body)
		i.Set = &r.set
	}
	r.bad = r.bad || err != nil
}

func (r *Reader) readClassic(i *Increment) {
	i.Sum = r.float()
	n := r.uvarint()
	if n == 0 || n > series.MaxBounds+1 {
		r.bad = true
		return
	}
	r.classic = r.classic[:0]
	for range n {
		c := r.float()
		r.bad = r.bad || c < 0
		r.classic = append(r.classic, c)
	}
	i.Classic = r.classic
}

func (r *Reader) readExemplar(i *Increment) {
	var err error
	r.body, err = r.exemplar.Parse(r.body, r.Header.Second*1e3)
	r.bad = err != nil || i.Kind() != series.Timer
	i.Exemplar = &r.exemplar
}

// cut takes a length, and then that many bytes, from the front of the increment.
func (r *Reader) cut() []byte {
	n := r.uvarint()
	if n > uint64(len(r.body)) {
		r.bad = true
		return nil
	}
	b := r.body[:n]
	r.body = r.body[n:]
	return b
}

// offset takes a time that is written as its distance from `base`. `base` and the time lie between
// 0 and `latest`.
func (r *Reader) offset(base, latest int64) int64 {
	d, n := binary.Varint(r.body)
	if n <= 0 || d < -base || d > latest-base {
		r.bad = true
		return 0
	}
	r.body = r.body[n:]
	return base + d
}

func (r *Reader) float() float64 {
	v, rest, err := histogram.CutFloat(r.body)
	if err != nil {
		r.bad = true
		return 0
	}
	r.body = rest
	return v
}

func (r *Reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.body)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.body = r.body[n:]
	return v
}

// Samples returns the number of samples in the readable part of a batch.
func Samples(b []byte) (n uint64) {
	var r Reader
	if r.Reset(b) == nil {
		for inc := r.Next(); inc != nil; inc = r.Next() {
			n += uint64(inc.Samples)
		}
	}
	return n
}
