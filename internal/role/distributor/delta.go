package distributor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/delta"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/write"
)

// Aggregator adds increments to totals.
type Aggregator interface {
	// Push adds the batches of a request: see package batch.
	Push(ctx context.Context, batches []batch.Batch) error
	// Kinds returns, for each key of series.AppendKey, the kind of the tenant's total with the
	// labels of the key. This kind may differ from the kind in the key, and is 0 if no total has
	// these labels. Kinds is called once for a request.
	Kinds(ctx context.Context, tenant string, keys [][]byte) ([]series.Kind, error)
	// TenantSeries returns how many series of a tenant have totals.
	TenantSeries(ctx context.Context, tenant string) (int, error)
}

const (
	// deltaPatience bounds how long a request waits until it is journalled. The wait is longer than
	// usual while the stores do not keep up.
	deltaPatience = 10 * time.Second

	// recount is the interval at which a tenant's series are counted for
	// distributor.max_series.
	recount = time.Second
)

// deltas makes a tenant look like one producer to the aggregator. The aggregator takes the batches of
// a producer in the order of their sequence numbers, so a tenant's requests are counted one after the
// other.
type deltas struct {
	mu          sync.Mutex
	incarnation uint64
	sequence    uint64
	series      int       // how many series the tenant had when they were last counted, plus those added since
	counted     time.Time // when series was last counted; zero before the first time
}

// PushDeltas does for deltas what Push does for other values: it adds them to totals. Each value has
// the time up to which its sender counted: see otlp.Convert.
func (d *Distributor) PushDeltas(ctx context.Context, tenant string, r *write.Incoming) (outcome.Outcome, error) {
	return d.watched(ctx, tenant, r, d.pushDeltas)
}

func (d *Distributor) pushDeltas(ctx context.Context, tenant string, r *write.Incoming) (outcome.Outcome, error) {
	t := d.terms.Load()
	parts := r.Counts()
	trip := stage.FromContext(ctx)
	trip.Count(parts.Samples + parts.Histograms)
	if rate := t.Tenants[tenant].Rate.Or(t.Rate); rate > 0 {
		d.bucket(tenant).take(parts.Samples+parts.Histograms, rate, d.Now())
	}
	pair := t.pairOf(r)
	if d.Group != nil {
		return d.pushToGroup(ctx, t, tenant, r, pair)
	}
	if err := d.Tenants.Enter(tenant); err != nil {
		return d.notAdmitted(tenant, r, err), nil
	}
	defer d.Tenants.Leave(tenant, false) // the aggregator admits the tenant when the journal has its deltas
	if pair != (write.Pair{}) && !d.elected(tenant, pair) {
		return d.notElected(tenant, parts), nil
	}
	of := d.lockDeltas(tenant)
	defer d.unlockDeltas(tenant, of)
	if ctx.Err() != nil {
		return outcome.Outcome{}, d.notPushed(tenant, parts,
			fmt.Errorf("wait until earlier requests are counted: %w", context.Cause(ctx)))
	}
	now := d.Now()
	trip.Enter(stage.Distribute, now) // for the second time if the rest of the request was written before
	w := d.requestOf(t, tenant, r, pair)
	increments, err := d.resolve(ctx, &w, of, now)
	if err != nil {
		return outcome.Outcome{}, d.notPushed(tenant, parts, err)
	}
	o := w.Outcome
	err = d.pushIncrements(ctx, tenant, of, increments, samples(o.Written), now)
	if err != nil {
		rest := samples(parts) - samples(o.Written) // the written samples are in the books already
		return outcome.Outcome{}, d.notPushed(tenant, outcome.Counts{Samples: int(rest)}, err)
	}
	if d.Tenants.Has(tenant) {
		d.Metadata.Families(tenant, r.Families)
	}
	rest := o
	rest.Written = outcome.Counts{} // the aggregator has posted the written samples
	d.metrics.written.Add(float64(samples(o.Written)))
	all := rest.AllRefused()
	all.Add(rest.Dropped)
	d.count(tenant, all, outcome.Counts{}, &rest)
	return o, nil
}

