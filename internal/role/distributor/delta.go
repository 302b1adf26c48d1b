package distributor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/write"
)

// Aggregator counts increments of totals.
type Aggregator interface {
	// Push counts the batches of a request: see package batch.
	Push(ctx context.Context, batches []batch.Batch) error
	// Kinds returns, for each key of series.AppendKey, the kind of the tenant's total with the
	// key's labels. That may be another kind than the key's. The kind is 0 if no total has these
	// labels. Kinds is called once for a request.
	Kinds(ctx context.Context, tenant string, keys [][]byte) ([]series.Kind, error)
	// TenantSeries returns how many series of a tenant have totals.
	TenantSeries(ctx context.Context, tenant string) (int, error)
}

const (
	// deltaPatience bounds how long a request waits to be journalled. The wait is longer than usual
	// while the stores do not keep up.
	deltaPatience = 10 * time.Second

	// recount is the interval at which a tenant's series are counted for
	// distributor.max_series.
	recount = time.Second
)

// deltas makes a tenant one producer to the aggregator. The aggregator takes the batches of a
// producer in the order of their sequence, so the tenant's requests are counted one after the
// other.
type deltas struct {
	mu          sync.Mutex
	incarnation uint64
	sequence    uint64
	series      int       // of the tenant when last counted, plus the series added since
	counted     time.Time // when series was last counted; zero before the first time
}

// increment is a value to be added to a total.
type increment struct {
	batch.Increment
	shard uint16
}

// PushDeltas is Push for values that are added to totals. Each value has the time up to which its
// sender counted: see otlp.Convert.
func (d *Distributor) PushDeltas(ctx context.Context, tenant string, r *write.Incoming) (outcome.Outcome, error) {
	t := d.terms.Load()
	parts := r.Counts()
	trip := stage.FromContext(ctx)
	trip.Count(parts.Samples + parts.Histograms)
	if rate := t.Tenants[tenant].Rate.Or(t.Rate); rate > 0 {
		d.bucket(tenant).take(parts.Samples+parts.Histograms, rate, d.Now())
	}
	if t.HA.Replica != "" && !d.elected(t, tenant, r) {
		return d.notElected(tenant, parts), nil
	}
	of := d.deltasOf(tenant)
	of.mu.Lock()
	defer of.mu.Unlock()
	if ctx.Err() != nil {
		return outcome.Outcome{}, d.notPushed(tenant, parts,
			fmt.Errorf("wait for the requests before it to be counted: %w", context.Cause(ctx)))
	}
	now := d.Now()
	trip.Enter(stage.Distribute, now) // for the second time if the rest of the request was written before
	c := collecting{
		distributor: d, of: of, terms: t, now: now,
		request: write.Request{Request: &r.Request, Tenant: tenant, Sender: r.Sender},
	}
	if err := c.collect(ctx); err != nil {
		return outcome.Outcome{}, d.notPushed(tenant, parts, err)
	}
	o := c.request.Outcome
	err := d.pushIncrements(ctx, tenant, of, merge(c.increments), samples(o.Written), now)
	if err != nil {
		rest := samples(parts) - samples(o.Written) // the written samples are in the books already
		return outcome.Outcome{}, d.notPushed(tenant, outcome.Counts{Samples: int(rest)}, err)
	}
	d.Metadata.Families(tenant, r.Families)
	rest := o
	rest.Written = outcome.Counts{} // the aggregator has put these into the books
	d.metrics.written.Add(float64(samples(o.Written)))
	all := rest.AllRefused()
	all.Add(rest.Dropped)
	d.count(tenant, all, &rest)
	return o, nil
}

func (d *Distributor) deltasOf(tenant string) *deltas {
	if of, ok := d.deltas.Load(tenant); ok {
		return of.(*deltas)
	}
	of, _ := d.deltas.LoadOrStore(tenant, &deltas{incarnation: rand.Uint64()})
	return of.(*deltas)
}

