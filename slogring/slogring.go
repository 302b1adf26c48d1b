// Package slogring is a [slog.Handler] that never gets in its caller's way. Lines go
// into a ring of fixed size, and one goroutine writes them.
//
//	h := slogring.New(os.Stderr, slogring.Options{})
//	slog.SetDefault(slog.New(h))
//	...
//	err := h.Close(ctx) // which says how long a blocked output may hold up the end
//
// The line of a record has the same bytes as that of [slog.TextHandler]. There is no JSON.
//
// # What a caller pays
//
// It formats its own line, since values may change after the call, and copies it into the
// ring. It waits for nobody: there is no lock, no write, and no allocation for strings,
// numbers, booleans, times, durations and errors, in up to the five attributes that a
// [slog.Record] holds itself. Only a record that finds the writer asleep wakes it, which
// may be a system call of Go's scheduler: the first one after a second without any; one
// at [slog.LevelError] or above, or that half fills the ring, once until all is written.
// Everything else is written within 10 ms.
//
// There is no line that the program waits for. So before it ends on purpose it calls
// [Handler.Flush] or [Handler.Close]; a panic or a kill costs the lines that wait then, of
// 10 ms at most if the output keeps up.
//
// # What is not written
//
// Repeats: of each level and message, the first ones of a period are written, the others
// counted. A line at the end of the period has the count:
//
//	level=INFO msg="log records suppressed" count=4711 within=1s message="cache miss"
//
// So a message is best constant, and what varies is in attributes. 1024 messages are
// known at a time; those beyond are no repeats as far as one can know, and pass.
//
// What finds the ring full, because the writer is slow, blocked or failing, is lost and
// counted by level. When writing works again, a line says so; [Handler.Stats] says so at
// any time. Nothing is lost without a number, and each record is in exactly one of them.
//
// # Memory
//
// The ring is allocated by [New] and does not grow. A longer line than [Options.Line] is
// cut. Beyond the ring there are at most some hundred kilobytes, for the messages that are
// counted, and while a record is formatted the memory that its values take as text.
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

// Options are the limits of a handler. What is zero or below has the default.
type Options struct {
	Level     slog.Leveler // the lowest that is logged; default slog.LevelInfo
	AddSource bool         // add file and line of the call, which allocates

	// Bytes is the size of the ring: what a burst, or a writer that hangs for a while, may
	// need. Default 1 MiB, which is rounded up to a power of two and to 4 times Line, at
	// most 1 GiB. It holds at most a record for each 64 bytes.
	Bytes int
	Line  int // bytes of the longest line, 256 to 64 MiB; default 8 KiB

	First     int           // records of one level and message that are written in a period; default 10
	Period    time.Duration // default 1 s
	Unsampled slog.Leveler  // from this level on nothing is suppressed; default: everything may be
}

// EveryLevel is below all others. As Options.Unsampled it has nothing suppressed.
const EveryLevel = slog.Level(math.MinInt)

// limits of the options.
const (
	minLine   = 256 // our own lines have their numbers in it
	maxLine   = 64 << 20
	maxRing   = 1 << 30 // places have 32 bits
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

// Handler is a [slog.Handler]. Those that WithAttrs and WithGroup return have its ring,
// its writer and its counts in common with it. All methods may be called by many at once.
type Handler struct {
	*sink
	attrs  []byte // of WithAttrs, as they stand in the line, each after a space
	prefix string // of keys: the open groups, each with its dot
}

// sink is what handlers of one New have in common.
type sink struct {
	opts    Options
	ring    *ring
	sampler sampler
	lost    [levels]atomic.Uint64
	writer  writer
}

// New returns a handler and starts the goroutine that writes to w: a log has to work
// before everything else, and until [Handler.Close]. Each Write is of one whole line or of
// several, which it must not keep. It need not be quick; while it blocks, the ring fills,
// and then records are lost.
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

// WithAttrs formats the attributes now, and not once for each record.
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

// WithGroup begins the keys of what follows with name and a dot.
func (h *Handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	made := *h
	made.prefix += name + "."
	return &made
}

// Handle puts the record into the ring, or counts it. It returns nil: what became of the
// record is not known yet, and Stats will tell.
func (h *Handler) Handle(_ context.Context, r slog.Record) error {
	s := h.sink
	if (s.opts.Unsampled == nil || r.Level < s.opts.Unsampled.Level()) && !s.sampler.pass(r.Level, r.Message) {
		return nil
	}
	if s.ring.full() { // known before the line is made: the less a blocked output costs
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

// levels is how many classes of levels are counted apart.
const levels = 4

// classOf is the index of a level among debug, info, warn and error: levels between two
// of them are counted with the lower one, as in their names.
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

// Levels are counts by level. A level between two of them counts as the lower one.
type Levels struct{ Debug, Info, Warn, Error uint64 }

// Sum is that of all levels.
func (l Levels) Sum() uint64 { return l.Debug + l.Info + l.Warn + l.Error }

// Stats are what became of the records. Each is in exactly one of them. They only grow,
// except for Waiting.
type Stats struct {
	Written    uint64 // whole
	Cut        uint64 // written without their end, since they were longer than Options.Line
	Suppressed uint64 // repeats within a period
	Lost       Levels // the ring was full, or closed
	Failed     uint64 // the writer returned an error; the line may be there in part
	Waiting    uint64 // in the ring
}

// Handled is all records: as many as calls of Handle that have returned, when none is
// running.
func (s Stats) Handled() uint64 {
	return s.Written + s.Cut + s.Suppressed + s.Lost.Sum() + s.Failed + s.Waiting
}

// Stats counts since New.
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
