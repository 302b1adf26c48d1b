package slogring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

var ctx = context.Background()

// output keeps what is written to it. It can block and fail.
type output struct {
	mu     sync.Mutex
	opened sync.Cond // signals that the output is no longer blocked
	shut   bool
	fail   func(p []byte) (int, error) // replaces Write; its result is how many bytes the output keeps
	all    bytes.Buffer
	writes int
}

func newOutput() *output {
	o := &output{}
	o.opened.L = &o.mu
	return o
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.shut {
		o.opened.Wait()
	}
	o.writes++
	if o.fail != nil {
		n, err := o.fail(p)
		o.all.Write(p[:min(max(n, 0), len(p))])
		return n, err
	}
	return o.all.Write(p)
}

func (o *output) block() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut = true
}

func (o *output) unblock() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut = false
	o.opened.Broadcast()
}

func (o *output) failing(f func(p []byte) (int, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail = f
}

// lines returns the whole lines, without their time.
func (o *output) lines() (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range strings.Lines(o.all.String()) {
		line, whole := strings.CutSuffix(line, "\n")
		if whole {
			if strings.HasPrefix(line, "time=") {
				_, line, _ = strings.Cut(line, " ")
			}
			all = append(all, line)
		}
	}
	return all
}

func (o *output) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := o.lines(); !slices.Equal(got, want) {
		t.Errorf("written:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// sum adds up the attribute that `number` names, over all lines with the message.
func (o *output) sum(message, number string) (n uint64) {
	for _, line := range o.lines() {
		if !strings.Contains(line, message) {
			continue
		}
		if _, rest, found := strings.Cut(line, " "+number+"="); found {
			digits, _, _ := strings.Cut(rest, " ")
			i, _ := strconv.ParseUint(digits, 10, 64)
			n += i
		}
	}
	return n
}

func (o *output) lost() (n uint64) {
	for _, level := range []string{"debug", "info", "warn", "error"} {
		n += o.sum(`msg="log records lost"`, level)
	}
	return n
}

// own is the pattern of the beginning of the handler's own lines.
var own = regexp.MustCompile(`^level=\S+ msg="log records (lost|not written|suppressed)"`)

// logged returns the lines that the test logged.
func (o *output) logged() []string {
	return slices.DeleteFunc(o.lines(), own.MatchString)
}

func finish(t testing.TB, h *Handler) {
	t.Helper()
	if err := h.Close(ctx); err != nil {
		t.Error(err)
	}
}

func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

func repeat(n int, f func()) {
	for range n {
		f()
	}
}

// The first line after a pause is written at once, and so is an error. Other lines wait for the writer's
// delay, since their callers do not wake the writer.
func TestWhenLinesAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput()
		h := New(out, Options{})
		defer finish(t, h)
		l := slog.New(h)
		after := func(d time.Duration, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			out.expect(t, want...)
		}
		after(time.Hour)
		l.Info("first")
		after(0, "level=INFO msg=first")
		l.Info("second")
		l.Warn("third")
		after(delay-1, "level=INFO msg=first")
		after(1, "level=INFO msg=first", "level=INFO msg=second", "level=WARN msg=third")
		l.Info("fourth")
		l.Error("fifth")
		after(0, "level=INFO msg=first", "level=INFO msg=second", "level=WARN msg=third", "level=INFO msg=fourth",
			"level=ERROR msg=fifth")
		if out.writes != 3 {
			t.Errorf("there were %d writes, want 3", out.writes)
		}
		time.Sleep(time.Hour)
		if state := h.writer.state.Load(); state != asleep {
			t.Errorf("after an hour without lines, the writer has state %d, want asleep (%d)", state, asleep)
		}
		l.Info("much later")
		synctest.Wait()
		if out.writes != 4 {
			t.Errorf("there were %d writes, want 4", out.writes)
		}
	})
}

