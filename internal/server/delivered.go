package server

import (
	"maps"
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/core/usage"
)

// deliveries knows up to when the group's log has the windows of each collector. The leader hears it from the
// collectors, and tells all nodes, so that the next leader also waits for a collector that it has never heard. Rules
// wait for a collector that is late, or silent for less than rules.sender_timeout.
type deliveries struct {
	mu    sync.Mutex
	term  uint64
	begun time.Time            // of the term
	of    map[uint64]delivered // by producer
}

type delivered struct {
	at      time.Time // when the collector said so
	through int64
}

// introductions is how long after its election a leader hears from all collectors: each tells something
// every second.
const introductions = 3 * time.Second

// note notes what a collector says.
func (d *deliveries) note(term uint64, now time.Time, x *peer.Delivered) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begin(term, now)
	if _, known := d.of[x.Producer]; x.Final {
		delete(d.of, x.Producer)
	} else if known || len(d.of) < usage.MaxProcesses {
		d.of[x.Producer] = delivered{now, x.Through}
	}
}

// begin keeps what the leader of the last term told.
func (d *deliveries) begin(term uint64, now time.Time) {
	if d.term != term || d.of == nil {
		d.term, d.begun = term, now
		if d.of == nil {
			d.of = map[uint64]delivered{}
		}
	}
}

// heard returns what all collectors said that are not gone.
func (d *deliveries) heard(now time.Time, timeout time.Duration) (all []peer.Heard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(now, timeout)
	for producer, x := range d.of {
		all = append(all, peer.Heard{Producer: producer, Through: x.through, Age: now.Sub(x.at)})
	}
	return all
}

// learn takes what the leader has heard.
func (d *deliveries) learn(now time.Time, all []peer.Heard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of = make(map[uint64]delivered, len(all))
	for _, x := range all {
		d.of[x.Producer] = delivered{now.Add(-x.Age), x.Through}
	}
}

// forget forgets the collectors that were silent for `timeout`.
func (d *deliveries) forget(now time.Time, timeout time.Duration) {
	maps.DeleteFunc(d.of, func(_ uint64, x delivered) bool { return now.Sub(x.at) >= timeout })
}

// through returns the time up to which the log has the windows of all collectors, in Unix milliseconds. A
// collector that was silent for `timeout` no longer counts.
func (d *deliveries) through(term uint64, now time.Time, timeout time.Duration) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begin(term, now)
	d.forget(now, timeout)
	least := now.UnixMilli()
	if now.Sub(d.begun) < introductions {
		least = d.begun.UnixMilli()
	}
	for _, x := range d.of {
		least = min(least, x.through)
	}
	return least
}
