package server

import (
	"context"
	"sync/atomic"
	"time"
)

// retirement is the time between the signal to stop and the stop. Clients have it to leave this process, which still
// answers.
type retirement struct {
	begun   atomic.Bool
	waiting atomic.Bool   // for http.shutdown_delay
	hurried chan struct{} // closed by hurry
}

// hurry ends the wait for clients, and reports whether there was one.
func (r *retirement) hurry() bool {
	if !r.waiting.CompareAndSwap(true, false) {
		return false
	}
	close(r.hurried)
	return true
}

// wait waits for clients to leave, until hurry is called or ctx is done.
func (r *retirement) wait(ctx context.Context, delay time.Duration) {
	select {
	case <-time.After(delay):
	case <-r.hurried:
	case <-ctx.Done():
	}
	r.waiting.Store(false)
}