// A burst that half fills the ring wakes the writer, since its delay would be too long.
func TestHalfFullWakesTheWriter(t *testing.T) {
	for name, line := range map[string]int{"bytes": 700, "records": 0} {
		synctest.Test(t, func(t *testing.T) {
			out := newOutput()
			h := New(out, Options{Bytes: 1 << 16, Line: 1 << 10, Unsampled: EveryLevel})
			defer finish(t, h)
			l := slog.New(h)
			l.Info("wakes it up")
			synctest.Wait()
			half := 1 << 16 / 2 / max(line+10, 64)
			message := strings.Repeat("m", line)
			r := slog.NewRecord(time.Time{}, slog.LevelInfo, message, 0)
			for i := range half + 1000/max(line, 1) + 2 {
				if i == half-2 {
					if synctest.Wait(); out.writes != 1 {
						t.Errorf("%s: the writer woke before record %d, want at record %d", name, i, half)
					}
				}
				_ = h.Handle(ctx, r)
			}
			if synctest.Wait(); out.writes < 2 {
				t.Errorf("%s: the writer was not woken", name)
			}
		})
	}
}

// In each period the first records of each message and level are written. The others are counted, and a
// line reports their number.
func TestRepeatsAreSuppressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput()
		h := New(out, Options{First: 3, Level: slog.LevelDebug})
		l := slog.New(h)
		repeat(1000, func() { l.Info("a", "key", 1) })
		repeat(3, func() { l.Info("b") })
		repeat(5, func() { l.With("other", "handler").Warn("a") })
		time.Sleep(delay)
		synctest.Wait()
		want := slices.Concat(slices.Repeat([]string{"level=INFO msg=a key=1"}, 3),
			slices.Repeat([]string{"level=INFO msg=b"}, 3),
			slices.Repeat([]string{"level=WARN msg=a other=handler"}, 3))
		out.expect(t, want...)
		if s := h.Stats(); s.Suppressed != 999 || s.Written != 9 || s.Handled() != 1008 {
			t.Errorf("before the end of the period, the counts are %+v, want 999 suppressed and 9 written", s)
		}
		time.Sleep(time.Second - delay)
		synctest.Wait()
		lines := out.lines()[9:]
		slices.Sort(lines)
		if want := []string{
			`level=INFO msg="log records suppressed" count=997 within=1s message=a`,
			`level=WARN msg="log records suppressed" count=2 within=1s message=a`,
		}; !slices.Equal(lines, want) {
			t.Errorf("at the end of the period, got the lines %q, want %q", lines, want)
		}
		// The next period begins with new counts. An hour without records has no summary.
		time.Sleep(time.Hour)
		repeat(4, func() { l.Info("a") })
		time.Sleep(time.Hour)
		repeat(3, func() { l.Info("a") })
		finish(t, h)
		out.expect(t, slices.Concat(want, out.lines()[9:11], slices.Repeat([]string{"level=INFO msg=a"}, 3),
			[]string{`level=INFO msg="log records suppressed" count=1 within=1s message=a`},
			slices.Repeat([]string{"level=INFO msg=a"}, 3))...)
		if s := h.Stats(); s != (Stats{Written: 15, Suppressed: 1000}) {
			t.Errorf("at the end, the counts are %+v, want 15 written and 1000 suppressed", s)
		}
	})
}

// The level may change at any time. The change also applies to existing handlers.
func TestLevel(t *testing.T) {
	out := newOutput()
	level := new(slog.LevelVar)
	h := New(out, Options{Level: level})
	l := slog.New(h).With("with", 1)
	l.Debug("a")
	level.Set(slog.LevelDebug)
	l.Debug("b")
	level.Set(slog.LevelError)
	l.Warn("c")
	finish(t, h)
	out.expect(t, "level=DEBUG msg=b with=1")
	if n := h.Stats().Handled(); n != 1 {
		t.Errorf("%d records were handled, want 1", n)
	}
}

