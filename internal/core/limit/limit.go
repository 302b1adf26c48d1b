// Package limit decides which series have a place. It knows how many series a tenant may have,
// which series are known, which limit a new series would exceed, and what becomes of the samples of
// a series without a place. The collector asks it only about new contexts, and decides how an
// overflow series is stored.
//
// Overflow series are not limited: there is at most one for each metric that has series, and
// one for each of three kinds in a tenant.
package limit

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/usage"
)

// Reason is the limit that a series would exceed.
type Reason uint8

const (
	MetricSeries Reason = iota + 1 // Config.MaxSeriesPerMetric
	TenantSeries                   // Config.MaxSeries
	NewSeries                      // Config.MaxNewSeriesPerMinute
	SeriesBytes                    // Config.MaxSeriesBytes
	NumReasons
)

// String returns the reason's name in metrics, logs and the ledger.
func (r Reason) String() string {
	return [...]string{"none", "metric_series", "tenant_series", "new_series", "series_bytes"}[r]
}

// Fate is what becomes of the samples of a new series.
type Fate uint8

const (
	Admitted     Fate = iota // counted under the series
	FoldedMetric             // counted under the overflow series of the metric
	FoldedKind               // counted under the tenant's overflow series of the kind
	Refused                  // not counted: gauges and checks do not add up
)

// String returns the fate's name in metrics and logs.
func (f Fate) String() string { return [...]string{"admitted", "folded", "folded", "refused"}[f] }

// Claim is a series for which a table wants a place.
type Claim struct {
	Key       []byte        // made by series.AppendKey; copied if it is kept
	Source    uint64        // each source of a merged gauge takes a place
	Unnamed   bool          // the catalogue does not know the name, because Room refused it
	Length    int           // bytes of the name and the tags, as sent
	Samples   uint64        // values that came with the claim
	Sender    sender.Sender // zero if unknown
	Container []byte        // container id in the sender's line; copied if it is kept
}

// Verdict is the answer to a claim.
type Verdict struct {
	Place  Place // to be given back by Leave or Release; 0 unless Admitted
	Fate   Fate
	Reason Reason // why the series is not admitted
}

// Limiter holds the tenants of a process. It is safe for concurrent use.
type Limiter struct {
	mu      sync.Mutex
	config  Config
	times   times
	tenants map[string]*Tenant
	shared  usage.Answer // the cluster leader's answer; empty on one machine
}

// times has the time for which a place is kept without a holder, by queue, in nanoseconds.
type times [numQueues]int64

// New returns a limiter that knows no series. A known series without a holder must be claimed
// within claimTime, an up/down counter within totalTime.
func New(c Config, claimTime, totalTime time.Duration) *Limiter {
	return &Limiter{config: c, times: timesOf(claimTime, totalTime), tenants: map[string]*Tenant{}}
}

func timesOf(claimTime, totalTime time.Duration) times {
	return times{ordinary: int64(claimTime), total: int64(totalTime)}
}

// Tenant returns the series of a tenant. While the tenant is in use, all callers get the same
// object: see Tenants.
func (l *Limiter) Tenant(name string) *Tenant {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenants[name]
	if t == nil {
		t = &Tenant{places: newPlaces()}
		t.configure(l.config.of(name), l.times)
		t.share(l.shared.Others[name], l.shared.Bounds[name])
		l.tenants[name] = t
	}
	t.emptySince = 0
	return t
}

// Find returns the series of a tenant for reading. It does not add an unknown tenant, since readers
// may ask for any name.
func (l *Limiter) Find(name string) *Tenant {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tenants[name]; t != nil {
		return t
	}
	return &Tenant{}
}

// emptyFor is how long an unused tenant is kept. In that time its last counts are scraped, and a
// new listener is listed as its user.
const emptyFor = int64(2 * time.Minute)

// Tenants returns all tenants by name. It drops tenants that have had no series and no offender for
// a while, unless the function `used` reports that a listener still uses the tenant. `now` is in
// Unix nanoseconds.
func (l *Limiter) Tenants(now int64, used func(name string) bool) map[string]*Tenant {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, t := range l.tenants {
		switch {
		case used(name) || !t.empty(now):
			t.emptySince = 0
		case t.emptySince == 0:
			t.emptySince = now
		case now-t.emptySince > emptyFor:
			delete(l.tenants, name)
		}
	}
	return maps.Clone(l.tenants)
}

// Configure changes limits and times. Series that exceed the new limits stay.
func (l *Limiter) Configure(c Config, claimTime, totalTime time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.config, l.times = c, timesOf(claimTime, totalTime)
	for name, t := range l.tenants {
		t.configure(c.of(name), l.times)
	}
}

