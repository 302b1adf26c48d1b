// Package distributor admits samples. For each tenant it bounds the rate of samples, takes one copy of
// the samples of an HA pair, relabels series, hands the samples to the ingester, and counts their
// fates. adapter/receive reads the requests and answers them.
package distributor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/otlptranslator"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/hapair"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/metadata"
	"github.com/freshet-io/freshet/internal/core/otlp"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tenants"
	"github.com/freshet-io/freshet/internal/core/watermark"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/settings"
)

// Ingester writes requests.
type Ingester interface {
	// Push writes a request and sets its outcome: see package write.
	Push(ctx context.Context, r *write.Request) error
}

// Group takes requests into a log that all its members apply. It replaces the ingester and the
// aggregator.
type Group interface {
	Ingester
	// PushDeltas adds the values of a request to totals, and sets its outcome.
	PushDeltas(ctx context.Context, r *write.Request) error
}

// errWritten is the cause of a RetryError if the request was written, but must be sent again because a
// later step failed. The samples that are sent again are then repeats.
var errWritten = errors.New("it was written")

// RetryError asks the sender to send the same request again: the request was not written, its fate is
// not known, or a later step failed.
type RetryError struct {
	Cause  error
	Reason string        // as the label "reason" of metrics
	After  time.Duration // the shortest wait, with jitter, so that senders do not retry at the same time
}

func (e *RetryError) Error() string {
	after := e.After.Round(time.Millisecond)
	switch {
	case errors.Is(e.Cause, errWritten):
		return fmt.Sprintf("send it again in %v: %v", after, e.Cause)
	case errors.Is(e.Cause, member.ErrUnknown), errors.Is(e.Cause, batch.ErrUnsynced):
		return fmt.Sprintf("it may be written, in whole or in part; send it again in %v, and nothing counts twice: %v",
			after, e.Cause)
	}
	return fmt.Sprintf("nothing was written, send it again in %v: %v", after, e.Cause)
}
func (e *RetryError) Unwrap() error { return e.Cause }

// RetryAfter returns how long the sender should wait.
func (e *RetryError) RetryAfter() time.Duration { return e.After }

// The reasons of RetryErrors.
const (
	overRate    = "rate"
	unavailable = "unavailable"
	noMemory    = "memory"
)

const (
	// retryAfter is the shortest wait that an answer requests. Without it, senders would choose their
	// own wait, which is 30 ms at first for Prometheus.
	retryAfter = time.Second

	// patience bounds how long a request waits for a group. Senders do not wait longer: Prometheus
	// gives up after 30 s, and vmagent after a minute.
	patience = time.Minute

	// complaint is the interval at which the log repeats that requests cannot be written.
	complaint = 10 * time.Second
)

// Options are the parts of a distributor. All fields but Group, Tenants and Watermarks are required.
type Options struct {
	Config     settings.Distributor
	Ingester   Ingester // for samples that are stored as they are sent; unused if there is a group
	Tiles      Tiles
	Aggregator Aggregator    // for deltas; unused if there is a group
	Group      Group         // nil on one machine
	Cluster    bool          // the group has members in other processes
	Tenants    *tenants.Gate // admits tenants; nil in a group, whose log admits them
	Producer   uint64        // identifies this process to the aggregator, across restarts
	Backends   []Backend     // may be empty
	Metadata   *metadata.Store
	Watermarks *watermark.All // learns which senders send, for rules; nil without rules
	Ledger     *ledger.Ledger
	Lookback   time.Duration // of queries
	OutOfOrder time.Duration // a sample may be this much older than its tenant's newest: store.out_of_order
	Now        func() time.Time
	Registry   prometheus.Registerer
	Logger     *slog.Logger
}

// Distributor is safe for concurrent use.
type Distributor struct {
	Options
	metrics    *metrics
	terms      atomic.Pointer[terms]
	pairs      pairs
	buckets    sync.Map     // by tenant: *bucket
	requests   sync.Pool    // of *write.Request
	deltas     sync.Map     // by tenant: *deltas
	writers    sync.Pool    // of *batch.Writer
	complained atomic.Int64 // Unix ns
}

// terms is a configuration of a distributor. It never changes; a reload replaces it.
type terms struct {
	settings.Distributor
	write   write.Terms
	results write.Terms // of the results of rules: nothing is relabelled
	otlp    otlp.Settings
}

