package slogring

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// delay is the longest time that a line waits if it is not urgent. Waking up a hundred times a
	// second costs 0.1 % of a core, and all lines of that time share a system call.
	delay = 10 * time.Millisecond

	// linger is how long the writer keeps waking up after the last line. Then it sleeps until a caller
	// wakes it. So a program that does not log pays nothing.
	linger = time.Second

	// batch is the largest size of one Write, in bytes: the size of a pipe. The ring can reuse the room
	// of these bytes only when all of them are written.
	batch = 64 << 10
)

// The states of the writer, which pushing goroutines read.
const (
	awake   = iota // will look at the ring before it rests
	resting        // will look at the ring after delay
	asleep         // looks at the ring only when woken
)

// writer is the state of the goroutine that writes.
type writer struct {
	to    io.Writer
	state atomic.Uint32
	wake  chan struct{} // holds one wake-up
	done  chan struct{} // closed when the goroutine ends

	// mu is held by Stats, Flush, Close and the writer, but never during a Write.
	mu                   sync.Mutex
	written, cut, failed uint64        // numbers of records
	faults               uint64        // calls of Write that returned an error
	fault                error         // the last error that Write returned
	asked                uint64        // number of calls of Flush
	answered             uint64        // calls of Flush that were answered
	answer               chan struct{} // closed when answered increases
	closing              bool

	// Only the writer's goroutine uses these fields.
	torn       bool // the last write ended in the middle of a line
	saidLost   Levels
	saidFailed uint64
	due        []*tally
}

func (w *writer) init(to io.Writer) {
	w.to = to
	w.wake, w.done, w.answer = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
}

// pushed must be called after a line was pushed. It wakes the writer if the writer is asleep, or if it is
// resting and the line is urgent. If several callers push at that moment, only the first wakes the
// writer.
func (w *writer) pushed(urgent bool) {
	state := w.state.Load()
	if (state == asleep || state == resting && urgent) && w.state.CompareAndSwap(state, awake) {
		w.rouse()
	}
}

func (w *writer) rouse() {
	select {
	case w.wake <- struct{}{}:
	default: // a wake-up is waiting already
	}
}

// Flush waits until the lines of all earlier calls of Handle are written. It also ends the current period of
// counting early, so that the lines about suppressed and lost records are written now. Call it before the
// program exits, after the record that gives the reason. It returns an error if a line could not be written,
// or if ctx is done first, for example because the output is blocked. After either error the writer goes on
// with the remaining lines.
func (h *Handler) Flush(ctx context.Context) error {
	w := &h.writer
	w.mu.Lock()
	w.asked++
	mine, faults := w.asked, w.faults
	w.mu.Unlock()
	w.rouse()
	for {
		w.mu.Lock()
		answered, answer := w.answered >= mine, w.answer
		w.mu.Unlock()
		if answered {
			return w.faultSince(faults)
		}
		select {
		case <-answer:
		case <-w.done:
			return w.faultSince(faults)
		case <-ctx.Done():
			return fmt.Errorf("flush log: %d records wait for the output: %w", h.ring.len(), context.Cause(ctx))
		}
	}
}

// Close does a last Flush. Later records are counted as lost. The output stays open. When Close returns
// nil, the writer has ended. If ctx is done first, the writer continues, and ends after its last line.
// Close may be called again.
func (h *Handler) Close(ctx context.Context) error {
	w := &h.writer
	h.ring.close()
	w.mu.Lock()
	w.closing = true
	faults := w.faults
	w.mu.Unlock()
	w.rouse()
	select {
	case <-w.done:
		return w.faultSince(faults)
	case <-ctx.Done():
		return fmt.Errorf("close log: %d records wait for the output: %w", h.ring.len(), context.Cause(ctx))
	}
}

func (w *writer) faultSince(faults uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.faults == faults {
		return nil
	}
	return fmt.Errorf("write log: %w", w.fault)
}