// pushIncrements hands increments to the aggregator. It first puts the samples that the increments
// stand for into the books.
func (d *Distributor) pushIncrements(
	ctx context.Context, tenant string, of *deltas, all []increment, stood uint64, now time.Time,
) error {
	if len(all) == 0 {
		return nil
	}
	// The intervals of a series must go in order of time: the aggregator would take an earlier
	// interval after a later one for a repeat.
	slices.SortStableFunc(all, func(a, b increment) int { return cmp.Compare(a.Delta, b.Delta) })
	w := d.writers.Get().(*batch.Writer)
	defer d.writers.Put(w)
	of.sequence++
	w.Begin(batch.Header{
		Tenant: []byte(tenant), Producer: d.Producer, Incarnation: of.incarnation, Sequence: of.sequence,
		Second: now.Unix(), Birth: now.UnixNano(),
	})
	for i := range all {
		w.Add(all[i].shard, &all[i].Increment)
	}
	// If a push is given up while the aggregator holds it, its samples count at once, perhaps in
	// another tile. So the push goes on even if its sender leaves.
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

// collecting turns a request into increments.
type collecting struct {
	distributor *Distributor
	of          *deltas
	terms       *terms
	request     write.Request
	now         time.Time
	added       map[string]byte // kinds of new series, by the rest of their key
	increments  []increment
}

// keyed is a series of the request with its labels after relabelling.
type keyed struct {
	sent    *remotewrite.Series
	labels  labels.Labels // empty if a rule drops the series
	key     []byte        // of its total; nil if the series is dropped or refused
	refusal *outcome.Refusal
}

// collect makes the increments. Afterwards each series has its outcome. An error comes from the
// aggregator.
func (c *collecting) collect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deltaPatience)
	defer cancel()
	aggregator := c.distributor.Aggregator
	if c.of.counted.IsZero() || c.now.Sub(c.of.counted) >= recount {
		n, err := aggregator.TenantSeries(ctx, c.request.Tenant)
		if err != nil {
			return fmt.Errorf("count the series that have totals: %w", err)
		}
		c.of.series, c.of.counted = n, c.now
	}
	all, keys := make([]keyed, len(c.request.Series)), make([][]byte, 0, len(c.request.Series))
	for i := range all {
		if all[i] = c.resolve(&c.request.Series[i]); all[i].key != nil {
			keys = append(keys, all[i].key)
		}
	}
	kinds, err := aggregator.Kinds(ctx, c.request.Tenant, keys)
	if err != nil {
		return fmt.Errorf("find the series that have totals: %w", err)
	}
	for i := range all {
		s := &all[i]
		parts := c.request.Parts(s.sent)
		parts.Exemplars = 0 // totals have no exemplars
		switch {
		case s.refusal != nil:
			c.refuse(s, s.refusal.Reason, parts, s.refusal.Cause)
		case s.key == nil:
			c.request.Outcome.Dropped.Add(parts)
		default:
			if refusal := c.admit(s, kinds[0]); refusal != nil {
				c.refuse(s, refusal.Reason, parts, refusal.Cause)
			} else {
				c.add(s)
			}
			kinds = kinds[1:]
		}
	}
	return nil
}

// resolve finds the key of a series.
func (c *collecting) resolve(sent *remotewrite.Series) keyed {
	ls, refusal := c.terms.write.Rules.Resolve(c.request.Request, sent) // PushDeltas notes the metadata, by family
	s := keyed{sent: sent, labels: ls, refusal: refusal}
	if refusal != nil || ls.IsEmpty() {
		return s
	}
	kind := series.Counter
	switch {
	case len(c.request.Histograms(sent)) > 0:
		kind = series.Timer
	case sent.Metadata.Type == remotewrite.GaugeType:
		kind = series.UpDown
	}
	s.key = series.AppendKey(nil, kind, ls)
	return s
}

// add makes the increments of one series.
func (c *collecting) add(s *keyed) {
	shard := series.Shard(c.request.Tenant, s.key)
	add := func(inc batch.Increment, part outcome.Counts, t int64) {
		if t < 1 {
			c.refuse(s, outcome.TooOld, part, errors.New("its time is in the first millisecond of 1970, or before"))
			return
		}
		if latest := c.now.Add(write.MaxAhead).UnixMilli(); t > latest {
			c.refuse(s, outcome.TooFarAhead, part, fmt.Errorf("its time %s is more than %v ahead of the clock here",
				time.UnixMilli(t).UTC().Format(time.RFC3339), write.MaxAhead))
			return
		}
		inc.Key, inc.Samples, inc.Delta = s.key, 1, t
		c.increments = append(c.increments, increment{inc, shard})
		c.request.Outcome.Written.Add(part)
	}
	for _, x := range c.request.Samples(s.sent) {
		add(batch.Increment{Value: x.Value}, outcome.Counts{Samples: 1}, x.Time)
	}
	histograms := c.request.Histograms(s.sent)
	for i := range histograms {
		part := outcome.Counts{Histograms: 1}
		timer, err := timerOf(&histograms[i])
		if err != nil {
			c.refuse(s, outcome.BadHistogram, part, err)
			continue
		}
		policy := series.DefaultPolicy
		policy.Schema = timer.Schema
		add(batch.Increment{Timer: timer, Policy: series.AppendPolicy(nil, &policy)}, part, histograms[i].Time)
	}
}

