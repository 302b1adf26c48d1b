// Package slogring is a [slog.Handler] that never blocks its caller. Lines go into a ring of
// fixed size, and one goroutine writes them.
//
//	h := slogring.New(os.Stderr, slogring.Options{})
//	slog.SetDefault(slog.New(h))
//	...
//	err := h.Close(ctx) // ctx bounds the wait for a blocked output
//
// A record's line has the same bytes as a line of [slog.TextHandler]. There is no JSON.
//
// # What a caller pays
//
// The caller formats its own line, since values may change after the call, and copies the line into the
// ring. It never waits: it takes no lock, writes nothing, and allocates nothing for strings, numbers,
// booleans, times, durations and errors, in up to the five attributes that a [slog.Record] holds
// inline. The first record after a second without records wakes the writer, which may be a system call
// of Go's scheduler. A record at [slog.LevelError] or above also wakes the writer, and so does a record
// that makes the ring half full. Further such records do not wake it again until all lines are written.
// All other lines are written within 10 ms.
//
// Handle does not wait until its line is written. So a program must call [Handler.Flush] or
// [Handler.Close] before it exits. A panic or a kill loses the lines in the ring: at most the last
// 10 ms if the output keeps up.
//
// # What is not written
//
// Repeats are not written. In each period the handler writes the first records of each level and
// message, and counts the others. At the end of the period, it writes a line with the count:
//
//	level=INFO msg="log records suppressed" count=4711 within=1s message="cache miss"
//
// So keep messages constant, and put the values that vary into attributes. The handler counts 1024
// messages at a time; records of further messages are not recognized as repeats, and are written.
//
// If the ring is full, since the writer is slow, blocked or failing, a new record is lost, and counted
// by level. When writing works again, the handler writes a line with these counts; [Handler.Stats]
// returns them at any time. Every record is in exactly one count.
//
// # Memory
//
// The ring is allocated by [New] and does not grow. A line longer than [Options.Line] is cut. Besides
// the ring, the handler uses at most some hundred kilobytes for the counted messages and, while it
// formats a record, memory for the text of its values.
package slogring

import (
	"context"
	"io"
	"log/slog"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Options are the limits of a handler. A field that is zero or negative has its default.
type Options struct {
	Level     slog.Leveler // the lowest level that is logged; default slog.LevelInfo
	AddSource bool         // add file and line of the call, which allocates

	// Bytes is the size of the ring: enough for a burst, or for a writer that hangs for a
	// while. Default 1 MiB. It is rounded up to a power of two and to 4 times Line, and is at
	// most 1 GiB. The ring holds at most one record for each 64 bytes.
	Bytes int
	Line  int // longest line in bytes, 256 to 64 MiB; default 8 KiB

	First     int           // records of one level and message written in a period; default 10
	Period    time.Duration // default 1 s
	Unsampled slog.Leveler  // repeats at this level and above are written; default: none are written
}

// EveryLevel is below all other levels. As Options.Unsampled it turns suppression off.
const EveryLevel = slog.Level(math.MinInt)

// limits of the options.
const (
	minLine   = 256 // room for the handler's own lines
	maxLine   = 64 << 20
	maxRing   = 1 << 30 // positions have 32 bits
	minRecord = 64      // bytes of the ring for each record that it may hold
)

func (o Options) withDefaults() Options {
	def := func(n *int, d, least, most int) {
		if *n <= 0 {
			*n = d
		}
		*n = min(max(*n, least), most)
	}
	def(&o.Line, 8<<10, minLine, maxLine)
	def(&o.Bytes, 1<<20, 4*o.Line, maxRing)
	o.Bytes = 1 << bits.Len(uint(o.Bytes-1))
	if o.First <= 0 {
		o.First = 10
	}
	if o.Period <= 0 {
		o.Period = time.Second
	}
	if o.Level == nil {
		o.Level = slog.LevelInfo
	}
	return o
}

// Handler is a [slog.Handler]. The handlers that WithAttrs and WithGroup return share its ring, writer
// and counts. All methods are safe for concurrent use.
type Handler struct {
	*sink
	attrs  []byte // attributes of WithAttrs, formatted, each after a space
	prefix string // prefix of keys: the open groups, each with a dot
}

// sink is shared by all handlers that come from one call of New.
type sink struct {
	opts    Options
	ring    *ring
	sampler sampler
	lost    [levels]atomic.Uint64
	writer  writer
}

// New returns a handler and starts the goroutine that writes to w. The goroutine runs until
// [Handler.Close]. Each call of w.Write gets one or more whole lines, and must not keep them. Write may be
// slow, but while it blocks the ring fills up, and then records are lost.
func New(w io.Writer, o Options) *Handler {
	s := &sink{opts: o.withDefaults()}
	s.ring = newRing(s.opts.Bytes, s.opts.Line)
	s.sampler.first = uint64(s.opts.First)
	s.writer.init(w)
	go s.run()
	return &Handler{sink: s}
}

// Enabled reports whether the level is logged.
func (h *Handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.opts.Level.Level()
}

// WithAttrs returns a handler with more attributes. It formats them once, in this call.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	f := formatter{prefix: []byte(h.prefix)}
	if !f.attrs(attrs) {
		return h
	}
	made := *h
	made.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], f.line...)
	made.prefix = string(f.prefix)
	return &made
}

