package collector

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/series"
)

const second = 1_763_680_000

// flush closes a listener's window and lets the flusher take it.
func (f *fixture) flush(t *testing.T, l *listener, now int64) {
	t.Helper()
	if !l.close(now, false) {
		t.Fatal("the flusher still has the previous window")
	}
	f.flushAll(t.Context())
}

// flushAll lets the flusher take all closed windows.
func (f *fixture) flushAll(ctx context.Context) {
	closed := make(chan closedWindow, cap(f.closed))
	for len(f.closed) > 0 {
		closed <- <-f.closed
	}
	close(closed)
	f.flusher.run(ctx, closed)
}

// Ten seconds with a packet every 250 ms give ten windows of four packets, at any offset of the
// packets in the second.
func TestAWindowIsASecond(t *testing.T) {
	for _, phase := range []int64{0, 1, 125e6, 249_999_999} {
		f := newFixture(t, nil)
		l := f.listeners()[0]
		l.Tick(second * 1e9)
		for now := second*int64(1e9) + phase; now < (second+10)*1e9; now += 250e6 {
			l.Tick(now)
			f.flushAll(t.Context())
			l.Packet([]byte("a:1|c"), now)
		}
		f.flush(t, l, (second+10)*1e9)
		windows := f.aggregator.taken()
		if len(windows) != 10 {
			t.Errorf("phase %d: %d windows, want 10", phase, len(windows))
		}
		for i, w := range windows {
			if w.second != second+int64(i) || w.series[`counter {__name__="a"}`] != 4 {
				t.Errorf("phase %d: window %d is %+v, want 4 packets of its second", phase, i, w)
			}
		}
	}
}

// Tick returns the time of its next call. That is the end of the second, or a moment from now while the
// flusher is busy.
func TestTickSaysWhenItIsDue(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	for _, c := range []struct {
		why       string
		now, want int64
		packet    string
	}{
		{"the first call begins a window", second*1e9 + 1, (second + 1) * 1e9, "a:1|c"},
		{"the second is not over", second*1e9 + 999, (second + 1) * 1e9, ""},
		{"the second is over, and its window goes to the flusher, which does not run",
			(second+1)*1e9 + 5, (second + 2) * 1e9, "a:1|c"},
		{"the flusher still has the previous window", (second+2)*1e9 + 5, (second+2)*1e9 + 5 + busyRetry, ""},
	} {
		if got := l.Tick(c.now); got != c.want {
			t.Errorf("%s: at %d, Tick asks for its next call at %d, want %d", c.why, c.now, got, c.want)
		}
		if c.packet != "" {
			l.Packet([]byte(c.packet), c.now)
		}
	}
}

// A clock that is set an hour back or ahead ends the open window at once: windows must not stop for
// an hour, and no sample is lost.
func TestAClockThatJumpsKeepsWindowsComing(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	now := second * int64(1e9)
	l.Tick(now)
	sent := 0
	for step, jump := range []int64{0, -3600, 0, 0, 3600, 0, -86400, 0, 1e6, 0} {
		now += jump*1e9 + 1e9
		l.Packet([]byte("a:1|c"), now)
		sent++
		if next := l.Tick(now); next <= now || next > now+1e9 {
			t.Errorf("step %d: at %d, Tick asks for its next call at %d, want it within 1 s", step, now, next)
		}
		f.flushAll(t.Context())
		if got := len(f.aggregator.taken()); got != step+1 {
			t.Fatalf("step %d, jump %d s: %d windows, want one for each step", step, jump, got)
		}
	}
	if got := f.aggregator.totals()[`counter {__name__="a"}`]; got != float64(sent) {
		t.Errorf("counted %v, sent %d", got, sent)
	}
}

// Samples that are given up at the end are counted: those of the window that the aggregator refused for
// the whole drain, and those of the windows that waited behind it.
func TestWhatIsGivenUpIsCounted(t *testing.T) {
	f := newFixture(t, nil) // outside the synctest bubble, because of its sockets
	synctest.Test(t, func(t *testing.T) {
		f.aggregator.refuse(errors.New("disk full"))
		closed := make(chan closedWindow, 2)
		for i, l := range f.listeners()[:2] {
			for range 5 {
				l.Packet([]byte("a:1|c\nb:1:2|ms"), (second+int64(i))*1e9)
			}
			if !l.close((second+10)*1e9, false) {
				t.Fatal("not closed")
			}
			closed <- <-f.closed
		}
		close(closed)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		f.flusher.run(ctx, closed)
		if took := time.Since(begun); took < drainTime || took > drainTime+time.Second {
			t.Errorf("the flusher gave up after %v, want %v", took, drainTime)
		}
		if got := f.flusher.unsent.Load(); got != 2*5*3 {
			t.Errorf("%d samples are counted as unsent, want 30", got)
		}
		if got := f.flusher.pushErrors.Load(); got < 5 || got != uint64(len(f.aggregator.refusals())) {
			t.Errorf("%d push errors are counted, want %d, one for each refusal, and at least 5",
				got, len(f.aggregator.refusals()))
		}
		if got := f.logs.count("level=ERROR msg=\"samples are lost"); got != 2 {
			t.Errorf("the loss was logged %d times, want once for each window", got)
		}
	})
}

