package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/lab/report"
)

// fairnessPart is the name of this part in the flag -only.
const fairnessPart = "fairness"

const (
	fairServers = 6

	oneTenant = "one"
	oneLimit  = 10_000 // samples a second that the tenant "one" may send
	oneTimes  = 20     // the tenant "one" tries to send this multiple of its limit

	// oneBatch is the size of Prometheus' requests, in samples. A refusal takes 0.1 ms of CPU, nearly
	// all of it for HTTP, and the sender takes as much. Usually the sender is on another machine. Here
	// it would dominate the cost if it sent a thousand smaller requests a second.
	oneBatch       = 2000
	oneConnections = 8 // most requests are refused at once; the rest take as long as those of other tenants

	fairSeries      = 40_000 // series of the other tenants together; the tenant "one" has as many
	fairBatch       = 200
	fairConnections = 16

	// fairWarmUp is the time until the tenant "one" has used up its burst. The burst is ten seconds of
	// its limit, so at 20 times the limit it lasts for 0.53 s.
	fairWarmUp = 700 * time.Millisecond
)

// fairPlan is the plan for one server.
type fairPlan struct {
	flatOut  time.Duration
	pairs    int
	half     time.Duration // length of half a pair, after its warm-up
	requests float64       // the least number of timed requests in a half
}

// standardFairness has many short pairs: other work on the machine spoils some of them, but not the
// median of 30. Each half has at least 2,000 requests, so its p99 depends on the 20 slowest.
func standardFairness() fairPlan {
	return fairPlan{flatOut: 2 * time.Second, pairs: 5, half: 1500 * time.Millisecond, requests: 2000}
}

// fairTenants returns the names of the other tenants.
func fairTenants() []string { return []string{"a", "b", "c", "d"} }

// fairnessSteps returns the steps of this part. Each measures some of the pairs.
func (l *lab) fairnessSteps() (steps []step) {
	part := &report.Fairness{Date: l.results.Date, Machine: l.results.Machine, Versions: l.ourVersion(),
		Tenants: len(fairTenants()), Batch: fairBatch, OneBatch: oneBatch, Limit: oneLimit, Times: oneTimes}
	l.results.Fairness = part
	plan := standardFairness()
	for server := range fairServers {
		steps = append(steps, step{
			what:  fmt.Sprintf("one tenant sends too much, server %d of %d", server+1, fairServers),
			takes: plan.flatOut + time.Duration(2*plan.pairs)*(fairWarmUp+plan.half) + 2*time.Second,
			do:    func(ctx context.Context) error { return l.fairServer(ctx, part, plan) },
		})
	}
	return steps
}

// fairServer starts one server, and measures there how long the other tenants wait while the tenant "one"
// sends too much, and while it sends nothing.
func (l *lab) fairServer(ctx context.Context, part *report.Fairness, plan fairPlan) error {
	settings := filepath.Join(l.dir, "fairness.yaml")
	text := fmt.Sprintf("http: {trust_tenant_header: true, allow_unknown_tenants: true}\ndistributor: {tenants: "+
		"{%s: {rate: %d}}}\n", oneTenant, oneLimit)
	if err := os.WriteFile(settings, []byte(text), 0o644); err != nil {
		return err
	}
	return l.withFreshet(ctx, "all", func(f *freshet) error {
		p, err := newFairness(f)
		if err != nil {
			return err
		}
		return p.measure(ctx, part, plan)
	}, "--config", settings)
}

// fairness is a server and its senders.
type fairness struct {
	*freshet
	others, one *loadgen.Writer

	acknowledged    uint64 // samples of the other tenants
	oneAcknowledged uint64
}

func newFairness(f *freshet) (p *fairness, err error) {
	p = &fairness{freshet: f}
	writer := func(c loadgen.WriterConfig, batch int) *loadgen.Writer {
		load := remoteload.Standard()
		load.Series, load.Batch = fairSeries, batch
		// The times of samples advance by 100 ms per round, and may be 10 minutes ahead of the clock.
		load.Interval, load.Begin = 100, time.Now().Add(-5*time.Minute).UnixMilli()
		traffic, errLoad := remoteload.New(load)
		c.URL = "http://" + f.HTTP + "/api/v1/write"
		w, errWriter := loadgen.NewWriter(c, traffic)
		err = errors.Join(err, errLoad, errWriter)
		return w
	}
	p.others = writer(loadgen.WriterConfig{Connections: fairConnections, Tenants: fairTenants()}, fairBatch)
	p.one = writer(loadgen.WriterConfig{Connections: oneConnections, Tenants: []string{oneTenant}, GoOn: true}, oneBatch)
	return p, err
}

