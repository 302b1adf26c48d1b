// Package hapair elects one of several senders of the same samples. Such senders are Prometheus
// servers that scrape the same targets, so that one may fail.
package hapair

import (
	"sync"
	"time"
)

// maxClusters is how many clusters of a tenant are tracked. Requests of other clusters are
// always accepted, so that a sender that varies its cluster label loses nothing.
const maxClusters = 1000

// Tracker remembers the elected replica of each tenant and cluster. It is safe for concurrent
// use.
type Tracker struct {
	timeout time.Duration

	mu      sync.Mutex
	tenants map[string]map[string]*elected
}

type elected struct {
	replica string
	seen    time.Time
}

// New returns a tracker that elects another replica when the elected one has sent nothing for
// timeout.
func New(timeout time.Duration) *Tracker {
	return &Tracker{timeout: timeout, tenants: map[string]map[string]*elected{}}
}

// Accept reports whether a replica's request is accepted, and remembers that it came. changed
// reports whether this request elected the replica.
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
