package server

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/ledger"
)

// collectorBooks has the books that collectors on other hosts told this node, mostly while it led. A collector may
// not be asked for them, and is not trusted: what it tells is bounded by ledger.ParseTenant.
type collectorBooks struct {
	mu      sync.Mutex
	last    map[collectorKey]toldClaim
	dropped atomic.Uint64 // books that were not kept, since there was no room
}

// collectorKey names a collector by its certificate and its data directory. Two collectors of a host have one name.
type collectorKey struct {
	name     string
	producer uint64
}

type toldClaim struct {
	*ledger.Claim
	at time.Time
}

const (
	// maxCollectorBooks bounds the collectors whose books are kept, each with ledger.MaxClaim bytes of JSON.
	maxCollectorBooks = 1000

	// forgetBooks is how long the last books of a collector count in the sum.
	forgetBooks = 10 * time.Minute

	// oldBooksAfter is the age from which the books of a running collector are old. It tells them each second.
	oldBooksAfter = 5 * time.Second
)

func (b *collectorBooks) register(to prometheus.Registerer) {
	promauto.With(to).NewCounterFunc(prometheus.CounterOpts{
		Name: "freshet_cluster_collector_books_dropped_total",
		Help: "Books of collectors that this node did not keep, since it had the books of 1,000 others. Rising: " +
			"freshet ledger lacks some collectors.",
	}, func() float64 { return float64(b.dropped.Load()) })
}

// note replaces the books of a collector.
func (b *collectorBooks) note(name string, c *ledger.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := collectorKey{strings.Clone(name), c.Producer}
	if _, known := b.last[key]; !known && len(b.last) >= maxCollectorBooks {
		if b.forget(); len(b.last) >= maxCollectorBooks {
			b.dropped.Add(1)
			return
		}
	}
	if b.last == nil {
		b.last = map[collectorKey]toldClaim{}
	}
	b.last[key] = toldClaim{c, time.Now()}
}

// forget removes books that are too old. The caller has locked mu.
func (b *collectorBooks) forget() {
	maps.DeleteFunc(b.last, func(_ collectorKey, c toldClaim) bool { return time.Since(c.at) > forgetBooks })
}

// of returns the books of a tenant at all collectors that had samples or datagrams of the tenant.
func (b *collectorBooks) of(tenant string) (all []answer.LedgerCollector) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
	for key, c := range b.last {
		books, has := c.Tenants[tenant]
		if !has {
			continue
		}
		all = append(all, answer.LedgerCollector{
			LedgerNode: answer.LedgerNode{Name: key.name, Started: c.Started, Boundary: c.Boundary,
				Received: books.Samples.Received, HandedOver: books.Samples.HandedOver, Difference: books.Samples.Difference},
			ID: fmt.Sprintf("%016x", key.producer), Ended: c.Final, Told: time.Since(c.at).Seconds(), Books: &books,
		})
	}
	return all
}