func TestUnsampled(t *testing.T) {
	out := newOutput()
	h := New(out, Options{First: 1, Unsampled: slog.LevelError})
	l := slog.New(h)
	repeat(5, func() { l.Error("error"); l.Warn("warning") })
	finish(t, h)
	if s := h.Stats(); s != (Stats{Written: 6, Suppressed: 4}) {
		t.Errorf("unexpected counts: %+v", s)
	}
}

// With more messages than can be tracked, records of the untracked messages pass, and no count is
// wrong. Messages that are no longer logged are forgotten.
func TestManyMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, each = 3 * messages, 20
		out := newOutput()
		h := New(out, Options{Bytes: 32 << 20})
		l := slog.New(h)
		for range each {
			for i := range n {
				l.Info(fmt.Sprint("message ", i))
			}
		}
		if err := h.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		known := 0
		for _, line := range out.lines() {
			_, message, said := strings.Cut(line, " message=")
			if !said {
				_, message, _ = strings.Cut(line, " msg=")
				counts[message]++
				continue
			}
			_, count, _ := strings.Cut(line, " count=")
			count, _, _ = strings.Cut(count, " ")
			n, _ := strconv.Atoi(count)
			counts[message] += n
			known++
		}
		for i := range n {
			if sum := counts[fmt.Sprintf(`"message %d"`, i)]; sum != each {
				t.Errorf("message %d: %d records are accounted for, want %d", i, sum, each)
			}
		}
		if known < messages*9/10 || known > messages {
			t.Errorf("%d messages were known, want %d to %d", known, messages*9/10, messages)
		}
		time.Sleep(2 * time.Second)
		for i := range h.sampler.places {
			if h.sampler.places[i].Load() != nil {
				t.Fatal("an unused message is not forgotten")
			}
		}
		finish(t, h)
	})
}

// A summary cuts a long message, and does not keep the message's memory alive.
func TestLongMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput()
		h := New(out, Options{First: 1})
		l := slog.New(h)
		long := "x" + strings.Repeat("ö", 200)
		repeat(3, func() { l.Info(long + "1") })
		repeat(4, func() { l.Info(long + "2") })
		finish(t, h)
		for _, count := range []int{2, 3} {
			// A rune is never split, so the kept text is one byte shorter than textKept.
			line := fmt.Sprintf(`level=INFO msg="log records suppressed" count=%d within=0s message=x%s`,
				count, strings.Repeat("ö", textKept/2-1))
			if !slices.Contains(out.lines(), line) {
				t.Errorf("no correct summary of %d records:\n%s", count, out.all.String())
			}
		}
	})
}

func TestLongLinesAreCut(t *testing.T) {
	const most = minLine
	for n := range 400 {
		out := newOutput()
		h := New(out, Options{Line: most, Bytes: 1})
		message := strings.Repeat("x", n%2) + strings.Repeat("ö", n/2)
		r := slog.NewRecord(time.Time{}, slog.LevelInfo, message, 0)
		_ = h.Handle(ctx, r)
		finish(t, h)
		whole := "level=INFO msg=" + message + "\n"
		if n == 0 {
			whole = "level=INFO msg=\"\"\n"
		}
		got := out.all.String()
		if len(whole) <= most {
			if got != whole || h.Stats() != (Stats{Written: 1}) {
				t.Fatalf("%d bytes: %q, %+v", len(whole), got, h.Stats())
			}
			continue
		}
		kept, mark, _ := strings.Cut(got, " !CUT=")
		missing, _ := strconv.Atoi(strings.TrimSuffix(mark, "\n"))
		if len(got) > most || len(got) < most-markBytes || !strings.HasPrefix(whole, kept) ||
			len(kept)+missing != len(whole)-1 ||
			!utf8.ValidString(got) || h.Stats() != (Stats{Cut: 1}) {
			t.Fatalf("%d bytes: %q, %+v", len(whole), got, h.Stats())
		}
	}
}