// New makes a distributor.
func New(o Options) *Distributor {
	d := &Distributor{Options: o, metrics: newMetrics(o.Registry)}
	d.requests.New = func() any { return new(write.Request) }
	d.writers.New = func() any { return new(batch.Writer) }
	d.Reload(o.Config)
	return d
}

// Reload puts another configuration in force for the requests that follow. The configuration must be
// valid.
func (d *Distributor) Reload(c settings.Distributor) {
	t := &terms{Distributor: c, otlp: otlpSettings(c.OTLP, d.Lookback)}
	t.write.Generation = 1
	if before := d.terms.Load(); before != nil {
		t.write.Generation = before.write.Generation + 1
	}
	t.write.Rules = labelrules.Rules{
		Limits:  labelrules.Limits{Labels: c.MaxLabels, NameBytes: c.MaxLabelName, ValueBytes: c.MaxLabelValue},
		Replica: c.HA.Replica,
	}
	t.results = t.write
	t.results.Rules.Replica = ""
	t.write.Rules.Relabel, _ = mapping.CompileRelabel(c.Relabel)
	d.terms.Store(t)
}

// otlpSettings translates a section of the configuration for core/otlp.
func otlpSettings(c settings.OTLP, lookback time.Duration) otlp.Settings {
	return otlp.Settings{
		Strategy: otlptranslator.TranslationStrategyOption(c.Translation), Promote: c.Promote,
		PromoteScope: c.PromoteScope, CustomBuckets: c.NativeHistograms, Lookback: lookback,
	}
}

// MaxBody returns the most bytes that a request may have, decompressed.
func (d *Distributor) MaxBody() int { return int(d.terms.Load().MaxBody) }

// OTLP returns the settings that decide how OTLP becomes series.
func (d *Distributor) OTLP() otlp.Settings { return d.terms.Load().otlp }

// Admit is called before a tenant's request is read. It refuses the request with a RetryError if the
// tenant is over its rate.
func (d *Distributor) Admit(tenant string) error {
	t := d.terms.Load()
	rate := t.Tenants[tenant].Rate.Or(t.Rate)
	if rate == 0 {
		return nil
	}
	if wait := d.bucket(tenant).wait(rate, d.Now()); wait > 0 {
		d.sentBack(tenant)
		return d.retry(overRate, wait,
			fmt.Errorf("the tenant sends more than the %d samples a second that distributor.rate allows", rate))
	}
	return nil
}

// Delayed returns how many requests of a tenant were refused because the tenant was over its rate.
func (d *Distributor) Delayed(tenant string) uint64 {
	if b, ok := d.buckets.Load(tenant); ok {
		return b.(*bucket).delays()
	}
	return 0
}

func (d *Distributor) bucket(tenant string) *bucket {
	if b, ok := d.buckets.Load(tenant); ok {
		return b.(*bucket)
	}
	b, _ := d.buckets.LoadOrStore(tenant, new(bucket))
	return b.(*bucket)
}

// retry makes a RetryError, and adds jitter to the wait.
func (d *Distributor) retry(reason string, after time.Duration, cause error) error {
	d.metrics.retries.WithLabelValues(reason).Inc()
	after = max(after, retryAfter)
	return &RetryError{Cause: cause, Reason: reason, After: after + rand.N(after)}
}

// Push writes a tenant's request and returns its outcome: see package write. Its errors are
// RetryErrors.
func (d *Distributor) Push(ctx context.Context, tenant string, r *write.Incoming) (outcome.Outcome, error) {
	return d.watched(ctx, tenant, r, d.push)
}

func (d *Distributor) push(ctx context.Context, tenant string, r *write.Incoming) (outcome.Outcome, error) {
	t := d.terms.Load()
	parts := r.Counts()
	stage.FromContext(ctx).Count(parts.Samples + parts.Histograms)
	if rate := t.Tenants[tenant].Rate.Or(t.Rate); rate > 0 {
		d.bucket(tenant).take(parts.Samples+parts.Histograms, rate, d.Now())
	}
	if len(r.Series) == 0 && !d.Tenants.Has(tenant) {
		return outcome.Outcome{}, nil // do not make a store for metadata alone; senders repeat it anyway
	}
	if err := d.Tenants.Enter(tenant); err != nil {
		return d.notAdmitted(tenant, r, err), nil
	}
	pair := t.pairOf(r)
	if pair != (write.Pair{}) && d.Group == nil && !d.elected(tenant, pair) {
		d.Tenants.Leave(tenant, false)
		return d.notElected(tenant, parts), nil
	}
	o, copies, err := d.write(ctx, t, tenant, r, pair)
	if err != nil {
		return outcome.Outcome{}, d.notPushed(tenant, parts, err)
	}
	if d.Group == nil && !o.NoTenant() { // in a group, the members keep the metadata and forward: see role/group
		d.Metadata.Families(tenant, r.Families) // the tenant exists now, if it did not before
		if err := d.forwardRequest(tenant, r); err != nil {
			d.complain(tenant, err)
			d.count(tenant, parts, copies, &o)
			return o, d.retry(unavailable, retryAfter,
				fmt.Errorf("%w, but not to the queue for backends: %w", errWritten, err))
		}
	}
	d.count(tenant, parts, copies, &o)
	return o, nil
}

