// Package hapair chooses one of several senders that send the same: Prometheus servers
// that scrape the same targets so that one may fail.
package hapair

import (
	"sync"
	"time"
)

// maxClusters of a tenant are known. Of others everybody is accepted, so that nothing is
// lost by a label that somebody sets to anything.
const maxClusters = 1000

// Tracker remembers, for each tenant and cluster, whose samples are taken. It is safe for
// concurrent use.
type Tracker struct {
	timeout time.Duration

	mu      sync.Mutex
	tenants map[string]map[string]*elected
}

type elected struct {
	replica string
	seen    time.Time
}

// New returns a tracker by which another replica takes over when nothing came from the
// elected one for timeout.
func New(timeout time.Duration) *Tracker {
	return &Tracker{timeout: timeout, tenants: map[string]map[string]*elected{}}
}

// Accept reports whether a request of a replica is taken, and remembers that it came.
// changed is true if the replica's were not taken before.
func (t *Tracker) Accept(tenant, cluster, replica string, now time.Time) (taken, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clusters := t.tenants[tenant]
	if clusters == nil {
		clusters = map[string]*elected{}
		t.tenants[tenant] = clusters
	}
	e := clusters[cluster]
	switch {
	case e == nil && len(clusters) >= maxClusters:
		return true, false
	case e == nil:
		clusters[cluster] = &elected{replica, now}
		return true, true
	case e.replica == replica:
		e.seen = now
		return true, false
	case now.Sub(e.seen) <= t.timeout:
		return false, false
	}
	e.replica, e.seen = replica, now
	return true, true
}