// measure measures pairs. The order of the two halves alternates from pair to pair.
func (p *fairness) measure(ctx context.Context, part *report.Fairness, plan fairPlan) error {
	// The first round creates the series. The burst of the tenant "one" is large enough for its samples
	// in this round.
	first, err := p.one.Run(ctx, loadgen.WriterPace{Rounds: 1})
	p.oneAcknowledged += first.Written
	if err != nil {
		return err
	}
	if _, err := p.send(ctx, loadgen.WriterPace{Rounds: 1}); err != nil {
		return err
	}
	flatOut, err := p.send(ctx, loadgen.WriterPace{Duration: plan.flatOut})
	if err != nil {
		return err
	}
	capacity := float64(flatOut.Written) / flatOut.Elapsed.Seconds()
	part.Capacity = append(part.Capacity, capacity)
	rate := capacity / 2
	seconds := fairWarmUp.Seconds() + max(plan.half.Seconds(), plan.requests*fairBatch/rate)
	// A half ends after a number of rounds, not at a fixed time, so that late requests are sent, too.
	pace := loadgen.WriterPace{Rate: rate, Rounds: int(math.Ceil(rate * seconds / fairSeries)), WarmUp: fairWarmUp}
	// Turn off the lab's own garbage collection, which would delay the timed requests. A half makes
	// 16 MB of garbage.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for pair := range plan.pairs {
		for _, beside := range [][]bool{{false, true}, {true, false}}[pair%2] {
			runtime.GC()
			r, err := p.half(ctx, part, pace, beside)
			if err != nil {
				return err
			}
			to := &part.Alone
			if beside {
				to = &part.Beside
			}
			*to = append(*to, float64(r.FromDue.Quantile(.99).Microseconds())/1e3)
			part.Requests += r.FromDue.Count()
			part.SentAgain += r.Retries
		}
	}
	return p.check(ctx, part)
}

// half sends the load of the other tenants, alone or beside the load of the tenant "one".
func (p *fairness) half(ctx context.Context, part *report.Fairness, pace loadgen.WriterPace,
	beside bool) (r loadgen.WriterResult, err error) {
	group, ctx := errgroup.WithContext(ctx)
	if beside {
		takes := time.Duration(float64(pace.Rounds) * fairSeries / pace.Rate * 1e9)
		group.Go(func() error {
			first, err := p.one.Run(ctx, loadgen.WriterPace{Rate: oneTimes * oneLimit, Duration: fairWarmUp})
			p.oneAcknowledged += first.Written
			if err != nil {
				return err
			}
			sent, err := p.one.Run(ctx, loadgen.WriterPace{Rate: oneTimes * oneLimit, Duration: takes - fairWarmUp})
			part.Rate = append(part.Rate, float64(sent.Sent.Samples)/sent.Elapsed.Seconds())
			part.Sent += sent.Sent.Requests
			part.Refused += sent.GoneOn
			p.oneAcknowledged += sent.Written
			return err
		})
	}
	group.Go(func() (err error) {
		r, err = p.send(ctx, pace)
		return err
	})
	err = group.Wait()
	return r, err
}

// send sends the load of the other tenants.
func (p *fairness) send(ctx context.Context, pace loadgen.WriterPace) (loadgen.WriterResult, error) {
	r, err := p.others.Run(ctx, pace)
	p.acknowledged += r.Written
	if err == nil && r.Written != r.Sent.Samples {
		err = fmt.Errorf("sent %d samples, but only %d were acknowledged: %s", r.Sent.Samples, r.Written, r.Refused)
	}
	return r, err
}

// check compares the ledger with the acknowledged samples.
func (p *fairness) check(ctx context.Context, part *report.Fairness) error {
	part.Acknowledged += p.acknowledged
	for _, tenant := range fairTenants() {
		books, err := p.booksOf(ctx, tenant)
		if err != nil {
			return err
		}
		part.Stored += books.Samples.Stored
	}
	books, err := p.booksOf(ctx, oneTenant)
	if err == nil && books.Samples.Stored != p.oneAcknowledged {
		err = fmt.Errorf("the ledger has %d stored samples of the tenant that sends too much, but %d were acknowledged",
			books.Samples.Stored, p.oneAcknowledged)
	}
	return err
}
