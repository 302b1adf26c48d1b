package distributor

import (
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/core/usage"
)

// burst is the size of a full bucket, as a time: a tenant may send at once as many samples as its rate
// allows in this time.
const burst = 10 * time.Second

// bucket bounds a rate. A request is admitted while the bucket is not empty, and may take the bucket
// below zero: the size of a request is known only after reading it, and reading costs as much as
// writing.
type bucket struct {
	mu      sync.Mutex
	samples float64
	filled  time.Time
	delayed uint64 // refused requests, whose senders were told to wait
	used    int64  // samples that this process took since Distributor.Use was last called
}

// wait returns how long the bucket stays empty, or 0 if it is not empty now.
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
	b.used += int64(samples)
}

// use returns how many samples this process took since the previous call.
func (b *bucket) use() (samples int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	samples, b.used = b.used, 0
	return samples
}

// share takes from the bucket the samples that other processes of the cluster took.
func (b *bucket) share(samples int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.samples -= float64(samples)
}

// Use adds to a report how many samples each tenant with a rate has sent since the previous call.
func (d *Distributor) Use(report map[string]usage.Use) {
	d.buckets.Range(func(tenant, b any) bool {
		u := report[tenant.(string)]
		u.Samples = b.(*bucket).use()
		report[tenant.(string)] = u
		return true
	})
}

// Share charges each tenant's rate with the samples that the tenant sent to other processes of the
// cluster.
func (d *Distributor) Share(a usage.Answer) {
	for tenant, u := range a.Others {
		if b, ok := d.buckets.Load(tenant); ok {
			b.(*bucket).share(u.Samples)
		}
	}
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