func (c *collecting) refuse(s *keyed, reason outcome.Reason, parts outcome.Counts, cause error) {
	c.request.Refuse(s.sent, reason, parts, cause)
}

// admit refuses a new series if a total of another kind has its labels, or if the tenant already
// has as many series as allowed. held is the kind of the total that has these labels, 0 if there is
// none.
func (c *collecting) admit(s *keyed, held series.Kind) *outcome.Refusal {
	if byte(held) == s.key[0] {
		return nil
	}
	// A key is a kind, then the labels. Stores see only the labels.
	if kind, added := c.added[string(s.key[1:])]; added && kind == s.key[0] {
		return nil
	} else if added {
		return kindConflict(kind)
	}
	if held != 0 {
		return kindConflict(byte(held))
	}
	tenant, from := c.request.Tenant, c.request.Sender
	if limit := c.terms.Tenants[tenant].MaxSeries.Or(c.terms.MaxSeries); limit > 0 && c.of.series >= limit {
		c.distributor.Tiles.NewTotal(tenant, s.labels, from, true)
		return &outcome.Refusal{Reason: outcome.TooManySeries, Cause: fmt.Errorf(
			"the tenant has %d series with totals of deltas or DogStatsD in memory, and distributor.max_series allows %d; "+
				"samples of known series are still accepted", c.of.series, limit)}
	}
	if c.added == nil {
		c.added = map[string]byte{}
	}
	c.added[string(s.key[1:])] = s.key[0]
	c.of.series++
	c.distributor.Tiles.NewTotal(tenant, s.labels, from, false)
	return nil
}

func kindConflict(kind byte) *outcome.Refusal {
	return &outcome.Refusal{Reason: outcome.Mixed, Cause: fmt.Errorf(
		"another metric with this name and these labels is a %v here already; "+
			"give one of them another name", series.Kind(kind))}
}

// merge adds up increments of one series at one time: from two scopes, or from two series that
// relabelling merged. Otherwise the aggregator would take all but the first for repeats.
func merge(all []increment) []increment {
	type at struct {
		key   string
		delta int64
	}
	first := make(map[at]int, len(all))
	merged := all[:0]
	for _, inc := range all {
		k := at{string(inc.Key), inc.Delta}
		i, again := first[k]
		if !again {
			first[k] = len(merged)
			merged = append(merged, inc)
			continue
		}
		to := &merged[i].Increment
		to.Samples += inc.Samples
		to.Value += inc.Value
		if to.Timer != nil {
			to.Timer.Merge(inc.Timer, int(series.DefaultPolicy.MaxBuckets))
		}
	}
	return merged
}

// timerOf converts a native histogram to a histogram of integers, which tiles can add up.
func timerOf(h *remotewrite.Histogram) (*histogram.Exponential, error) {
	if h.Schema < histogram.MinSchema || h.Schema > histogram.MaxSchema {
		return nil, fmt.Errorf("its schema is %d, and deltas can be added up in schemas %d to %d",
			h.Schema, histogram.MinSchema, histogram.MaxSchema)
	}
	timer := &histogram.Exponential{
		Schema: int8(h.Schema), Count: float64(h.Count.Integer), Zero: float64(h.ZeroCount.Integer),
	}
	if !math.IsNaN(h.Sum) && !math.IsInf(h.Sum, 0) {
		timer.Sum = h.Sum
	}
	var positive, negative float64
	var err error
	if timer.Positive, positive, err = bucketsOf(h.PositiveSpans, h.PositiveDeltas); err == nil {
		timer.Negative, negative, err = bucketsOf(h.NegativeSpans, h.NegativeDeltas)
	}
	if in := positive + negative + timer.Zero; err == nil && in != timer.Count {
		err = fmt.Errorf("its count is %v, and its buckets have %v", timer.Count, in)
	}
	return timer, err
}

func bucketsOf(spans []remotewrite.Span, deltas []int64) (b histogram.Buckets, sum float64, err error) {
	index, count := int64(0), int64(0)
	for _, s := range spans {
		index += int64(s.Offset)
		for range s.Length {
			if len(deltas) == 0 {
				return b, 0, errors.New("it has fewer buckets than it says")
			}
			if count, deltas = count+deltas[0], deltas[1:]; count < 0 {
				return b, 0, fmt.Errorf("its bucket %d has a negative count, or 2^63 and more", index)
			}
			if count > 0 {
				if index < -histogram.MaxIndex || index > histogram.MaxIndex {
					return b, 0, fmt.Errorf("its bucket %d lies beyond the largest number", index)
				}
				b.Index, b.Count = append(b.Index, int32(index)), append(b.Count, float64(count))
				sum += float64(count)
			}
			index++
		}
	}
	return b, sum, nil
}
