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

// handOverEvery is how often a process that waits for its clients passes the lead on, which may have come back to it.
const handOverEvery = 2 * time.Second

// wait waits for clients to leave, until hurry is called or ctx is done. It calls handOver every handOverEvery.
func (r *retirement) wait(ctx context.Context, delay time.Duration, handOver func()) {
	defer r.waiting.Store(false)
	end := time.After(delay)
	again := time.NewTicker(handOverEvery)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			handOver()
		case <-end:
			return
		case <-r.hurried:
			return
		case <-ctx.Done():
			return
		}
	}
}