// Tenant holds the series of one tenant. It is safe for concurrent use.
type Tenant struct {
	emptySince int64 // Unix nanoseconds, 0 if the tenant is not empty; guarded by the Limiter

	// Unix nanoseconds of the last claim over any limit, and of the last claim over a limit of the
	// tenant. Tables read both when a window closes.
	over, tenantOver atomic.Int64

	longest atomic.Int64 // bytes of name and tags; atomic, since TooLong is called for each new context

	mu        sync.Mutex
	own       bounds       // of the configuration
	leaders   usage.Bounds // of the leader's configuration
	bounds    bounds       // the tighter ones
	others    usage.Use    // use by other processes of the cluster
	isNew     int          // series that got a place since Limiter.Use was last called
	times     times
	places    places
	tokens    float64 // new series that may come now
	filled    int64   // Unix nanoseconds when tokens were last added
	unclaimed [numQueues][]unclaimed
	samples   [NumReasons]samples
	offenders []*offender
	newest    newest
}

// samples holds the numbers of samples over a limit, by fate.
type samples struct{ folded, refused uint64 }

// empty reports whether the tenant has neither series nor offenders.
func (t *Tenant) empty(now int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireAll(now)
	t.forget(now)
	return t.places.taken == 0 && len(t.offenders) == 0
}

func (t *Tenant) configure(b bounds, times times) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own, t.times = b, times
	t.longest.Store(int64(b.longest()))
	t.tighten()
}

// Admit gives a series a place, or one more holder if it has a place. If the series would exceed a
// limit, Admit counts it with its sender. `now` is in Unix nanoseconds.
func (t *Tenant) Admit(now int64, c *Claim) Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	hash := t.places.hash(c.Key, c.Source)
	if !c.Unnamed {
		if p := t.places.find(hash, c.Key, c.Source); p != 0 {
			t.places.at(p).holders++
			return Verdict{Place: p}
		}
	}
	var m *metric   // nil for a name without series
	if !c.Unnamed { // the name of an unnamed claim may belong to another kind
		m = t.places.metric(series.Name(c.Key))
	}
	reason := t.overWhich(now, m)
	if t.bounds.long(c.Length, c.Key) {
		reason = SeriesBytes
	}
	if c.Unnamed && reason == 0 {
		reason = NewSeries // Room refused the name, but by now there is room
	}
	if reason == 0 {
		t.tokens--
		t.isNew++
		p := t.places.insert(hash, c.Key, c.Source)
		t.places.at(p).holders = 1
		t.newest.add(now, c)
		return Verdict{Place: p}
	}
	v := Verdict{Reason: reason, Fate: fateOf(series.Kind(c.Key[0]), m)}
	t.note(now, m, c, v)
	return v
}

// overWhich returns the limit that one more series of a metric would exceed, or 0 if there is room.
// m is nil if the metric has no series.
func (t *Tenant) overWhich(now int64, m *metric) Reason {
	t.expire(now)
	t.fill(now)
	switch b := &t.bounds; {
	case b.metricSeries > 0 && m != nil && m.series+t.others.Metrics[m.name] >= b.metricSeries:
		return MetricSeries
	case b.series > 0 && t.places.taken+t.others.Series >= b.series:
		return TenantSeries
	case b.newSeries > 0 && t.tokens < 1:
		return NewSeries
	}
	return 0
}

// fill adds the tokens of the time that has passed.
func (t *Tenant) fill(now int64) {
	full := float64(t.bounds.newSeries)
	if passed := now - t.filled; passed > 0 {
		t.tokens = min(full, max(t.tokens, 0)+full*float64(passed)/float64(time.Minute))
	}
	t.filled = now
}

// fateOf returns what becomes of samples of a kind. A metric without series gets no overflow
// series, or a flood of names would make a flood of overflow series.
func fateOf(kind series.Kind, m *metric) Fate {
	switch {
	case kind == series.Gauge || kind == series.Check:
		return Refused
	case m == nil:
		return FoldedKind
	default:
		return FoldedMetric
	}
}

// note updates the counts for a claim over a limit.
func (t *Tenant) note(now int64, m *metric, c *Claim, v Verdict) {
	t.over.Store(now)
	if v.Reason == MetricSeries {
		m.over.Store(now)
	} else {
		t.tenantOver.Store(now)
	}
	if v.Fate == Refused {
		t.samples[v.Reason].refused += c.Samples
	} else {
		t.samples[v.Reason].folded += c.Samples
	}
	t.blame(now, m, c, v)
}

// Room reports whether a series with a new name would get a place now. Call it before adding a name
// to a catalogue.
func (t *Tenant) Room(now int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.overWhich(now, nil) == 0
}

// TooLong reports whether a name and tags of `length` bytes are too long for a series.
func (t *Tenant) TooLong(length int) bool { return length > int(t.longest.Load()) }

// Over returns when a claim last exceeded a limit, in Unix nanoseconds; 0 means never.
func (t *Tenant) Over() int64 { return t.over.Load() }