// While the ring is full, callers do not wait, and every record is counted. When the output works again,
// a line reports the number of lost records.
func TestBlockedOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput()
		out.block()
		h := New(out, Options{Bytes: 1 << 12, Line: 1 << 10, Unsampled: slog.LevelInfo, Level: slog.LevelDebug})
		l := slog.New(h)
		for range 100 {
			repeat(20, func() { l.Debug("d") })
			l.Info("i")
			l.Warn("w", "text", "text")
			repeat(2, func() { l.Error("e") })
			time.Sleep(delay)
		}
		l.Warn("w", "value", func1(func() slog.Value {
			t.Error("a lost record's line was " +
				"formatted")
			return slog.Value{}
		}))
		s := h.Stats()
		if s.Handled() != 2401 || s.Suppressed != 1990 || s.Written != 0 || s.Waiting == 0 || s.Lost.Warn == 0 ||
			s.Lost.Error == 0 {
			t.Errorf("while the output is blocked, the counts are wrong: %+v", s)
		}
		before := time.Now()
		c, cancel := within(3 * time.Second)
		defer cancel()
		err := h.Flush(c)
		if want := fmt.Sprintf("flush log: %d records wait for the output: context deadline exceeded", s.Waiting); err ==
			nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush returned %v", err)
		}
		err = h.Close(c)
		if want := fmt.Sprintf("close log: %d records wait for the output: context deadline exceeded", s.Waiting); err ==
			nil || err.Error() != want {
			t.Errorf("Close returned %v", err)
		}
		if took := time.Since(before); took != 3*time.Second {
			t.Errorf("Flush and Close together took %v, want 3s", took)
		}
		l.Warn("too late")
		out.unblock()
		finish(t, h)
		after := h.Stats()
		s.Lost.Warn++
		s.Written, s.Waiting = s.Waiting, 0
		if after != s {
			t.Errorf("the final counts are %+v, want %+v", after, s)
		}
		if n := uint64(len(out.logged())); n != s.Written {
			t.Errorf("%d lines written, but the counts are %+v", n, s)
		}
		if n := out.sum("suppressed", "count"); n != s.Suppressed {
			t.Errorf("lines report %d suppressed records, but the counts are %+v", n, s)
		}
		for level, n := range map[string]uint64{"debug": s.Lost.Debug, "info": s.Lost.Info, "warn": s.Lost.Warn,
			"error": s.Lost.Error} {
			if said := out.sum("log records lost", level); said != n {
				t.Errorf("lines report %d lost records of level %s, but the counts are %+v", said, level, s)
			}
		}
	})
}

// When a write fails, only the bytes that the output did not accept are lost. The next line starts on a
// line of its own. Summaries that could not be written are written later.
func TestFailingOutput(t *testing.T) {
	full := errors.New("no space left on device")
	synctest.Test(t, func(t *testing.T) {
		out := newOutput()
		h := New(out, Options{First: 1})
		l := slog.New(h)
		l.Info("first")
		synctest.Wait()
		l.Info("second")
		l.Info("third")
		repeat(3, func() { l.Info("first") })
		out.failing(func(p []byte) (int, error) { return max(len(p)-4, 0), full })
		if err := h.Flush(ctx); !errors.Is(err, full) || err.Error() != "write log: no space left on device" {
			t.Errorf("Flush returned %v", err)
		}
		out.failing(func([]byte) (int, error) { return -1, nil }) // violates the rules of io.Writer
		l.Info("fourth")
		if err := h.Flush(ctx); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("Flush returned %v", err)
		}
		if s := h.Stats(); s != (Stats{Written: 2, Suppressed: 3, Failed: 2}) {
			t.Errorf("unexpected counts: %+v", s)
		}
		out.failing(func(p []byte) (int, error) { // the output has room only for the end of the torn line
			if len(p) > 1 {
				return 0, full
			}
			return 1, nil
		})
		l.Info("fifth")
		if err := h.Flush(ctx); !errors.Is(err, full) {
			t.Errorf("Flush returned %v", err)
		}
		out.failing(func(p []byte) (int, error) { return len(p) + 1, nil }) // violates the rules, too
		l.Info("sixth")
		for range 2 { // a summary is not repeated
			if err := h.Flush(ctx); err != nil {
				t.Errorf("Flush returned %v", err)
			}
		}
		finish(t, h)
		out.expect(t, "level=INFO msg=first", "level=INFO msg=second", "level=INFO msg=th", "level=INFO msg=sixth",
			`level=WARN msg="log records not written" count=3 error="no space left on device"`,
			`level=INFO msg="log records suppressed" count=3 within=0s message=first`)
		if s := h.Stats(); s != (Stats{Written: 3, Suppressed: 3, Failed: 3}) {
			t.Errorf("unexpected counts: %+v", s)
		}
	})
}

