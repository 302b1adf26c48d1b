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

	// For the rate of samples: what it had received at least rateOver ago, and what it had when base was replaced last.
	// Both are without a time at first.
	base, next received
}

// received has the received samples of each tenant at a time.
type received struct {
	at      time.Time // zero if it has none
	samples map[string]uint64
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

	// rateOver is the shortest time of a collector's rate, except in its first seconds. The longest is twice as long.
	rateOver = 15 * time.Second

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
	told := toldClaim{Claim: c, at: time.Now(), stages: stages, stagesAt: time.Now()}
	if known && before.Started == told.Started {
		if told.base, told.next = before.base, before.next; told.at.Sub(told.next.at) > rateOver {
			told.base, told.next = told.next, before.received()
		}
	}
	if len(stages) == 0 { // as in most calls
		told.stages, told.stagesAt = before.stages, before.stagesAt
	} else if told.at.Sub(before.stagesAt) < maxStagesGap {
		b.addStages(&before, &told)
	}
	b.last[key] = told
}

func (c *toldClaim) received() received {
	r := received{at: c.at, samples: map[string]uint64{}}
	for tenant, books := range c.Tenants {
		r.samples[tenant] = books.Samples.Received
	}
	return r
}

// rate returns how many samples of a tenant the collector receives a second; 0 until it told the books of the tenant
// twice. A collector of many tenants tells only the books of the busiest, which are not always the same.
func (c *toldClaim) rate(tenant string) float64 {
	now := c.Tenants[tenant].Samples.Received
	for _, from := range []received{c.base, c.next} {
		base, told := from.samples[tenant]
		if told && c.at.After(from.at) && now >= base && !c.Final {
			return float64(now-base) / c.at.Sub(from.at).Seconds()
		}
	}
	return 0
}

// senders returns the collectors that had samples of a tenant.
func (b *collectorBooks) senders(tenant string) (all []answer.Sender) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
	for key, c := range b.last {
		books, has := c.Tenants[tenant]
		if !has {
			continue
		}
		s := answer.Sender{Input: answer.SenderCollector, Name: key.name, ID: fmt.Sprintf("%016x", key.producer),
			Samples: c.rate(tenant), Seen: float64(c.at.UnixMilli()) / 1000, Refused: map[string]uint64{}}
		for _, reasons := range []map[string]uint64{
			books.Samples.Malformed, books.Samples.Refused, books.Samples.Late, books.Samples.Unsent,
		} {
			for reason, n := range reasons {
				s.Refused[reason] += n
			}
		}
		all = append(all, s)
	}
	return all
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
