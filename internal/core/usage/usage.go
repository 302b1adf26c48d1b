// Package usage adds up how much of each tenant's limits the processes of a cluster use, so that a limit
// holds for the cluster and not for each process. Each process reports its use to the leader once a
// second, and the leader answers with the use of all other processes.
//
// The sums are up to a second old. So a burst that begins in many processes at once may exceed a limit
// by what they admit in this second. No decision of the log depends on the sums.
package usage

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Use is how much a tenant uses of its limits.
type Use struct {
	Samples int64          // of remote write and OTLP, since the report before
	Series  int            // DogStatsD series that have a place
	New     int            // series that got their place since the report before
	Metrics map[string]int // series by metric, only for the metrics with the most series
}

// Bounds are limits of a tenant. 0 means no limit.
type Bounds struct{ Series, MetricSeries, NewSeries int }

// Answer is what the leader knows of the tenants in a report.
type Answer struct {
	Others map[string]Use    // of all processes but the one that asks
	Bounds map[string]Bounds // the leader's
	Whole  bool              // all processes have reported; otherwise Series and Metrics are too small
}

const (
	// Interval is the time between two reports of a process.
	Interval = time.Second

	// MaxTenants and MaxMetrics bound a report: its tenants, and the metrics of a tenant.
	MaxTenants = 1000
	MaxMetrics = 50

	// MaxProcesses bounds how many processes a Table adds up. It is the largest fleet of collectors that
	// docs/architecture.md plans for.
	MaxProcesses = 10_000

	silence = 10 * time.Second // after which the use of a process is forgotten
	settled = 3 * Interval     // after which a new leader has heard of all processes
)

// ErrFull means that MaxProcesses processes report already.
var ErrFull = errors.New("too many processes report what tenants use of their limits")

// Table is the leader's sum of all reports. The zero Table is empty. It is safe for concurrent use.
type Table struct {
	mu        sync.Mutex
	term      uint64
	begun     time.Time // of the term
	swept     time.Time
	processes map[uint64]*process
	totals    map[string]*total
}

// process is a process that reports.
type process struct {
	at    time.Time // of the last report
	uses  map[string]Use
	marks map[string]flows // the totals' flows at the last answer to this process
}

// flows are sums over time.
type flows struct{ samples, new int64 }

// total is the sum of a tenant.
type total struct {
	flows
	series  int
	metrics map[string]int
	users   int // processes with a use of the tenant
}

// Exchange replaces the use of the process `from`, and returns what all other processes use, for each
// tenant of the report. The answer is not whole in the first seconds of a term. The caller sets Bounds.
func (t *Table) Exchange(term uint64, now time.Time, from uint64, uses map[string]Use) (Answer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term != term || t.processes == nil {
		t.term, t.begun, t.swept = term, now, now
		t.processes, t.totals = map[uint64]*process{}, map[string]*total{}
	}
	t.sweep(now)
	p := t.processes[from]
	if p == nil {
		if len(t.processes) >= MaxProcesses {
			return Answer{}, fmt.Errorf("%w: at most %d may", ErrFull, MaxProcesses)
		}
		p = &process{marks: map[string]flows{}}
		t.processes[from] = p
	}
	t.replace(p, uses)
	p.at = now
	a := Answer{Others: make(map[string]Use, len(uses)), Whole: now.Sub(t.begun) >= settled}
	for tenant, own := range uses {
		a.Others[tenant] = t.others(p, tenant, own)
	}
	return a, nil
}

// replace subtracts what a process reported before, and adds its new report.
func (t *Table) replace(p *process, uses map[string]Use) {
	for tenant, before := range p.uses {
		t.add(tenant, before, -1)
	}
	for tenant, own := range uses {
		sum := t.add(tenant, own, 1)
		sum.samples += own.Samples
		sum.new += int64(own.New)
	}
	for tenant := range p.uses {
		if sum := t.totals[tenant]; sum != nil && sum.users == 0 {
			delete(t.totals, tenant)
		}
		if _, still := uses[tenant]; !still {
			delete(p.marks, tenant)
		}
	}
	p.uses = uses
}

// add adds the series of a use to its tenant's sum, or subtracts them if sign is -1.
func (t *Table) add(tenant string, u Use, sign int) *total {
	sum := t.totals[tenant]
	if sum == nil {
		sum = &total{metrics: map[string]int{}}
		t.totals[tenant] = sum
	}
	sum.users += sign
	sum.series += sign * u.Series
	for name, series := range u.Metrics {
		if sum.metrics[name] += sign * series; sum.metrics[name] == 0 {
			delete(sum.metrics, name)
		}
	}
	return sum
}

// others returns a tenant's sum without the process's own use, and notes the sum that the process was
// told.
func (t *Table) others(p *process, tenant string, own Use) Use {
	sum := t.totals[tenant]
	u := Use{Series: sum.series - own.Series}
	if mark, told := p.marks[tenant]; told { // else the process began only now
		u.Samples = sum.samples - mark.samples - own.Samples
		u.New = int(sum.new - mark.new - int64(own.New))
	}
	p.marks[tenant] = sum.flows
	for name, series := range own.Metrics {
		if other := sum.metrics[name] - series; other > 0 {
			if u.Metrics == nil {
				u.Metrics = make(map[string]int, len(own.Metrics))
			}
			u.Metrics[name] = other
		}
	}
	return u
}

// sweep forgets processes that are silent.
func (t *Table) sweep(now time.Time) {
	if now.Sub(t.swept) < Interval {
		return
	}
	t.swept = now
	for from, p := range t.processes {
		if now.Sub(p.at) > silence {
			t.replace(p, nil)
			delete(t.processes, from)
		}
	}
}