// A line that is pushed while the writer falls asleep does not wait for the next push.
func TestNoLineIsOverslept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{ring: newRing(1024, 256)}
		s.writer.init(newOutput())
		s.ring.push([]byte("line"), false) // pushed while the writer was awake
		s.rest(asleep, nil)
	})
}

// Lost records are reported once, as soon as the output works again.
func TestLostIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput()
		out.block()
		h := New(out, Options{Bytes: 1, Line: 1, Unsampled: EveryLevel})
		l := slog.New(h)
		repeat(100, func() { l.Info("a") })
		time.Sleep(time.Minute)
		waiting := int(h.Stats().Waiting)
		failed := false
		out.failing(func(p []byte) (int, error) {
			if failed || !bytes.Contains(p, []byte("lost")) {
				return len(p), nil
			}
			failed = true
			return 0, io.ErrClosedPipe
		})
		out.unblock()
		synctest.Wait()
		time.Sleep(time.Hour)
		finish(t, h)
		if n := out.lost(); n != h.Stats().Lost.Sum() || n != uint64(100-waiting) || !failed {
			t.Errorf("lines report %d lost records, but the counts are %+v", n, h.Stats())
		}
	})
}

// Flush and Close write all earlier records. Records after Close are counted as lost.
func TestFlushAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput()
		h := New(out, Options{})
		l := slog.New(h)
		flush := func() {
			if err := h.Flush(ctx); err != nil {
				t.Error(err)
			}
		}
		before := time.Now()
		flush()
		l.Info("fatal")
		flush()
		out.expect(t, "level=INFO msg=fatal")
		l.Info("another")
		var together sync.WaitGroup
		repeat(9, func() { together.Go(flush) })
		together.Wait()
		l.Info("last")
		finish(t, h)
		want := []string{"level=INFO msg=fatal", "level=INFO msg=another", "level=INFO msg=last"}
		out.expect(t, want...)
		repeat(100, func() { l.Info("too late") })
		finish(t, h)
		flush()
		out.expect(t, want...)
		if s := h.Stats(); s != (Stats{Written: 3, Lost: Levels{Info: 100}}) {
			t.Errorf("unexpected counts: %+v", s)
		}
		if time.Since(before) != 0 {
			t.Errorf("Close took %v", time.Since(before))
		}
	})
}

// Flush may be called between the counting of a record and the push of its line.
func TestFlushBeforeTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput()
		h := New(out, Options{First: 1})
		repeat(3, func() { h.sampler.pass(slog.LevelInfo, "a") })
		if err := h.Flush(ctx); err != nil {
			t.Error(err)
		}
		finish(t, h)
		out.expect(t, `level=INFO msg="log records suppressed" count=2 within=0s message=a`)
	})
}

