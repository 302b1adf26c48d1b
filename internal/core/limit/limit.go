// Package limit holds how many series a tenant may have: which ones are known, who
// is over a limit, and what becomes of the samples of a series that there is no
// room for. It is asked about new contexts only. How an overflow series is stored
// is the collector's business.
//
// Overflow series are not subject to the limits: there is at most one for each
// metric that has series, and one for each of three kinds in a tenant.
package limit

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Reason is the limit that a series is over.
type Reason uint8

const (
	MetricSeries Reason = iota + 1 // Config.MaxSeriesPerMetric
	TenantSeries                   // Config.MaxSeries
	NewSeries                      // Config.MaxNewSeriesPerMinute
	SeriesBytes                    // Config.MaxSeriesBytes
	NumReasons
)

// String returns the reason as metrics, logs and the ledger spell it.
func (r Reason) String() string {
	return [...]string{"none", "metric_series", "tenant_series", "new_series", "series_bytes"}[r]
}

// Fate is what becomes of the samples of a new series.
type Fate uint8

const (
	Admitted     Fate = iota // they are counted under the series
	FoldedMetric             // they are counted under the overflow series of the metric
	FoldedKind               // they are counted under the tenant's overflow series of the kind
	Refused                  // they are not counted: gauges and checks do not add up
)

// String returns the fate as metrics and logs spell it.
func (f Fate) String() string { return [...]string{"admitted", "folded", "folded", "refused"}[f] }

// Claim is a series for which a table wants a place.
type Claim struct {
	Key       []byte        // of series.AppendKey; copied if it is kept
	Source    uint64        // each source of a merged gauge takes a place
	Unnamed   bool          // the catalogue does not know the name, since Room said not to add to it
	Length    int           // bytes of the name and the tags as they were sent
	Samples   uint64        // values that came with the claim
	Sender    sender.Sender // zero if nobody knows
	Container []byte        // id that the sender's line gives; copied if it is kept
}

// Verdict is the answer to a claim.
type Verdict struct {
	Place  Place // to be given back by Leave or Release; 0 unless Admitted
	Fate   Fate
	Reason Reason // of what is not admitted
}

// Limiter holds the tenants of a process. It is safe for concurrent use.
type Limiter struct {
	mu      sync.Mutex
	config  Config
	times   times
	tenants map[string]*Tenant
}

// times is how long places stay without a holder, by queue, in nanoseconds.
type times [numQueues]int64

// New returns a limiter that knows no series. A series that is known without a
// holder has claimTime to find one, an up/down counter totalTime.
func New(c Config, claimTime, totalTime time.Duration) *Limiter {
	return &Limiter{config: c, times: timesOf(claimTime, totalTime), tenants: map[string]*Tenant{}}
}

func timesOf(claimTime, totalTime time.Duration) times {
	return times{ordinary: int64(claimTime), total: int64(totalTime)}
}

// Tenant returns the series of a tenant: the same object to all who ask, as long as
// it is in use. See Tenants.
func (l *Limiter) Tenant(name string) *Tenant {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenants[name]
	if t == nil {
		t = &Tenant{places: newPlaces()}
		t.configure(l.config.of(name), l.times)
		l.tenants[name] = t
	}
	t.emptySince = 0
	return t
}

// Find returns the series of a tenant for who only reads: without any if there is no
// such tenant, since those who look may ask for any name.
func (l *Limiter) Find(name string) *Tenant {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tenants[name]; t != nil {
		return t
	}
	return &Tenant{}
}

// emptyFor is how long a tenant stays that nobody uses: until its last counts have
// been scraped, and what asked for it is in use.
const emptyFor = int64(2 * time.Minute)

// Tenants returns all tenants by name. It drops those that have had no series and no
// offender for a while, unless they are used: by a listener that is there now. now is
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

// Configure puts other limits and other times in force. Series that are over the limits
// now stay.
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
	emptySince int64 // Unix nanoseconds, 0 if it is not; guarded by the Limiter

	// Unix nanoseconds of the last claim over any limit, and over one of the tenant.
	// Tables read them when a window closes.
	over, tenantOver atomic.Int64

	longest atomic.Int64 // bytes of name and tags: for TooLong, which each new context asks

	mu        sync.Mutex
	bounds    bounds
	times     times
	places    places
	tokens    float64 // series that may begin now
	filled    int64   // when tokens were counted, Unix nanoseconds
	unclaimed [numQueues][]unclaimed
	samples   [NumReasons]samples
	offenders []*offender
	newest    newest
}

// samples of one reason that were over a limit.
type samples struct{ folded, refused uint64 }

// empty reports whether there is nothing to hold or to tell of.
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
	if b.newSeries != t.bounds.newSeries {
		t.tokens = float64(b.newSeries)
	}
	t.bounds, t.times = b, times
	t.longest.Store(int64(b.longest()))
}

// Admit gives a series a place, or another holder if it has one. What is over a
// limit is counted, with who sent it. now is Unix nanoseconds.
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
	if !c.Unnamed { // if there are some, they are of another kind
		m = t.places.metric(series.Name(c.Key))
	}
	reason := t.overWhich(now, m)
	if t.bounds.long(c.Length, c.Key) {
		reason = SeriesBytes
	}
	if c.Unnamed && reason == 0 {
		reason = NewSeries // room came about since Room was asked
	}
	if reason == 0 {
		t.tokens--
		p := t.places.insert(hash, c.Key, c.Source)
		t.places.at(p).holders = 1
		t.newest.add(now, c)
		return Verdict{Place: p}
	}
	v := Verdict{Reason: reason, Fate: fateOf(series.Kind(c.Key[0]), m)}
	t.note(now, m, c, v)
	return v
}

// overWhich returns the limit that one more series of a metric would be over, 0 if
// there is room. m is nil if the metric has none.
func (t *Tenant) overWhich(now int64, m *metric) Reason {
	t.expire(now)
	t.fill(now)
	switch b := &t.bounds; {
	case b.metricSeries > 0 && m != nil && m.series >= b.metricSeries:
		return MetricSeries
	case b.series > 0 && t.places.taken >= b.series:
		return TenantSeries
	case b.newSeries > 0 && t.tokens < 1:
		return NewSeries
	}
	return 0
}

// fill lets time add to the series that may begin.
func (t *Tenant) fill(now int64) {
	full := float64(t.bounds.newSeries)
	if passed := now - t.filled; passed > 0 {
		t.tokens = min(full, max(t.tokens, 0)+full*float64(passed)/float64(time.Minute))
	}
	t.filled = now
}

// fateOf is what becomes of the samples of a kind. A metric without series has no
// overflow series either: a flood of names would be one of overflow series.
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

// note counts a claim that is over a limit.
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

// Room reports whether a series of a new name would have a place now. Whoever adds
// to a catalogue of names asks first.
func (t *Tenant) Room(now int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.overWhich(now, nil) == 0
}

// TooLong reports whether a name and tags of so many bytes are longer than those of a
// series may be.
func (t *Tenant) TooLong(length int) bool { return length > int(t.longest.Load()) }

// Over is when a claim was last over a limit, in Unix nanoseconds; 0 if none ever was.
func (t *Tenant) Over() int64 { return t.over.Load() }