// The reader must never wait for the flusher, because the kernel's buffer would overflow. It used to
// wait if it had a second window, one with only events, while the flusher was busy with the aggregator.
func TestAReaderNeverWaitsForTheFlusher(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range int64(5) { // no flusher takes windows from the channel
			now := (second + i) * 1e9
			l.Tick(now)
			l.Packet([]byte("_e{1,1}:t|x"), now)
			if i == 3 {
				l.Packet([]byte("a:1|c"), now)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the reader waits for the flusher")
	}
	for range 2 { // the window that was already handed over, and the open window
		f.flushAll(t.Context())
		l.close((second+5)*1e9, false)
	}
	f.flushAll(t.Context())
	if got := len(f.events.all()); got != 5 {
		t.Errorf("%d events, want 5", got)
	}
	if got := f.aggregator.totals()[`counter {__name__="a"}`]; got != 1 {
		t.Errorf("counted %v, sent 1", got)
	}
}

// A window holds 10,000 events. Further events are counted and dropped, and the next
// window has room again.
func TestEventsOfAWindowAreBounded(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	for i := range maxEvents + 5 {
		l.Packet(fmt.Appendf(nil, "_e{5,1}:%05d|x", i), second*1e9)
	}
	f.flush(t, l, (second+1)*1e9)
	l.Packet([]byte("_e{4,1}:next|x|t:error"), (second+1)*1e9)
	f.flush(t, l, (second+2)*1e9)
	events := f.events.all()
	if len(events) != maxEvents+1 {
		t.Fatalf("%d events, want %d", len(events), maxEvents+1)
	}
	if first, last := events[0], events[maxEvents]; first.Title != "00000" || first.Time != second*1000 ||
		last.Title != "next" || last.Alert != "error" {
		t.Errorf("the first event is %+v, the last is %+v, want the titles 00000 and next", first, last)
	}
	for name, want := range map[string]float64{"events_total": maxEvents + 6, "refused_events_total": 5} {
		if got := f.metric(t, name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

// The flusher retries events that cannot be written, until they are written or the collector ends.
// Waiting events delay no samples. Events beyond the bound are lost and counted. A single error used to
// lose all events.
func TestEventsThatCannotBeWritten(t *testing.T) {
	for _, c := range []struct {
		why        string
		packets    int // of two events each
		mend       bool
		kept, lost int
		lostAt     int // log lines about the loss
	}{
		{"the event log recovers before the end", 1, true, 2, 0, 0},
		{"never mended", 1, false, 0, 2, 1},
		{"the event log recovers, after more events than may wait", maxEvents/2 + 5, true, maxEvents, 10, 1},
	} {
		f := newFixture(t, nil) // outside the synctest bubble, because of its sockets
		synctest.Test(t, func(t *testing.T) {
			f.events.err = errors.New("disk full")
			closed := make(chan closedWindow)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				f.flusher.run(t.Context(), closed)
			}()
			l := f.listeners()[0]
			for i, n := range []int{c.packets / 2, c.packets - c.packets/2} {
				now := (second + int64(i)) * int64(1e9)
				for range n {
					l.Packet([]byte("_e{1,1}:t|x\n_e{1,1}:u|x\na:1|c"), now)
				}
				if l.close(now+1e9, false) && len(f.closed) > 0 {
					closed <- <-f.closed
				}
				synctest.Wait()
			}
			if got := f.aggregator.totals()[`counter {__name__="a"}`]; got != float64(c.packets) {
				t.Errorf("%s: while events wait, %v samples are counted, want %d as sent", c.why, got, c.packets)
			}
			if f.logs.count("msg=\"events wait until they can be written\"") == 0 || f.logs.count("disk full") != 1 {
				t.Errorf(
					"%s: the log lacks the line about waiting events, or does not have the cause exactly once", c.why)
			}
			if c.mend {
				f.events.mend()
				time.Sleep(eventRetry) // on synctest's clock, so it takes no time
				synctest.Wait()
				if got := len(f.events.all()); got != c.kept {
					t.Errorf("%s: %d events are written, want %d", c.why, got, c.kept)
				}
			}
			close(closed)
			<-ended
		})
		if got := f.metric(t, "unsent_events_total"); got != float64(c.lost) {
			t.Errorf("%s: unsent_events_total = %v, want %d", c.why, got, c.lost)
		}
		if got := f.logs.count("msg=\"events are lost\""); got != c.lostAt {
			t.Errorf("%s: the loss is logged %d times, want %d", c.why, got, c.lostAt)
		}
		if got := len(f.events.all()); got != c.kept {
			t.Errorf("%s: %d events are written, want %d, each once", c.why, got, c.kept)
		}
	}
}

// A window that the aggregator can never accept must not delay later windows for ever.
func TestAWindowThatIsRefusedForGoodIsCounted(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	f.aggregator.refuse(fmt.Errorf("append: a record of 17 MiB: %w", batch.ErrRefused))
	l.Packet([]byte("a:1|c\nb:1:2|ms"), second*1e9)
	f.flush(t, l, (second+1)*1e9)
	f.aggregator.refuse(nil)
	l.Packet([]byte("a:1|c"), (second+1)*1e9)
	f.flush(t, l, (second+2)*1e9)
	for name, want := range map[string]float64{"refused_samples_total": 3, "unsent_samples_total": 0,
		"push_errors_total": 1} {
		if got := f.metric(t, name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	if got := f.aggregator.totals()[`counter {__name__="a"}`]; got != 1 {
		t.Errorf("the aggregator counted %v in the window after the refused one, want 1", got)
	}
	if f.logs.count("can never take their window") != 1 {
		t.Error("the loss is not logged")
	}
}

// At the end each window gets a real try, even after a window that failed for the whole drain. The
// context used to be cancelled by then, so an aggregator that checks the context accepted the window
// only by chance.
func TestEachWindowGetsATryAtTheEnd(t *testing.T) {
	f := newFixture(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i, l := range f.listeners() {
		l.Packet([]byte("a:1|c"), (second+int64(i))*1e9)
		if !l.close((second+10)*1e9, false) {
			t.Fatal("not closed")
		}
		w := <-f.closed
		f.flusher.flush(ctx, w.tenant, w.window, w.at) // with a context that is done, as after drainTime
	}
	if got := f.aggregator.totals()[`counter {__name__="a"}`]; got != float64(len(f.listeners())) {
		t.Errorf("the aggregator took %v windows, want %d", got, len(f.listeners()))
	}
	if got := f.flusher.unsent.Load(); got != 0 {
		t.Errorf("%d samples are counted as unsent, want 0, because the aggregator took them", got)
	}
}

// The catalogue keeps a name in constant use, even if its context is resolved only once. It also keeps a
// name whose series is in one window a minute, and never in the first window of an hour. The catalogue
// used to forget such a name after 40 days, and then another kind could own the name.
func TestNamesInUseAreTouched(t *testing.T) {
	clock := time.Unix(second-second%3600, 0)
	f := newFixture(t, func(o *Options) { o.Now = func() time.Time { return clock } })
	l := f.listeners()[0]
	l.Tick(clock.UnixNano())
	for s := range 3 * 3600 {
		if s%60 == 30 {
			l.Packet([]byte("rare:1|c"), clock.UnixNano())
		}
		l.Packet([]byte("often:1|c"), clock.UnixNano())
		clock = clock.Add(time.Second)
		l.Tick(clock.UnixNano())
		f.flushAll(t.Context())
	}
	if got := l.table.Stats().Resolved; got != 2 {
		t.Fatalf("%d contexts were resolved, want 2, each once", got)
	}
	if forgotten := f.Catalogue.Forget(clock.UnixMilli(), clock.Add(-2*time.Hour).UnixMilli()); len(forgotten) > 0 {
		t.Errorf("the catalogue forgot %v, which is in use", forgotten)
	}
}

// Bound: 150 ns per series in a window and no allocation, so that 100,000 series a second cost 1.5
// % of a core.
func BenchmarkTouch(b *testing.B) {
	names := catalogue.New(1000)
	keys := make([][]byte, 1000)
	for i := range keys {
		name := fmt.Sprintf("api_requests_%d", i)
		names.Resolve(0, &catalogue.Claim{Tenant: "default", Name: name, Raw: []byte(name), Kind: series.Counter})
		keys[i] = series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", name, "env", "prod", "host", "web-1"))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		names.Touch(0, "default", series.Name(keys[i%len(keys)]))
	}
}