// notAdmitted refuses a whole request of a tenant that is not admitted.
func (d *Distributor) notAdmitted(tenant string, r *write.Incoming, cause error) outcome.Outcome {
	w := write.Request{Request: &r.Request, Tenant: tenant}
	w.RefuseAll(outcome.TooManyTenants, cause)
	d.count(tenant, r.Counts(), outcome.Counts{}, &w.Outcome)
	return w.Outcome
}

// notPushed posts the unwritten parts of a request in the books, and returns the RetryError for the
// sender.
func (d *Distributor) notPushed(tenant string, parts outcome.Counts, cause error) error {
	d.complain(tenant, cause)
	d.Ledger.Post(tenant, received(parts), ledger.Transfer{
		From: ledger.Received, To: ledger.Refused, Reason: unavailable, Samples: samples(parts),
	})
	return d.retry(unavailable, retryAfter, cause)
}

// write hands a request to the ingester or the group, with the terms that apply to the request. It also
// ends the work that Enter began, and returns the outcome and the request's Copies.
func (d *Distributor) write(
	ctx context.Context, t *terms, tenant string, r *write.Incoming, pair write.Pair,
) (outcome.Outcome, outcome.Counts, error) {
	w := d.requests.Get().(*write.Request)
	defer func() {
		clear(w.Described)
		d.requests.Put(w)
	}()
	described := w.Described[:0]
	*w = d.requestOf(t, tenant, r, pair)
	w.Described = described
	err := d.pushTo(ctx, w)
	d.Tenants.Leave(tenant, w.Begun)
	if err != nil {
		return outcome.Outcome{}, outcome.Counts{}, err
	}
	for _, x := range w.Described {
		d.Metadata.Series(tenant, x.Metric, &r.Request, x.Metadata)
	}
	return w.Outcome, w.Copies, nil
}

func (d *Distributor) pushTo(ctx context.Context, w *write.Request) error {
	if d.Group == nil {
		return d.Ingester.Push(ctx, w) // the ingester bounds the wait itself
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return d.Group.Push(ctx, w)
}

func (d *Distributor) requestOf(t *terms, tenant string, r *write.Incoming, pair write.Pair) write.Request {
	terms := &t.write
	if r.Results {
		terms = &t.results
	}
	return write.Request{
		Request: &r.Request, Tenant: tenant, Sender: r.Sender, Terms: terms, Results: r.Results,
		Arrival: d.Now().UnixMilli(), Window: d.OutOfOrder,
		MaxSeries:  t.Tenants[tenant].MaxSeries.Or(t.MaxSeries),
		Compressed: r.Compressed, Hash: r.Hash, Pair: pair, Offer: r.Offer,
	}
}

// pairs has the elections of all HA pairs.
type pairs struct {
	mu sync.Mutex
	hapair.Pairs
}

func (p *pairs) accept(tenant, cluster, replica string, now time.Time, timeout time.Duration) (taken, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Accept(tenant, cluster, replica, now.UnixMilli(), timeout.Milliseconds())
}

// pairOf returns the place of a request's sender in an HA pair. It looks only at the first series,
// because a server gives the same cluster and replica to all its series.
func (t *terms) pairOf(r *write.Incoming) (p write.Pair) {
	if t.HA.Replica == "" || len(r.Series) == 0 || r.Results {
		return p
	}
	all, err := r.Labels(nil, &r.Series[0])
	if err != nil {
		return p // the series is later refused because of its labels
	}
	p.Timeout = t.HA.Timeout
	for _, l := range all {
		switch string(l.Name) {
		case t.HA.Cluster:
			p.Cluster = string(l.Value)
		case t.HA.Replica:
			p.Replica = string(l.Value)
		}
	}
	if p.Cluster == "" || p.Replica == "" {
		return write.Pair{}
	}
	return p
}

// elected reports whether the sender of a request is the elected server of its pair.
func (d *Distributor) elected(tenant string, p write.Pair) bool {
	taken, changed := d.pairs.accept(tenant, p.Cluster, p.Replica, d.Now(), p.Timeout)
	if changed {
		d.Elected(tenant, p.Cluster, p.Replica)
	}
	return taken
}

// Elected notes that another server of an HA pair is elected. A group calls this method, because the
// group's log decides the elections.
func (d *Distributor) Elected(tenant, cluster, replica string) {
	d.metrics.elections.Inc()
	d.Logger.Info("another server of an HA pair is elected", "tenant", tenant, "cluster", cluster, "replica", replica)
}

// notElected drops a request of an HA pair whose sender is not the elected server.
func (d *Distributor) notElected(tenant string, parts outcome.Counts) outcome.Outcome {
	d.metrics.dropped.WithLabelValues(droppedReplica).Add(float64(samples(parts)))
	d.Ledger.Post(tenant, received(parts), ledger.Transfer{
		From: ledger.Received, To: ledger.Refused, Reason: droppedReplica, Samples: samples(parts),
	})
	return outcome.Outcome{Dropped: parts}
}

// Reasons for which samples are dropped, as metrics and the ledger spell them.
const (
	droppedRule    = "rule"    // of distributor.relabel
	droppedReplica = "replica" // sent by a server of an HA pair that is not elected
)

func samples(c outcome.Counts) uint64 { return uint64(c.Samples + c.Histograms) }

func received(parts outcome.Counts) ledger.Transfer {
	return ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: samples(parts)}
}

