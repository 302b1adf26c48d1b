package distributor

import (
	"sync"
	"time"
)

// burst is how much of a rate may come at once.
const burst = 10 * time.Second

// bucket bounds a rate. Who comes while there is anything in it is let in, and may take it
// below zero: how much a request takes is known when it has been read, and to read one in
// vain costs as much as to write it.
type bucket struct {
	mu      sync.Mutex
	samples float64
	filled  time.Time
	delayed uint64 // requests that were told to wait
}

// wait returns how long it takes until something is in the bucket again, 0 if something is.
func (b *bucket) wait(rate int, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(rate, now)
	if b.samples > 0 {
		return 0
	}
	b.delayed++
	return time.Duration((1 - b.samples) / float64(rate) * float64(time.Second))
}

func (b *bucket) delays() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.delayed
}

func (b *bucket) take(samples, rate int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(rate, now)
	b.samples -= float64(samples)
}

func (b *bucket) fill(rate int, now time.Time) {
	most := float64(rate) * burst.Seconds()
	if b.filled.IsZero() {
		b.samples = most
	} else if passed := now.Sub(b.filled); passed > 0 {
		b.samples = min(most, b.samples+float64(rate)*passed.Seconds())
	}
	b.filled = now
}
