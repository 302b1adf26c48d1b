package limit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
)

// naive is the limiter in its simplest form: a map.
type naive struct {
	limit, perMetric int
	places           map[naiveKey]*naivePlace
	metrics          map[string]int // series
}

type naiveKey struct {
	key    string
	source uint64
}

type naivePlace struct {
	place   Place
	metric  string
	holders int
	freed   int64 // Unix nanoseconds
}

func (m *naive) add(k naiveKey, metric string, p *naivePlace) {
	p.metric = metric
	m.places[k] = p
	m.metrics[metric]++
}

func (m *naive) remove(k naiveKey) {
	m.metrics[m.places[k].metric]--
	delete(m.places, k)
}

func (k naiveKey) upDown() bool { return series.Kind(k.key[0]) == series.UpDown }

// expire removes from the map the series that the tenant has removed. No series may leave before its
// time. All must have left after twice that time, since a series that is claimed and freed again waits
// behind series that came after it.
func (m *naive) expire(t *testing.T, tenant *Tenant, now int64) {
	for k, p := range m.places {
		if p.holders > 0 {
			continue
		}
		waited := now - p.freed
		known := tenant.places.find(tenant.places.hash([]byte(k.key), k.source), []byte(k.key), k.source) != 0
		time := tenant.times[ordinary]
		if k.upDown() {
			time = tenant.times[total]
		}
		if !known && waited <= time || known && waited > 2*time+2*second {
			t.Fatalf("%q, without a holder for %d ns: got known=%t, want the opposite", k.key, waited, known)
		}
		if !known {
			m.remove(k)
		}
	}
}

// TestAgainstAModel compares places, keys and counts with a map, while claims, leaves, releases and
// loads come in any order and at any time.
func TestAgainstAModel(t *testing.T) {
	const claimTime, totalTime = 20 * time.Second, 30 * time.Second
	m := &naive{limit: 400, perMetric: 150, places: map[naiveKey]*naivePlace{}, metrics: map[string]int{}}
	tenant := New(Config{MaxSeries: m.limit, MaxSeriesPerMetric: m.perMetric}, claimTime, totalTime).Tenant("a")
	rng := rand.New(rand.NewPCG(1, 2))
	now := begin
	for step := range 10_000 {
		now += rng.Int64N(second / 10)
		if rng.IntN(1000) == 0 { // metrics leave, and others get their memory
			now += 2*int64(totalTime) + 3*second
		}
		tenant.Report(now)
		m.expire(t, tenant, now)
		number := rng.IntN(5) + step/1_000
		metric := fmt.Sprint("m", number)
		k := naiveKey{
			string(key([...]series.Kind{series.Counter, series.Counter, series.UpDown}[number%3], metric, rng.IntN(200))),
			uint64(rng.IntN(3)) * 7,
		}
		p := m.places[k]
		switch action := rng.IntN(10); {
		case action < 5:
			m.admit(t, tenant, now, k, metric)
		case action == 5:
			tenant.Load(now, now, []byte(k.key), k.source) // accepted even over limits
			if p == nil {
				m.add(k, metric, &naivePlace{freed: now})
			}
		case p == nil || p.holders == 0:
		case action < 8:
			tenant.Leave(now, p.place)
			if p.holders--; p.holders > 0 {
			} else if p.freed = now; !k.upDown() {
				m.remove(k)
			}
		default:
			tenant.Release(now, p.place, false)
			if p.holders--; p.holders == 0 {
				p.freed = now
			}
		}
		if step%100 == 0 {
			m.check(t, tenant, now)
		}
	}
}

func (m *naive) admit(t *testing.T, tenant *Tenant, now int64, k naiveKey, metric string) {
	v := tenant.Admit(now, &Claim{Key: []byte(k.key), Source: k.source, Samples: 1})
	p := m.places[k]
	room := len(m.places) < m.limit && m.metrics[metric] < m.perMetric
	switch {
	case v.Fate != Admitted:
		if p != nil || room || (v.Fate == FoldedMetric) != (m.metrics[metric] > 0) {
			t.Fatalf("%q: got %+v with %d series, %d of the metric; known: %t, room: %t",
				k.key, v, len(m.places), m.metrics[metric], p != nil, room)
		}
		return
	case p == nil && !room:
		t.Fatalf("%q was admitted, with %d series, %d of the metric", k.key, len(m.places), m.metrics[metric])
	case p == nil:
		p = &naivePlace{}
		m.add(k, metric, p)
	case p.place != 0 && p.place != v.Place:
		t.Fatalf("%q has the places %d and %d", k.key, p.place, v.Place)
	}
	p.place = v.Place
	p.holders++
}

func (m *naive) check(t *testing.T, tenant *Tenant, now int64) {
	t.Helper()
	if n := tenant.Report(now).Series; n != len(m.places) {
		t.Fatalf("%d series, want %d", n, len(m.places))
	}
	for metric, want := range m.metrics {
		if n := tenant.MetricSeries(metric); n != want {
			t.Fatalf("%d series of %s, want %d", n, metric, want)
		}
	}
	for k, p := range m.places {
		if p.holders > 0 && string(tenant.Key(p.place)) != k.key {
			t.Fatalf("place %d has the key %q, want %q", p.place, tenant.Key(p.place), k.key)
		}
	}
	queued := map[Place]bool{}
	for _, u := range slices.Concat(tenant.unclaimed[:]...) {
		if queued[u.place] {
			t.Fatalf("place %d waits twice", u.place)
		}
		queued[u.place] = true
	}
	keys := map[string]int{}
	for _, key := range tenant.Keys() {
		keys[string(key)]++
	}
	for k := range m.places {
		keys[k.key]--
	}
	for key, n := range keys {
		if n != 0 {
			t.Fatalf("Keys() has %q %d times too often", key, n)
		}
	}
}
