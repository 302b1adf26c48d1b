// Package prober is the role that measures freshness: each second it sends a datagram to each
// tenant, as an application would, and a remote write to Freshet's own tenant, and asks for them
// until a query has the answer.
//
// A remote write is not sent to each tenant: samples of now would keep a tenant whose own are
// older, as those of a backfill, from storing them.
package prober

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/prompb"

	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// Metric is the name of the gauge that is sent. Its value is when, in Unix seconds, its
// label path by which way, and prober whose it is.
const Metric = limit.Own

// The ways.
const (
	dogstatsd   = "dogstatsd"
	remoteWrite = "remote_write"
)

// Target is where a tenant's datagrams are taken.
type Target struct{ Tenant, Network, Address string }

// Options is what a Prober is made of. All fields are needed.
type Options struct {
	Targets  func() []Target // of the moment; the first of a tenant counts
	Write    http.Handler    // takes remote write for the tenant in the context
	Own      string          // the tenant to which remote writes are sent: Freshet's own
	Query    func(ctx context.Context, expr string) (v float64, found bool, err error)
	Registry prometheus.Registerer
	Logger   *slog.Logger
}

const (
	interval = time.Second

	// patience is how long a probe is looked for. Later it counts as lost.
	patience = 10 * time.Second

	// windowed is when a window may be seen, after the second in which it was: earlier it is
	// of no use to ask.
	windowed = 3 * time.Millisecond

	// between is how long to wait from question to question, which is how exact the result
	// is. A question takes some 100 us.
	betweenWrites  = 2 * time.Millisecond
	betweenWindows = 10 * time.Millisecond

	// maxUnder bounds the probes of a tenant and a way that are looked for at once.
	maxUnder = 3

	// maxTenants bounds what probing costs.
	maxTenants = 50

	// toldAgain is how often the log has a line about lost probes of a tenant and a way: a
	// store that is broken loses one each second.
	toldAgain = time.Minute
)

// Prober is the role's state.
type Prober struct {
	Options
	freshness *prometheus.HistogramVec
	lost      *prometheus.CounterVec

	name string // label of our probes: others may send some, as another Freshet that forwards its own

	mu    sync.Mutex
	under map[probe]int // way: that are looked for
	told  map[probe]told
}

// probe is a tenant and a way.
type probe struct{ tenant, path string }

// told is when the log had the last line about probes that are lost, and how many are since.
type told struct {
	at   time.Time
	lost int
}

// New makes a prober. It starts nothing.
func New(o Options) *Prober {
	p := &Prober{
		Options: o, name: strconv.FormatUint(rand.Uint64(), 36), under: map[probe]int{}, told: map[probe]told{},
		freshness: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "freshet_freshness_seconds",
			Help:    "How long it takes from the sending of a sample until a query has it, by tenant and path: a datagram waits for the end of its second, a remote write, which is sent to the tenant freshet alone, is acknowledged first. Measured each second by a probe. Rising: freshet_stage_seconds says in which stage.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.3, 2, 5, 10}, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160},
			[]string{"tenant", "path"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "freshet_freshness_lost_total",
			Help: "Probes that no query had after ten seconds, that were not taken, or not sent since three before them were still looked for. Rising: what applications send may be lost, too; the log says what happened, or a rule or a limit drops the gauge freshet_probe."},
			[]string{"tenant", "path"}),
	}
	o.Registry.MustRegister(p.freshness, p.lost)
	return p
}

// Run probes until ctx is done.
func (p *Prober) Run(ctx context.Context) error {
	var probes sync.WaitGroup
	defer probes.Wait()
	for ticker := time.NewTicker(interval); ; {
		seen := map[string]bool{}
		for _, t := range p.Targets() {
			if seen[t.Tenant] || len(seen) == maxTenants {
				continue
			}
			seen[t.Tenant] = true
			ctx := tenant.NewContext(ctx, t.Tenant)
			probes.Go(func() {
				p.probe(ctx, probe{t.Tenant, dogstatsd}, func(_ context.Context, at time.Time) error { return p.datagram(t, at) })
			})
		}
		probes.Go(func() { p.probe(tenant.NewContext(ctx, p.Own), probe{p.Own, remoteWrite}, p.write) })
		select {
		case <-ticker.C:
		case <-ctx.Done():
			ticker.Stop()
			return nil
		}
	}
}