// A period is as long as the option says. If nothing happens in it, the writer sleeps.
func TestLongPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput()
		h := New(out, Options{Period: time.Hour, First: 1})
		defer finish(t, h)
		l := slog.New(h)
		repeat(2, func() { l.Info("a") })
		time.Sleep(2 * linger)
		if state := h.writer.state.Load(); state != asleep {
			t.Errorf("the writer has state %d, want asleep (%d)", state, asleep)
		}
		time.Sleep(time.Hour - 2*linger - 1)
		synctest.Wait()
		out.expect(t, "level=INFO msg=a")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		out.expect(t, "level=INFO msg=a", `level=INFO msg="log records suppressed" count=1 within=1h0m0s message=a`)
	})
}

// The methods of a value may panic, log, or wait until another line is written.
func TestValuesThatMisbehave(t *testing.T) {
	out := newOutput()
	h := New(out, Options{})
	l := slog.New(h)
	l.Info("panics", "value", panickingValuer{})
	l.Info("logs", "value", func1(func() slog.Value { l.Info("from inside"); return slog.IntValue(1) }))
	l.Info("waits", "value", func1(func() slog.Value { _ = h.Flush(ctx); return slog.IntValue(2) }))
	finish(t, h)
	lines := out.lines()
	if len(lines) != 4 || !strings.HasPrefix(lines[0], `level=INFO msg=panics value="LogValue panicked\n`) {
		t.Fatalf("unexpected lines: %q", lines)
	}
	if want := []string{`level=INFO msg="from inside"`,
		"level=INFO msg=logs value=1", "level=INFO msg=waits value=2"}; !slices.Equal(lines[1:], want) {
		t.Errorf("unexpected lines: %q", lines[1:])
	}
}

type panickingValuer struct{}

func (panickingValuer) LogValue() slog.Value { panic("in LogValue") }

type func1 func() slog.Value

