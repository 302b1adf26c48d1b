// Package prober is the role that measures freshness. Every two seconds it sends a datagram to a
// socket of each tenant, as an application would, and one remote write. Then it queries until each
// sample is there. Its samples are stored in Freshet's own tenant, so that tenants do not see
// probes.
package prober

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/probe"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// Target is a socket that takes a tenant's datagrams.
type Target struct{ Tenant, Network, Address string }

// Options are the parts of a Prober. All fields are required.
type Options struct {
	Targets  func() []Target // returns the current sockets; the first of each tenant is probed
	Write    http.Handler    // accepts remote write for the tenant in the context
	Query    func(ctx context.Context, expr string) (v float64, found bool, err error)
	Mark     *probe.Mark
	Registry prometheus.Registerer
	Logger   *slog.Logger
}

const (
	// interval is the time between probes of the same `way`. A shorter interval would cost too
	// much: a probe wakes the whole pipeline, and probes are half of the work of an idle server
	// (TestProbesAreFew).
	interval = 2 * time.Second

	// patience is how long the prober looks for a probe before the probe counts as lost.
	patience = 10 * time.Second

	// windowed is the shortest time between the end of a second and a query that can see
	// the window of that second.
	windowed = 3 * time.Millisecond

	// The waits between queries, which determine the precision of the measurement. A query takes
	// some 100 us.
	betweenWrites  = 2 * time.Millisecond
	betweenWindows = 10 * time.Millisecond

	// betweenTargets is how soon new sockets are probed after a reload.
	betweenTargets = 10 * time.Second

	// maxTenants bounds the cost of probing.
	maxTenants = 50

	// toldAgain is the minimum time between log lines about lost probes of the same `way`, since
	// a broken store loses all probes.
	toldAgain = time.Minute
)

// Prober is the role's state.
type Prober struct {
	Options
	freshness *prometheus.HistogramVec
	lost      *prometheus.CounterVec
}

// New makes a prober. It starts nothing.
func New(o Options) *Prober {
	p := &Prober{
		Options: o,
		freshness: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "freshet_freshness_seconds",
			Help: "Time from the sending of a sample until a query returns it, by tenant and path: " +
				"a datagram waits for the end of its second; a remote write, which only the tenant freshet gets, " +
				"is acknowledged first. Measured every two seconds by a probe. Rising: freshet_stage_seconds says in which stage.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.3, 2, 5, 10}, NativeHistogramBucketFactor: 1.1,
			NativeHistogramMaxBucketNumber: 160},
			[]string{"tenant", "path"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "freshet_freshness_lost_total",
			Help: "Probes that were refused, that no query returned within ten seconds, or that were due while " +
				"such a probe was awaited. Rising: samples of applications may be lost, too; the log says what happened."},
			[]string{"tenant", "path"}),
	}
	o.Registry.MustRegister(p.freshness, p.lost)
	return p
}

// Run sends probes until ctx is done.
func (p *Prober) Run(ctx context.Context) error {
	var ways sync.WaitGroup
	defer ways.Wait()
	ctx = tenant.NewContext(ctx, tenant.Own)
	ways.Go(func() { p.run(ctx, p.way(probe.RemoteWrite, tenant.Own, p.write)) })
	probed := map[Target]context.CancelFunc{}
	for {
		wanted := p.targets()
		for t, stop := range probed {
			if !wanted[t] {
				stop()
				delete(probed, t)
			}
		}
		for t := range wanted {
			if probed[t] != nil {
				continue
			}
			ctx, stop := context.WithCancel(ctx)
			probed[t] = stop
			ways.Go(func() {
				defer stop()
				s := &socket{target: t}
				defer s.close()
				p.run(ctx, p.way(probe.DogStatsD, t.Tenant, func(_ context.Context, at time.Time) error {
					return s.send(p.Mark.Datagram(at), at)
				}))
			})
		}
		if !sleep(ctx, betweenTargets) {
			return nil
		}
	}
}

// targets returns the sockets to probe: the first of each tenant.
func (p *Prober) targets() map[Target]bool {
	all, seen := map[Target]bool{}, map[string]bool{}
	for _, t := range p.Targets() {
		if !seen[t.Tenant] && len(all) < maxTenants {
			all[t], seen[t.Tenant] = true, true
		}
	}
	return all
}

// way is one path of probes. It belongs to the goroutine that sends them.
type way struct {
	tenant, path string
	send         func(ctx context.Context, at time.Time) error
	expr         string // the query for the newest stored probe
	told         time.Time
	lost         int // probes lost since the last log line
}

func (p *Prober) way(path, tenant string, send func(context.Context, time.Time) error) *way {
	return &way{tenant: tenant, path: path, send: send, expr: p.Mark.Labels(path, tenant).String()}
}

// run sends the probes of w until ctx is done, one in each interval. The time in the interval is
// random, so that probes meet every phase of a window.
func (p *Prober) run(ctx context.Context, w *way) {
	freshness, lost := p.freshness.WithLabelValues(w.tenant, w.path), p.lost.WithLabelValues(w.tenant, w.path)
	lost.Add(0) // so that queries see the first loss as a rise from 0
	for next := time.Now(); ; next = next.Add(interval) {
		if !sleep(ctx, time.Until(next.Add(rand.N(interval)))) {
			return
		}
		at := time.Now()
		err := p.probe(ctx, w, at)
		took := time.Since(at)
		if ctx.Err() != nil {
			return
		}
		// Also count the probes that were due meanwhile and were not sent. Otherwise an outage
		// would appear as a single slow probe among hundreds of quick ones.
		kept := 0 // probes that were not sent because this one was slow
		for ; time.Since(next) > 2*interval; next = next.Add(interval) {
			kept++
		}
		if err != nil {
			lost.Add(float64(1 + kept))
			p.tell(w, 1+kept, err)
			continue
		}
		for i := range 1 + kept {
			freshness.Observe(max(0, took-time.Duration(i)*interval).Seconds())
		}
	}
}

// probe sends once and queries until the sample is there. The error says why the probe was lost.
func (p *Prober) probe(ctx context.Context, w *way, at time.Time) error {
	if err := w.send(ctx, at); err != nil {
		return err
	}
	var asking error // error of the last query
	for time.Since(at) <= patience {
		if w.path == probe.DogStatsD {
			// No query can return the sample before its second is over.
			over := at.Truncate(time.Second).Add(time.Second + windowed)
			if !sleep(ctx, max(time.Until(over), betweenWindows)) {
				return ctx.Err()
			}
		}
		var v float64
		var found bool
		v, found, asking = p.Query(ctx, w.expr)
		if found && v >= probe.Seconds(at)-1e-5 {
			return nil
		}
		if w.path == probe.RemoteWrite && !sleep(ctx, betweenWrites) {
			return ctx.Err()
		}
	}
	return errors.Join(fmt.Errorf("no query returned it within %v", patience), asking)
}

// tell writes into the log why probes are lost, at most once in toldAgain.
func (p *Prober) tell(w *way, lost int, err error) {
	w.lost += lost
	if !w.told.IsZero() && time.Since(w.told) < toldAgain {
		return
	}
	p.Logger.Warn("probes are lost: samples of applications may be lost, too",
		"tenant", w.tenant, "path", w.path, "probes", w.lost, "error", err)
	w.told, w.lost = time.Now(), 0
}

// sleep reports whether d passed before ctx was done.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
