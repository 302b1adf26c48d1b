package recorder

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/settings"
)

// fakeTracer counts how often it is started and stopped.
type fakeTracer struct {
	starts, stops atomic.Int32
	err           error
	begun         time.Time
}

func (f *fakeTracer) Start() error {
	f.starts.Add(1)
	f.begun = time.Now()
	return f.err
}

func (f *fakeTracer) Stop() { f.stops.Add(1) }

// WriteTo writes how long the tracer has run.
func (f *fakeTracer) WriteTo(to io.Writer) (int64, error) {
	n, err := io.WriteString(to, time.Since(f.begun).String())
	return int64(n), err
}

// On an idle server the flight recorder is stopped. It used to run all the time, and was nearly half of
// an idle server's work.
func TestTheFlightRecorderRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRecorder(t, settings.DefaultRecorder(), io.Discard), new(fakeTracer)
		r.flight.tracer = f
		stop := run(t, r)
		time.Sleep(time.Hour)
		if n := f.starts.Load(); n != 0 || r.flight.running.Load() {
			t.Errorf("without senders the flight recorder was started %d times, want 0", n)
		}
		for range 10 * 60 { // ten minutes
			r.Stir()
			synctest.Wait()
			if !r.flight.running.Load() {
				t.Fatal("a client sends, but the flight recorder does not run")
			}
			time.Sleep(time.Second)
		}
		time.Sleep(50 * time.Second) // less than a minute since the last samples
		synctest.Wait()
		if !r.flight.running.Load() {
			t.Error("the flight recorder stopped less than a minute after the last samples")
		}
		time.Sleep(time.Minute + 20*time.Second) // once a minute, the recorder checks whether samples came
		synctest.Wait()
		if r.flight.running.Load() || f.starts.Load() != 1 || f.stops.Load() != 1 {
			t.Errorf("after two minutes without senders: started %d times, stopped %d times, want 1 each",
				f.starts.Load(), f.stops.Load())
		}
		r.Stir()
		synctest.Wait()
		if f.starts.Load() != 2 {
			t.Error("a client sends again, but the flight recorder does not run")
		}
		stop()
		if f.stops.Load() != 2 {
			t.Error("the recorder has ended, but the flight recorder runs")
		}
	})
}

// A record of an idle server has a trace of the seconds in which it was made.
func TestARecordOfAnIdleServerHasATrace(t *testing.T) {
	r, f := newRecorder(t, settings.DefaultRecorder(), io.Discard), new(fakeTracer)
	r.flight.tracer = f
	defer run(t, r)()
	r.duration = 20 * time.Millisecond
	for range 2 { // the first record starts the tracer, which already runs when the second begins
		made, err := r.Record(t.Context(), "to see")
		if err != nil {
			t.Fatal(err)
		}
		text, err := read(t, r, made.ID).Read(record.Trace)
		if err != nil {
			t.Fatal(err)
		}
		if of, err := time.ParseDuration(string(text)); err != nil || of < r.duration {
			t.Errorf("the trace covers %v, want at least the record's %v; error %v", of, r.duration, err)
		}
	}
	if f.starts.Load() != 1 {
		t.Errorf("%d starts", f.starts.Load())
	}
}

func TestTheFlightRecorderIsOff(t *testing.T) {
	c := settings.DefaultRecorder()
	c.Flight = false
	r, f := newRecorder(t, c, io.Discard), new(fakeTracer)
	r.flight.tracer = f
	defer run(t, r)()
	r.Stir()
	made, err := r.Record(t.Context(), "to see")
	if err != nil {
		t.Fatal(err)
	}
	if why := made.Missing[record.Trace]; f.starts.Load() != 0 || !strings.Contains(why, "self.recorder.flight") {
		t.Errorf("%d starts, %q", f.starts.Load(), why)
	}
}

// A flight recorder that cannot be started is logged once.
func TestAFlightRecorderThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := newRecorder(t, settings.DefaultRecorder(), &log)
		f := &fakeTracer{err: errors.New("tracing is on already")}
		r.flight.tracer = f
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		for range 5 {
			r.Stir()
			time.Sleep(2 * flightRest)
		}
		cancel()
		if err := <-ended; err != nil || f.stops.Load() != 0 || strings.Count(log.String(), "no execution trace") != 1 {
			t.Errorf("%v, %d stops, %s", err, f.stops.Load(), log.String())
		}
	})
}

// Stir is called for each batch, so it must allocate nothing.
func TestToStirAllocatesNothing(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	if n := testing.AllocsPerRun(100, r.Stir); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