// run is the loop of the writer. After a period without records, the next period begins only with the next
// line, so an idle program has no periods.
func (s *sink) run() {
	w := &s.writer
	defer close(w.done)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	var last, begun time.Time // time of the last line; begin of the period, or zero without a period
	var flush struct{ asked, end uint64 }
	for {
		w.state.Store(awake)
		asked, closing := w.requests()
		if flush.asked == w.answered && asked > w.answered {
			flush.asked, flush.end = asked, s.ring.end()
		}
		wrote := s.writeBatch()
		now := time.Now()
		if wrote {
			last = now
			if begun.IsZero() {
				begun = now
			}
		}
		over := !begun.IsZero() && now.Sub(begun) >= s.opts.Period
		flushed := flush.asked > w.answered && s.ring.passed(flush.end)
		ended := closing && s.ring.len() == 0
		if over || flushed || ended {
			if begun.IsZero() {
				begun = now // a record may have been counted before its line is pushed
			}
			if s.endPeriod(now, now.Sub(begun), ended) {
				begun = now
			} else {
				begun = time.Time{}
			}
		}
		if flushed {
			w.answerTo(flush.asked)
		}
		if ended {
			return
		}
		if wrote {
			continue
		}
		// If a Flush or Close is still unanswered here, some call of Handle is still copying its line
		// into the ring.
		if now.Sub(last) < linger || flush.asked > w.answered || closing {
			timer.Reset(delay)
			s.rest(resting, timer.C)
		} else if !begun.IsZero() {
			timer.Reset(begun.Add(s.opts.Period).Sub(now))
			s.rest(asleep, timer.C)
		} else {
			s.rest(asleep, nil)
		}
	}
}

// rest waits until a caller wakes the writer, or until the timer fires.
func (s *sink) rest(state uint32, timer <-chan time.Time) {
	w := &s.writer
	w.state.Store(state)
	if s.ring.isReady() {
		return // a line was pushed before its caller could see the state
	}
	select {
	case <-w.wake:
	case <-timer:
	}
}

func (w *writer) requests() (asked uint64, closing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked, w.closing
}

func (w *writer) answerTo(asked uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = asked
	close(w.answer)
	w.answer = make(chan struct{})
}

// writeBatch writes the ready, contiguous lines, and reports whether there were any. Lines that it cannot
// write are counted and dropped, since newer lines need the room.
func (s *sink) writeBatch() bool {
	lines, n := s.ring.take(batch)
	if n == 0 {
		return false
	}
	w := &s.writer
	written, _ := w.write(lines)
	w.mu.Lock()
	defer w.mu.Unlock()
	whole, cut := s.ring.release(n, written)
	w.written += whole
	w.cut += cut
	w.failed += uint64(n) - whole - cut
	return true
}

// write writes lines. If an earlier error left a torn line in the output, it ends that line first.
func (w *writer) write(lines []byte) (n int, err error) {
	if w.torn {
		if n, err = w.put([]byte{'\n'}); n == 0 {
			return 0, err
		}
		w.torn = false
	}
	if n, err = w.put(lines); n > 0 {
		w.torn = lines[n-1] != '\n'
	}
	return n, err
}

// put calls Write once, and counts the error.
func (w *writer) put(p []byte) (n int, err error) {
	n, err = w.to.Write(p)
	n = min(max(n, 0), len(p)) // even if Write returned an invalid number
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.faults++
		w.fault = err
	}
	return n, err
}

// endPeriod writes a line for each message with suppressed records, and for lost records. Lines that
// cannot be written now are written later. It returns true if the period had records, or if such lines
// remain.
func (s *sink) endPeriod(now time.Time, length time.Duration, last bool) bool {
	w := &s.writer
	w.mu.Lock()
	due, any := s.sampler.settle(last, w.due[:0])
	failed, fault := w.failed, w.fault
	w.mu.Unlock()
	w.due = due
	length = length.Round(time.Millisecond)

	lost := s.lostByLevel()
	if lost != w.saidLost {
		err := s.say(now, slog.LevelWarn, "log records lost",
			slog.Uint64("debug", lost.Debug-w.saidLost.Debug), slog.Uint64("info", lost.Info-w.saidLost.Info),
			slog.Uint64("warn", lost.Warn-w.saidLost.Warn), slog.Uint64("error", lost.Error-w.saidLost.Error))
		if err != nil {
			return true
		}
		w.saidLost = lost
	}
	if failed != w.saidFailed {
		err := s.say(now, slog.LevelWarn, "log records not written",
			slog.Uint64("count", failed-w.saidFailed), slog.Any("error", fault))
		if err != nil {
			return true
		}
		w.saidFailed = failed
	}
	for _, t := range due {
		err := s.say(now, t.level, "log records suppressed",
			slog.Uint64("count", t.unsaid), slog.Duration("within", length), slog.String("message", t.text))
		if err != nil {
			return true
		}
		t.unsaid = 0
	}
	return any
}

// say writes one of the handler's own lines. It bypasses the ring, which may be full.
func (s *sink) say(now time.Time, level slog.Level, message string, attrs ...slog.Attr) error {
	r := slog.NewRecord(now, level, message, 0)
	r.AddAttrs(attrs...)
	f := formatters.Get().(*formatter)
	defer f.free()
	f.record(&Handler{sink: s}, &r)
	_, err := s.writer.write(f.line)
	return err
}
