// Package retry says how long to wait before something that failed is tried again.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff gives the waits between the tries of one thing. Each wait is half of a bound that doubles,
// and a random part of the other half. The fixed half leaves the other side in peace: while the
// bound grows, no wait is shorter than the one before it. By the random half not all clients come
// back at once. A Backoff belongs to one goroutine.
type Backoff struct {
	Min, Max time.Duration // of the bound, and so the longest first wait and the longest of all

	bound time.Duration // of the last wait; 0 before the first
}

// Next returns how long to wait before the next try.
func (b *Backoff) Next() time.Duration {
	b.bound = min(max(2*b.bound, b.Min), b.Max)
	return b.bound/2 + rand.N(b.bound-b.bound/2+1)
}

// Reset begins anew, after a try that went well.
func (b *Backoff) Reset() { b.bound = 0 }

// Wait waits, and returns early with the cause if ctx ends.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
