package tiling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// replays tracks the tenants whose raw store lacks requests that the process read from a log at its
// start. An earlier process may have acknowledged these requests, so queries of the tenants wait.
type replays struct {
	mu      sync.Mutex
	tenants map[string]*replay
}

type replay struct {
	ended chan struct{} // closed when the requests are stored, or a write of them has failed
	err   error         // why the requests are not stored; nil if they are
}

// BeginReplay notes that a tenant's raw store still lacks requests that an earlier process accepted.
func (r *replays) BeginReplay(tenant string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tenants == nil {
		r.tenants = map[string]*replay{}
	}
	r.tenants[tenant] = &replay{ended: make(chan struct{})}
}

// FailReplay notes why the store does not take the requests. The caller keeps trying to store them.
func (r *replays) FailReplay(tenant string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.tenants[tenant]; one != nil {
		if one.err == nil {
			close(one.ended)
		}
		one.err = err
	}
}

// ResumeReplay notes that the store takes requests, perhaps after an earlier failure. Queries wait
// for the remaining requests.
func (r *replays) ResumeReplay(tenant string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.tenants[tenant]; one != nil && one.err != nil {
		r.tenants[tenant] = &replay{ended: make(chan struct{})}
	}
}

// EndReplay notes that the store has the requests.
func (r *replays) EndReplay(tenant string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.tenants[tenant]; one != nil {
		if one.err == nil {
			close(one.ended)
		}
		one.err = nil
		delete(r.tenants, tenant)
	}
}

// Replaying returns the tenants whose raw store lacks requests from before the start.
func (r *replays) Replaying() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.tenants))
}

// Replayed waits until the raw store of a tenant has all requests from before the start. If the
// store does not take them, Replayed returns the reason at once; the store's answers then lack samples.
func (r *replays) Replayed(ctx context.Context, tenant string) error {
	r.mu.Lock()
	one := r.tenants[tenant]
	r.mu.Unlock()
	if one == nil {
		return nil
	}
	select {
	case <-one.ended:
	case <-ctx.Done():
		return fmt.Errorf("wait until requests from before the start are stored: %w", context.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return one.err
}
