package tiling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/freshet-io/freshet/internal/core/write"
)

// replays tracks the queues whose store lacks requests that the process read from a log at its start: see
// write.QueueOf. An earlier process may have acknowledged these requests, so queries of the tenants wait.
type replays struct {
	mu     sync.Mutex
	queues map[string]*replay
}

type replay struct {
	ended chan struct{} // closed when the requests are stored, or a write of them has failed
	err   error         // why the requests are not stored; nil if they are
}

// BeginReplay notes that the store of a queue still lacks requests that an earlier process accepted.
func (r *replays) BeginReplay(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queues == nil {
		r.queues = map[string]*replay{}
	}
	r.queues[queue] = &replay{ended: make(chan struct{})}
}

// FailReplay notes why the store does not take the requests. The caller keeps trying to store them.
func (r *replays) FailReplay(queue string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.queues[queue]; one != nil {
		if one.err == nil {
			close(one.ended)
		}
		one.err = err
	}
}

// ResumeReplay notes that the store takes requests, perhaps after an earlier failure. Queries wait
// for the remaining requests.
func (r *replays) ResumeReplay(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.queues[queue]; one != nil && one.err != nil {
		r.queues[queue] = &replay{ended: make(chan struct{})}
	}
}

// EndReplay notes that the store has the requests.
func (r *replays) EndReplay(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.queues[queue]; one != nil {
		if one.err == nil {
			close(one.ended)
		}
		one.err = nil
		delete(r.queues, queue)
	}
}

// Replaying returns the queues whose store lacks requests from before the start.
func (r *replays) Replaying() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.queues))
}

// Replayed waits until the stores of a tenant have all requests from before the start. If a store does not take
// them, Replayed returns the reason at once; the store's answers then lack samples.
func (r *replays) Replayed(ctx context.Context, tenant string) error {
	r.mu.Lock()
	raw, results := r.queues[tenant], r.queues[write.QueueOf(tenant, true)]
	r.mu.Unlock()
	for raw != nil || results != nil {
		var err error
		select {
		case <-raw.end():
			raw, err = nil, r.errOf(raw)
		case <-results.end():
			results, err = nil, r.errOf(results)
		case <-ctx.Done():
			err = fmt.Errorf("wait until requests from before the start are stored: %w", context.Cause(ctx))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *replays) errOf(one *replay) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return one.err
}

// end returns a channel that is closed when the replay has ended or failed; nil for no replay.
func (one *replay) end() <-chan struct{} {
	if one == nil {
		return nil
	}
	return one.ended
}
