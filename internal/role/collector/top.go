package collector

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/top"
)

const (
	// TopLease is how long counting continues after a client's request. Counting must end by itself,
	// since clients do not report when they stop watching.
	TopLease = 15 * time.Second

	// topSlack is how long the windows of a second may take to reach the flusher before the
	// second is shown.
	topSlack = 500 * time.Millisecond

	// labelsAge is how old the counts of label values may be. Counting them visits every series,
	// which takes 40 ms for 100,000 series.
	labelsAge = 5 * time.Second
)

// tops counts the busiest metrics and senders while a client watches, and uses no memory otherwise.
// Readers check `counting` once a window. While an answer is composed, a reader waits at most for a
// copy of maxSenders rows.
type tops struct {
	now      func() time.Time
	watch    func(on bool) // turns the report of senders on and off
	counting atomic.Bool   // takes effect at a reader's next window
	begun    chan struct{} // capacity 1: a lease began

	lease sync.Mutex // held to begin and end the counting
	until time.Time
	first int64 // Unix second of the first window that is counted whole

	metrics byTenant[top.Metrics] // fed by the flusher
	senders byTenant[top.Senders] // fed by the readers
	labels  labelScans
}

// byTenant is a table for each tenant.
type byTenant[T any] struct {
	mu   sync.Mutex
	rows map[string]*T // nil while no client watches
}

func (b *byTenant[T]) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = map[string]*T{}
}

func (b *byTenant[T]) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = nil
}

// lock returns the table of a tenant, or nil while no client watches. The caller unlocks
// mu.
func (b *byTenant[T]) lock(tenant string, empty func() *T) *T {
	b.mu.Lock()
	if b.rows != nil && b.rows[tenant] == nil {
		b.rows[tenant] = empty()
	}
	return b.rows[tenant]
}

// labelScans are each tenant's labels with the most values.
type labelScans struct {
	mu    sync.Mutex // held during a scan, so that further callers wait for its result
	scans map[string]labelScan
}

type labelScan struct {
	at     time.Time
	labels []top.Label
}

func newTops(now func() time.Time, watch func(on bool)) *tops {
	return &tops{now: now, watch: watch, begun: make(chan struct{}, 1)}
}

// look begins the counting, or extends it, so that it continues for the time of the lease. It returns
// the first second that is counted whole.
func (t *tops) look(now time.Time, lease time.Duration) (first int64) {
	t.lease.Lock()
	defer t.lease.Unlock()
	if until := now.Add(lease); !t.counting.Load() || until.After(t.until) {
		t.until = until
	}
	if !t.counting.Load() {
		t.first = now.Unix() + 1
		t.metrics.begin()
		t.senders.begin()
		t.watch(true)
		t.counting.Store(true)
		select {
		case t.begun <- struct{}{}:
		default: // run has not seen the last signal yet
		}
	}
	return t.first
}

// run ends each lease, until ctx is done.
func (t *tops) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-t.begun:
		case <-ctx.Done():
		}
		for ended := false; !ended; ended = t.end(ctx.Err() != nil) {
			select {
			case <-time.After(t.left()):
			case <-ctx.Done():
			}
		}
	}
}

// left returns the remaining time of the lease.
func (t *tops) left() time.Duration {
	t.lease.Lock()
	defer t.lease.Unlock()
	// A clock that was set back must not extend the lease.
	return min(t.until.Sub(t.now()), TopLease)
}

// end stops the counting and frees its memory. If the lease was extended, it does nothing and
// returns false.
func (t *tops) end(stopping bool) (ended bool) {
	t.lease.Lock()
	defer t.lease.Unlock()
	if !t.counting.Load() {
		return true
	}
	if !stopping && t.until.After(t.now()) {
		return false
	}
	t.counting.Store(false)
	t.watch(false)
	t.metrics.end()
	t.senders.end()
	t.labels.mu.Lock()
	defer t.labels.mu.Unlock()
	t.labels.scans = nil
	return true
}

// windowed counts the senders of a tenant's window that ended at `now`. It returns the tally for
// the next window, or nil if no client watches. The reader calls it.
func (t *tops) windowed(tenant string, tally *top.Tally, now int64) *top.Tally {
	if tally != nil {
		if senders := t.senders.lock(tenant, top.NewSenders); senders != nil {
			senders.Add(now/1e9-1, tally)
		}
		t.senders.mu.Unlock()
		tally.Reset()
	}
	switch counting := t.counting.Load(); {
	case !counting:
		return nil
	case tally == nil:
		return new(top.Tally)
	}
	return tally
}

// held returns the number of rows in memory.
func (t *tops) held() (n int) {
	t.metrics.mu.Lock()
	for _, m := range t.metrics.rows {
		n += m.Len()
	}
	t.metrics.mu.Unlock()
	t.senders.mu.Lock()
	defer t.senders.mu.Unlock()
	for _, s := range t.senders.rows {
		n += s.Len()
	}
	return n
}

var (
	descTopCounting = prometheus.NewDesc("freshet_top_counting",
		"1 while freshet top is watched, else 0. While it is 1, metrics and senders are counted one by one, "+
			"which costs the readers some 50 ns a datagram.", nil, nil)
	descTopRows = prometheus.NewDesc("freshet_top_rows",
		"Metrics and senders in memory for freshet top; 0 while it is not watched.", nil, nil)
)

// Describe is part of prometheus.Collector.
func (t *tops) Describe(out chan<- *prometheus.Desc) { out <- descTopCounting; out <- descTopRows }

// Collect is part of prometheus.Collector.
func (t *tops) Collect(out chan<- prometheus.Metric) {
	counting := 0.0
	if t.counting.Load() {
		counting = 1
	}
	out <- prometheus.MustNewConstMetric(descTopCounting, prometheus.GaugeValue, counting)
	out <- prometheus.MustNewConstMetric(descTopRows, prometheus.GaugeValue, float64(t.held()))
}