// pushToGroup is PushDeltas for a group. Its members decide in the order of the log, so the tenant's
// requests need not wait for each other.
func (d *Distributor) pushToGroup(
	ctx context.Context, t *terms, tenant string, r *write.Incoming, pair write.Pair,
) (outcome.Outcome, error) {
	stage.FromContext(ctx).Enter(stage.Distribute, d.Now()) // for the second time if the rest was written before
	w := d.requestOf(t, tenant, r, pair)
	ctx, cancel := context.WithTimeout(ctx, deltaPatience)
	defer cancel()
	if err := d.Group.PushDeltas(ctx, &w); err != nil {
		return outcome.Outcome{}, d.notPushed(tenant, r.Counts(), err)
	}
	// The group moves the written samples out of the ledger's state Window, perhaps earlier than this
	// transfer. In a cluster, each member posts these samples as collected.
	written, to := w.Outcome.Written, ledger.Window
	if d.Cluster {
		to = ledger.HandedOver
	}
	d.Ledger.Post(tenant, received(written), ledger.Transfer{From: ledger.Received, To: to, Samples: samples(written)})
	rest := w.Outcome
	rest.Written = outcome.Counts{}
	d.metrics.written.Add(float64(samples(written)))
	all := rest.AllRefused()
	all.Add(rest.Dropped)
	d.count(tenant, all, w.Copies, &rest)
	return w.Outcome, nil
}

// lockDeltas waits until no other request of a tenant is being counted.
func (d *Distributor) lockDeltas(tenant string) *deltas {
	for {
		of, ok := d.deltas.Load(tenant)
		if !ok {
			of, _ = d.deltas.LoadOrStore(tenant, &deltas{incarnation: rand.Uint64()})
		}
		locked := of.(*deltas)
		locked.mu.Lock()
		if now, _ := d.deltas.Load(tenant); now == of {
			return locked
		}
		locked.mu.Unlock() // unlockDeltas has deleted it meanwhile
	}
}

// unlockDeltas lets the tenant's next request be counted. It deletes the deltas of a tenant for which
// nothing was ever stored.
func (d *Distributor) unlockDeltas(tenant string, of *deltas) {
	if !d.Tenants.Has(tenant) {
		d.deltas.Delete(tenant)
	}
	of.mu.Unlock()
}

// resolve turns a request into increments. It sets the outcome of all series. Its errors come from the
// aggregator.
func (d *Distributor) resolve(
	ctx context.Context, w *write.Request, of *deltas, now time.Time,
) ([]delta.Increment, error) {
	ctx, cancel := context.WithTimeout(ctx, deltaPatience)
	defer cancel()
	if of.counted.IsZero() || now.Sub(of.counted) >= recount {
		n, err := d.Aggregator.TenantSeries(ctx, w.Tenant)
		if err != nil {
			return nil, fmt.Errorf("count the series that have totals: %w", err)
		}
		of.series, of.counted = n, now
	}
	resolved := delta.Resolve(w)
	kinds, err := d.Aggregator.Kinds(ctx, w.Tenant, resolved.Keys())
	if err != nil {
		return nil, fmt.Errorf("find the series that have totals: %w", err)
	}
	of.series += resolved.Count(kinds, of.series)
	for _, x := range resolved.New {
		d.Tiles.NewTotal(w.Tenant, x.Labels, w.Sender, x.Refused)
	}
	return resolved.Increments, nil
}

// pushIncrements hands increments to the aggregator. Before that, it posts the samples of the
// increments in the books.
func (d *Distributor) pushIncrements(
	ctx context.Context, tenant string, of *deltas, all []delta.Increment, stood uint64, now time.Time,
) error {
	if len(all) == 0 {
		return nil
	}
	w := d.writers.Get().(*batch.Writer)
	defer d.writers.Put(w)
	of.sequence++
	w.Begin(batch.Header{
		Tenant: []byte(tenant), Producer: d.Producer, Incarnation: of.incarnation, Sequence: of.sequence,
		Second: now.Unix(), Birth: now.UnixNano(),
	})
	for i := range all {
		w.Add(all[i].Shard, &all[i].Increment)
	}
	// If a push is given up while the aggregator holds it, its samples count at once, perhaps in
	// another tile. So the push continues even if the sender of the request disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deltaPatience)
	defer cancel()
	d.Ledger.Post(tenant, received(outcome.Counts{Samples: int(stood)}),
		ledger.Transfer{From: ledger.Received, To: ledger.Window, Samples: stood})
	stage.FromContext(ctx).Pass(stage.Distribute, stage.Forward, d.Now())
	err := d.Aggregator.Push(ctx, w.End())
	if err != nil && !errors.Is(err, batch.ErrUnsynced) {
		d.Ledger.Post(tenant, ledger.Transfer{From: ledger.Window, To: ledger.Refused, Reason: unavailable, Samples: stood})
	}
	return err
}
