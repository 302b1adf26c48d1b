package recorder

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// flightRest is after how long without anybody who sends the flight recorder rests. The
// runtime wakes the process a dozen times a second while it runs, which on an idle server
// cost as much as all else together.
const flightRest = time.Minute

// tracer is a trace.FlightRecorder.
type tracer interface {
	Start() error
	Stop()
	WriteTo(to io.Writer) (int64, error)
}

// flight is the execution trace of the last seconds, which is kept while somebody sends.
type flight struct {
	tracer
	running atomic.Bool   // changed by Run
	broken  bool          // it could not be started, and the log says so
	stirred chan struct{} // of 1: somebody sends, and nobody did before
	busy    atomic.Bool   // somebody sent since Run looked
	look    *time.Timer   // when it should
}

// Stir says that somebody sends. It may be called by many at once, and waits for nothing.
func (r *Recorder) Stir() {
	f := &r.flight
	if f.busy.Load() {
		return
	}
	f.busy.Store(true)
	select {
	case f.stirred <- struct{}{}:
	default: // it is known already
	}
}

// fly starts the flight recorder if it rests, and reports whether it did.
func (r *Recorder) fly() bool {
	f := &r.flight
	if !r.Config.Flight || f.broken || f.running.Load() {
		return false
	}
	if err := f.Start(); err != nil {
		f.broken = true
		r.Logger.Warn("records have no execution trace", "error", err)
		return false
	}
	f.running.Store(true)
	f.look.Reset(flightRest)
	return true
}

// rest stops the flight recorder if nobody has sent for a while.
func (r *Recorder) rest() {
	f := &r.flight
	if f.busy.Swap(false) {
		f.look.Reset(flightRest)
		return
	}
	r.land()
}

func (r *Recorder) land() {
	if r.flight.running.Swap(false) {
		r.flight.Stop()
	}
}

// flightTrace is what the flight recorder has.
func (r *Recorder) flightTrace() ([]byte, error) {
	var text bytes.Buffer
	if !r.flight.running.Load() {
		return nil, errors.New("the flight recorder is off: self.recorder.flight")
	}
	_, err := r.flight.WriteTo(&text)
	return text.Bytes(), err
}
