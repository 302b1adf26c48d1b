// Package retry computes waits between tries.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff computes the waits between tries. Each wait is half of a bound plus a random part of the
// other half, and the bound doubles with each try. While the bound grows, no wait is shorter than
// the one before. The random part keeps clients from returning all at once. A Backoff belongs to
// one goroutine.
type Backoff struct {
	Min, Max time.Duration // the bound of the first wait, and the largest bound

	bound time.Duration // bound of the last wait; 0 before the first wait
}

// Next returns how long to wait before the next try.
func (b *Backoff) Next() time.Duration {
	b.bound = min(max(2*b.bound, b.Min), b.Max)
	return b.bound/2 + rand.N(b.bound-b.bound/2+1)
}

// Reset starts over, after a successful try.
func (b *Backoff) Reset() { b.bound = 0 }

// Wait waits for d. If ctx ends first, Wait returns early with the cause.
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
