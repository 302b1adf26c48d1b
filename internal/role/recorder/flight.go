package recorder

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// flightRest is the time without senders after which the flight recorder is stopped. While it runs,
// the runtime wakes the process a dozen times a second. On an idle server this costs as much as all
// other work.
const flightRest = time.Minute

// tracer is a trace.FlightRecorder.
type tracer interface {
	Start() error
	Stop()
	WriteTo(to io.Writer) (int64, error)
}

// flight keeps an execution trace of the last seconds while there are senders.
type flight struct {
	tracer
	running atomic.Bool   // only Run changes it
	broken  bool          // the flight recorder could not be started, and the log says so
	stirred chan struct{} // capacity 1: signals the first sender after a rest
	busy    atomic.Bool   // whether samples came since Run last looked
	look    *time.Timer   // fires when Run should look again
}

// Stir notes that samples come. It is safe for concurrent use, and never blocks.
func (r *Recorder) Stir() {
	f := &r.flight
	if f.busy.Load() {
		return
	}
	f.busy.Store(true)
	select {
	case f.stirred <- struct{}{}:
	default: // already signaled
	}
}

// fly starts the flight recorder if it is stopped, and reports whether it started it.
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

// rest stops the flight recorder if no samples have come for a while.
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

// flightTrace returns the flight recorder's trace.
func (r *Recorder) flightTrace() ([]byte, error) {
	var text bytes.Buffer
	if !r.flight.running.Load() {
		return nil, errors.New("the flight recorder is off: self.recorder.flight")
	}
	_, err := r.flight.WriteTo(&text)
	return text.Bytes(), err
}
