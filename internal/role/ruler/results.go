package ruler

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/buf"
)

// results gives Prometheus' rules a storage to write to: the distributor.
type results struct {
	distributor Distributor
	tenant      string
}

// Appender implements storage.Appendable.
func (r results) Appender(ctx context.Context) storage.Appender {
	// A result that was computed is written even if the ruler stops meanwhile.
	return &appender{of: r, ctx: context.WithoutCancel(ctx)}
}

// appender collects the results of one evaluation of one rule. Commit returns when queries see them,
// because the next rule of the group may read them.
type appender struct {
	storage.Appender // nil: rules call no other methods

	of      results
	ctx     context.Context
	results request
	ended   request // stale markers of series that the rule no longer returns
}

// Append implements storage.Appender.
func (a *appender) Append(_ storage.SeriesRef, ls labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	to := &a.results
	if value.IsStaleNaN(v) {
		to = &a.ended
	}
	return 0, to.series(ls, func(b *remotewrite.Builder) { b.Sample(remotewrite.Sample{Time: t, Value: v}) })
}

// SetOptions implements storage.Appender. The options would refuse results in the past.
func (*appender) SetOptions(*storage.AppendOptions) {}

// AppendHistogram implements storage.Appender. Results of PromQL have float counts.
func (a *appender) AppendHistogram(
	_ storage.SeriesRef, ls labels.Labels, t int64, _ *histogram.Histogram, h *histogram.FloatHistogram,
) (storage.SeriesRef, error) {
	return 0, a.results.series(ls, func(b *remotewrite.Builder) { b.Histogram(histogramOf(h, t)) })
}

// Commit implements storage.Appender. A refused result is an error, which the rule's health shows. A
// refused stale marker is none: another rule may return the same series.
func (a *appender) Commit() error {
	refused, err := a.push(&a.results)
	if err != nil {
		a.ended.release()
		return err
	}
	if _, err := a.push(&a.ended); err != nil {
		return err
	}
	if refused.AnyRefused() {
		return errors.New(refused.Text())
	}
	return nil
}

// Rollback implements storage.Appender.
func (a *appender) Rollback() error {
	a.results.release()
	a.ended.release()
	return nil
}

// Patience with a store that cannot take results at the moment.
const (
	pushPause    = 100 * time.Millisecond
	pushPatience = 10 * time.Second
)

// push writes a request. A slot of a recording that is not written leaves a hole, so push tries again for
// some seconds.
func (a *appender) push(r *request) (o outcome.Outcome, err error) {
	if r.body == nil {
		return o, nil
	}
	defer r.release()
	r.builder.Finish()
	r.body.B = r.builder.Body
	for waited := time.Duration(0); ; waited += pushPause {
		if o, err = a.of.distributor.Push(a.ctx, a.of.tenant, r.incoming); err == nil || waited >= pushPatience {
			return o, err
		}
		time.Sleep(pushPause)
	}
}

// request is a request that is being built. It is zero before its first series.
type request struct {
	incoming *write.Incoming
	body     *buf.Buf
	builder  remotewrite.Builder
}

// series adds a series, with the sample that `add` adds.
func (r *request) series(ls labels.Labels, add func(*remotewrite.Builder)) (err error) {
	if r.body == nil {
		r.incoming, r.body = &write.Incoming{Results: true}, buf.Get()
		r.builder.Begin(&r.incoming.Request, r.body.B)
	}
	r.builder.Series()
	ls.Range(func(l labels.Label) {
		if !r.builder.Label(l.Name, l.Value) {
			err = remotewrite.ErrTooLargeToBuild
		}
	})
	if err == nil {
		add(&r.builder)
	}
	return err
}

func (r *request) release() {
	if r.body != nil {
		r.body.Release()
		*r = request{}
	}
}

func histogramOf(h *histogram.FloatHistogram, t int64) remotewrite.Histogram {
	count := func(n float64) remotewrite.Count {
		return remotewrite.Count{Form: remotewrite.FloatCount, Float: n}
	}
	return remotewrite.Histogram{
		Count: count(h.Count), ZeroCount: count(h.ZeroCount), Sum: h.Sum, Schema: h.Schema, ZeroThreshold: h.ZeroThreshold,
		PositiveSpans: spansOf(h.PositiveSpans), PositiveCounts: h.PositiveBuckets,
		NegativeSpans: spansOf(h.NegativeSpans), NegativeCounts: h.NegativeBuckets,
		ResetHint: remotewrite.ResetHint(h.CounterResetHint), CustomValues: h.CustomValues, Time: t,
	}
}

func spansOf(all []histogram.Span) (out []remotewrite.Span) {
	for _, s := range all {
		out = append(out, remotewrite.Span{Offset: s.Offset, Length: s.Length})
	}
	return out
}