// probe sends once, some time in the second, so that windows are met in each of their
// phases, and looks until a query has it.
func (p *Prober) probe(ctx context.Context, what probe, send func(context.Context, time.Time) error) {
	p.mu.Lock()
	busy := p.under[what] == maxUnder
	if !busy {
		p.under[what]++
	}
	p.mu.Unlock()
	freshness := p.freshness.WithLabelValues(what.tenant, what.path)
	p.lost.WithLabelValues(what.tenant, what.path).Add(0) // the first one lost is a rise
	if busy {                                             // those before are late already
		p.lose(what, nil)
		return
	}
	defer func() {
		p.mu.Lock()
		p.under[what]--
		p.mu.Unlock()
	}()
	if !sleep(ctx, rand.N(interval)) {
		return
	}
	at := time.Now()
	err := send(ctx, at)
	var asking error // of the last question
	for err == nil {
		if took := time.Since(at); took > patience {
			err = errors.Join(fmt.Errorf("no query has it after %v", patience), asking)
			break
		}
		if what.path == dogstatsd {
			// It is of no use to ask before the second is over.
			over := at.Truncate(time.Second).Add(time.Second + windowed)
			if wait := max(time.Until(over), betweenWindows); !sleep(ctx, wait) {
				return
			}
		}
		var v float64
		var found bool
		v, found, asking = p.Query(ctx, fmt.Sprintf("max(%s{path=%q,prober=%q})", Metric, what.path, p.name))
		if found && v >= seconds(at)-1e-5 {
			freshness.Observe(time.Since(at).Seconds())
			return
		}
		if what.path == remoteWrite && !sleep(ctx, betweenWrites) {
			return
		}
	}
	if ctx.Err() != nil {
		return
	}
	p.lose(what, err)
}

// lose counts a probe that is lost, and says why if there is a reason and none was said just
// before.
func (p *Prober) lose(what probe, err error) {
	p.lost.WithLabelValues(what.tenant, what.path).Inc()
	p.mu.Lock()
	t := p.told[what]
	t.lost++
	lost, tell := t.lost, err != nil && time.Since(t.at) >= toldAgain
	if tell {
		t = told{at: time.Now()}
	}
	p.told[what] = t
	p.mu.Unlock()
	if tell {
		p.Logger.Warn("probes are lost: what applications send may be, too", "tenant", what.tenant, "path", what.path, "probes", lost, "error", err)
	}
}

// sleep reports whether the time has passed before ctx was done.
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

// seconds is a time as the value of a sample, exact to a microsecond.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// datagram sends as any client of DogStatsD would.
func (p *Prober) datagram(t Target, at time.Time) error {
	conn, err := net.Dial(t.Network, reachable(t))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(at.Add(interval)); err != nil { // the queue of a Unix socket may be full
		return err
	}
	_, err = fmt.Fprintf(conn, "%s:%.6f|g|#path:%s,prober:%s", Metric, seconds(at), dogstatsd, p.name)
	return err
}

// reachable is the address by which this machine reaches a socket that listens everywhere.
func reachable(t Target) string {
	host, port, err := net.SplitHostPort(t.Address)
	ip := net.ParseIP(host)
	switch {
	case t.Network != "udp" || err != nil || ip == nil || !ip.IsUnspecified():
		return t.Address
	case ip.To4() != nil:
		return net.JoinHostPort("127.0.0.1", port)
	}
	return net.JoinHostPort("::1", port)
}

// write hands a request of remote write to those who read them. It does not come over the
// network, where it would need a token, or a certificate.
func (p *Prober) write(ctx context.Context, at time.Time) error {
	request := prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: Metric}, {Name: "path", Value: remoteWrite}, {Name: "prober", Value: p.name}},
		Samples: []prompb.Sample{{Value: seconds(at), Timestamp: at.UnixMilli()}},
	}}}
	body, err := request.Marshal()
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/api/v1/write", bytes.NewReader(snappy.Encode(nil, body)))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	answer := recorded{header: http.Header{}, status: http.StatusOK}
	p.Write.ServeHTTP(&answer, r)
	if answer.status/100 != 2 {
		return fmt.Errorf("remote write: %d %s", answer.status, bytes.TrimSpace(answer.body.Bytes()))
	}
	return nil
}

// recorded is an answer.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) WriteHeader(status int)      { r.status = status }
func (r *recorded) Write(p []byte) (int, error) { return r.body.Write(p) }
