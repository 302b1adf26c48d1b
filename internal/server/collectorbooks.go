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
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/usage"
)

// collectorBooks has the books that collectors on other hosts told this node, mostly while it led, and the sum of
// their stages. A collector may not be asked for them, and is not trusted: package peer bounds what it tells.
type collectorBooks struct {
	mu      sync.Mutex
	last    map[collectorKey]toldClaim
	dropped atomic.Uint64 // books that were not kept, since there was no room
	stages  stage.Sum
}

// collectorKey names a collector by its certificate and its data directory. Two collectors of a host have one name.
type collectorKey struct {
	name     string
	producer uint64
}

type toldClaim struct {
	*ledger.Claim
	at       time.Time
	stages   []stage.Stats // told last, at stagesAt
	stagesAt time.Time
}

const (
	// maxCollectorBooks bounds the collectors whose books are kept, each with ledger.MaxClaim bytes of JSON.
	maxCollectorBooks = 1000

	// forgetBooks is how long the last books of a collector count in the sum.
	forgetBooks = 10 * time.Minute

	// maxStagesGap is how long a collector may not have told its stages, so that the node still adds what it
	// counted meanwhile.
	maxStagesGap = 3 * stagesEvery * usage.Interval

	// stagesEvery is in how many calls a collector tells its stages once. They are some kB.
	stagesEvery = 5

	// oldBooksAfter is the age from which the books of a running collector are old. It tells them each second.
	oldBooksAfter = 5 * time.Second
)

func (b *collectorBooks) register(to prometheus.Registerer) {
	promauto.With(to).NewCounterFunc(prometheus.CounterOpts{
		Name: "freshet_cluster_collector_books_dropped_total",
		Help: "Books of collectors that this node did not keep, since it had the books of 1,000 others. Rising: " +
			"freshet ledger lacks some collectors.",
	}, func() float64 { return float64(b.dropped.Load()) })
	to.MustRegister(collectorStages{&b.stages})
}

// note replaces the books of a collector, and adds up its stages. What it counted while it told this node nothing
// is not added: another node has added that.
func (b *collectorBooks) note(name string, c *ledger.Claim, stages []stage.Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := collectorKey{strings.Clone(name), c.Producer}
	before, known := b.last[key]
	if !known && len(b.last) >= maxCollectorBooks {
		if b.forget(); len(b.last) >= maxCollectorBooks {
			b.dropped.Add(1)
			return
		}
	}
	if b.last == nil {
		b.last = map[collectorKey]toldClaim{}
	}
	told := toldClaim{c, time.Now(), stages, time.Now()}
	if len(stages) == 0 { // as in most calls
		told.stages, told.stagesAt = before.stages, before.stagesAt
	} else if told.at.Sub(before.stagesAt) < maxStagesGap {
		b.addStages(&before, &told)
	}
	b.last[key] = told
}

// addStages adds what a collector counted between two reports.
func (b *collectorBooks) addStages(before, now *toldClaim) {
	if before.Started != now.Started {
		b.stages.Add(nil, now.stages)
		return
	}
	b.stages.Add(before.stages, now.stages)
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