func (f func1) LogValue() slog.Value { return f() }

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name        string
		o           Options
		bytes, line int
	}{
		{"defaults", Options{}, 1 << 20, 8 << 10},
		{"negative numbers mean the default", Options{Bytes: -1, Line: -1, First: -1, Period: -1}, 1 << 20, 8 << 10},
		{"a power of two", Options{Bytes: 100_000}, 1 << 17, 8 << 10},
		{"room for four lines", Options{Bytes: 1, Line: 1000}, 4096, 1000},
		{"bounds", Options{Bytes: math.MaxInt, Line: 1}, 1 << 30, 256},
	} {
		o := c.o.withDefaults()
		if o.Bytes != c.bytes || o.Line != c.line || o.First != 10 || o.Period != time.Second || o.Level != slog.LevelInfo {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

// Many goroutines log to a small ring, the output sometimes blocks or fails, and Stats and Flush are
// called at any time. Still each record is in exactly one count, each line that counts as written is
// there once, whole and in its goroutine's order, and the summaries add up.
func TestEveryRecordIsCounted(t *testing.T) {
	const goroutines, each = 8, 3000
	for _, o := range []Options{
		{Bytes: 1 << 13, Line: 1, First: 50, Period: time.Millisecond, Unsampled: slog.LevelError},
		{Bytes: 1 << 16, Line: 1 << 10, Unsampled: EveryLevel},
		{First: 1, Period: time.Microsecond},
	} {
		out := newOutput()
		rng := rand.New(rand.NewPCG(1, 2)) // used by the writer's goroutine alone
		out.fail = func(p []byte) (int, error) {
			if rng.IntN(10) == 0 {
				return rng.IntN(len(p) + 1), io.ErrClosedPipe
			}
			return len(p), nil
		}
		h := New(out, o)
		var all, loggers sync.WaitGroup
		end := make(chan struct{})
		for g := range goroutines {
			loggers.Go(func() {
				l := slog.New(h).With("goroutine", g)
				for i := range each {
					level := []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError}[i%3]
					l.Log(ctx, level, "message", "number", i, "text", strings.Repeat("x", i%200))
					if i%100 == 0 { // lets the writer run
						c, cancel := within(time.Millisecond)
						_ = h.Flush(c)
						cancel()
					}
				}
			})
		}
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				default:
				}
				if s := h.Stats(); s.Handled() > goroutines*each {
					t.Errorf("too many: %+v", s)
				}
				if i%4 == 0 {
					out.block()
				}
				c, cancel := within(time.Millisecond)
				_ = h.Flush(c) // may fail: the output is blocked or fails
				cancel()
				out.unblock()
			}
		})
		loggers.Wait()
		close(end)
		all.Wait()
		out.failing(nil)
		finish(t, h)

		s := h.Stats()
		if s.Handled() != goroutines*each || s.Waiting != 0 {
			t.Errorf("%d records were logged, but the counts are %+v", goroutines*each, s)
		}
		whole, cut := uint64(0), uint64(0)
		next := [goroutines]int{}
		for _, line := range out.logged() {
			var level, message, rest string
			var g, number int
			if _, err := fmt.Sscanf(line, "level=%s msg=%s goroutine=%d number=%d text=%s", &level, &message, &g, &number,
				&rest); err != nil {
				continue // a torn line
			}
			rest, missing, isCut := strings.Cut(line[strings.Index(line, "text=")+5:], " !CUT=")
			text := strings.Trim(rest, `"`)
			switch {
			case isCut:
				if n, _ := strconv.Atoi(missing); len(text)+n != number%200 {
					continue // a torn line
				}
				cut++
			case len(text) == number%200:
				whole++
			default:
				continue // a torn line
			}
			if number < next[g] {
				t.Fatalf("goroutine %d: number %d comes after %d", g, number, next[g]-1)
			}
			next[g] = number + 1
		}
		// A line that lacks only its line break looks whole to the test, but counts as not written.
		if whole < s.Written || cut < s.Cut || whole+cut > s.Written+s.Cut+s.Failed {
			t.Errorf("%d whole and %d cut lines, but the counts are %+v", whole, cut, s)
		}
		if n := out.sum("log records suppressed", "count"); n < s.Suppressed {
			t.Errorf("lines report %d suppressed records, but the counts are %+v", n, s)
		}
		if n := out.lost(); n < s.Lost.Sum() {
			t.Errorf("lines report %d lost records, but the counts are %+v", n, s)
		}
		if n := out.sum("log records not written", "count"); n < s.Failed {
			t.Errorf("lines report %d records not written, but the counts are %+v", n, s)
		}
		t.Logf("%+v", s)
	}
}

// With an output that does not fail, all counts are exact, even if the handler is closed during
// logging.
func TestCountsAreExact(t *testing.T) {
	const goroutines, each = 8, 4000
	for round := range 10 {
		out := newOutput()
		h := New(out, Options{Bytes: 1 << 14, Line: 1 << 10, First: 3, Period: 200 * time.Microsecond})
		var loggers sync.WaitGroup
		for g := range goroutines {
			loggers.Go(func() {
				l := slog.New(h)
				for i := range each {
					l.Info([]string{"a", "b", "c"}[(g+i)%3])
				}
			})
		}
		if round%2 == 0 {
			loggers.Wait()
		}
		finish(t, h)
		loggers.Wait()
		s := h.Stats()
		if s.Handled() != goroutines*each || s.Waiting+s.Failed+s.Cut != 0 {
			t.Errorf("unexpected counts: %+v", s)
		}
		if n := uint64(len(out.logged())); n != s.Written {
			t.Errorf("%d lines written, but the counts are %+v", n, s)
		}
		if n := out.sum("log records suppressed", "count"); n != s.Suppressed {
			t.Errorf("lines report %d suppressed records, but the counts are %+v", n, s)
		}
		if n := out.lost(); n > s.Lost.Sum() || round%2 == 0 && n != s.Lost.Sum() {
			t.Errorf("lines report %d lost records, but the counts are %+v", n, s)
		}
	}
}