// count puts the outcome of a request into books and metrics. `copies` are write.Request.Copies.
func (d *Distributor) count(tenant string, parts, copies outcome.Counts, o *outcome.Outcome) {
	byRule, byPair := samples(o.Dropped)-samples(copies), samples(copies)
	transfers := make([]ledger.Transfer, 0, 5)
	transfers = append(transfers, received(parts),
		ledger.Transfer{From: ledger.Received, To: ledger.Stored, Samples: samples(o.Written)},
		ledger.Transfer{From: ledger.Received, To: ledger.Refused, Reason: droppedRule, Samples: byRule})
	if byPair > 0 {
		transfers = append(transfers,
			ledger.Transfer{From: ledger.Received, To: ledger.Refused, Reason: droppedReplica, Samples: byPair})
	}
	d.metrics.written.Add(float64(samples(o.Written)))
	d.metrics.exemplars.Add(float64(o.Written.Exemplars))
	d.metrics.dropped.WithLabelValues(droppedRule).Add(float64(byRule))
	d.metrics.dropped.WithLabelValues(droppedReplica).Add(float64(byPair))
	d.metrics.notKept.Add(float64(o.NotKept))
	if o.AnyRefused() {
		for reason, refused := range o.Refused {
			if refused.Total() > 0 {
				name := outcome.Reason(reason).String()
				transfers = append(transfers, ledger.Transfer{
					From: ledger.Received, To: ledger.Refused, Reason: name, Samples: samples(refused),
				})
				d.metrics.refused.WithLabelValues(name).Add(float64(refused.Total()))
			}
		}
	}
	d.Ledger.Post(tenant, transfers...)
}

// Refused counts parts of a request that were refused before Push.
func (d *Distributor) Refused(tenant string, o *outcome.Outcome) {
	d.count(tenant, o.AllRefused(), outcome.Counts{}, o)
}

// Malformed posts a request that could not be read, as one malformed sample.
func (d *Distributor) Malformed(tenant, reason string) {
	d.Ledger.Post(tenant,
		ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: 1},
		ledger.Transfer{From: ledger.Received, To: ledger.Malformed, Reason: reason, Samples: 1})
}

// complain logs why requests cannot be written, at most once in each interval of length `complaint`.
func (d *Distributor) complain(tenant string, err error) {
	now := d.Now().UnixNano()
	last := d.complained.Load()
	if now-last >= int64(complaint) && d.complained.CompareAndSwap(last, now) {
		d.Logger.Error("requests cannot be written; senders are asked to send them again", "tenant", tenant, "error", err)
	}
}

var errNoMemory = errors.New("the requests under way take all the memory that distributor.max_memory allows")

// NoMemory returns the error for a request for which there is no memory.
func (d *Distributor) NoMemory(tenant string) error {
	d.sentBack(tenant)
	return d.retry(noMemory, retryAfter, errNoMemory)
}