// WithGroup returns a handler that puts name and a dot before the keys of later attributes.
func (h *Handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	made := *h
	made.prefix += name + "."
	return &made
}

// Handle puts the record into the ring, or counts it as suppressed or lost. It always returns nil, since
// the record is written later. Stats counts what becomes of it.
func (h *Handler) Handle(_ context.Context, r slog.Record) error {
	s := h.sink
	if (s.opts.Unsampled == nil || r.Level < s.opts.Unsampled.Level()) && !s.sampler.pass(r.Level, r.Message) {
		return nil
	}
	if s.ring.full() { // checked before formatting, to save time while the output is blocked
		s.lost[classOf(r.Level)].Add(1)
		return nil
	}
	f := formatters.Get().(*formatter)
	cut := f.record(h, &r)
	pushed, high := s.ring.push(f.line, cut)
	f.free()
	if !pushed {
		s.lost[classOf(r.Level)].Add(1)
		return nil
	}
	s.writer.pushed(high || r.Level >= slog.LevelError)
	return nil
}

// levels is the number of levels that are counted separately.
const levels = 4

// classOf returns the index of a level among debug, info, warn and error. A level in between counts as
// the next lower level, as in the text of the level ("INFO+2").
func classOf(l slog.Level) int {
	switch {
	case l < slog.LevelInfo:
		return 0
	case l < slog.LevelWarn:
		return 1
	case l < slog.LevelError:
		return 2
	}
	return 3
}

// Levels are counts by level. A record with a level between two of these four is counted under the lower
// one.
type Levels struct{ Debug, Info, Warn, Error uint64 }

// Sum returns the count of all levels.
func (l Levels) Sum() uint64 { return l.Debug + l.Info + l.Warn + l.Error }

// Stats are counts of records. Each record is in exactly one field. The counts only grow, except
// Waiting.
type Stats struct {
	Written    uint64 // records that were written whole
	Cut        uint64 // written without their end: longer than Options.Line
	Suppressed uint64 // repeats within a period, which were not written
	Lost       Levels // records that came while the ring was full or closed
	Failed     uint64 // records whose write failed; a part of the line may be written
	Waiting    uint64 // records in the ring
}

// Handled returns the number of all records. If no call of Handle is running, it equals the number of
// calls of Handle.
func (s Stats) Handled() uint64 {
	return s.Written + s.Cut + s.Suppressed + s.Lost.Sum() + s.Failed + s.Waiting
}

// Stats returns the counts since New.
func (h *Handler) Stats() Stats {
	w := &h.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	return Stats{
		Written: w.written, Cut: w.cut, Failed: w.failed,
		Suppressed: h.sampler.suppressed(),
		Lost:       h.lostByLevel(),
		Waiting:    uint64(h.ring.len()),
	}
}

func (s *sink) lostByLevel() Levels {
	return Levels{Debug: s.lost[0].Load(), Info: s.lost[1].Load(), Warn: s.lost[2].Load(), Error: s.lost[3].Load()}
}
