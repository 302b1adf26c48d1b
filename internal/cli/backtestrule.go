package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
)

const (
	// backtestPart is how many evaluations one range query answers. More would cost the server memory for
	// points that wait; fewer would cost time.
	backtestPart = 500

	// mostFailed is after how many failed queries of a rule its backtest ends: its expression hardly ever
	// works.
	mostFailed = 100

	// mostPeriods is how many periods of one rule are kept.
	mostPeriods = 10_000
)

// pastData answers queries of stored data. If an expression cannot be evaluated, the error is an
// apiclient.Refused of the type execution.
type pastData interface {
	// series returns the values of an expression from begin to end, both included.
	series(ctx context.Context, expr string, begin, end time.Time, step time.Duration) (model.Matrix, error)

	// values returns the values of an expression at a time.
	values(ctx context.Context, expr string, at time.Time) (model.Vector, error)
}

// alertPeriod is one time at which an alert was active.
type alertPeriod struct {
	Labels   labels.Labels `json:"labels"`
	Pending  time.Time     `json:"pending"`           // since when the condition held
	Firing   time.Time     `json:"firing,omitzero"`   // zero if it never fired
	Resolved time.Time     `json:"resolved,omitzero"` // also the end of a pending alert; zero if it is active at the end
}

// backtest evaluates one alerting rule on stored data.
type backtest struct {
	data     pastData
	rule     *rules.AlertingRule
	interval time.Duration
	offset   time.Duration // the group's query_offset
	limit    int           // the group's limit of alerts; 0 is none
	from, to time.Time     // which periods are reported
	part     int           // evaluations that one query answers
	progress func(done, all int)

	periods []alertPeriod
	active  map[uint64]*alertPeriod
	slots   int   // evaluations
	failed  int   // evaluations with an error
	failure error // the first one
	cut     bool  // periods beyond mostPeriods were left out
}

// newBacktest prepares to evaluate a rule of a group each `interval`. Annotations are left out: they decide
// nothing, and each may query.
func newBacktest(g *rulefmt.RuleGroup, r *rulefmt.Rule, interval time.Duration, p parser.Parser) (*backtest, error) {
	expr, err := p.ParseExpr(r.Expr)
	if err != nil {
		return nil, err
	}
	b := &backtest{interval: interval, limit: g.Limit, part: backtestPart, active: map[uint64]*alertPeriod{},
		progress: func(int, int) {}}
	if g.QueryOffset != nil {
		b.offset = time.Duration(*g.QueryOffset)
	}
	b.rule = rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
		rules.FromMaps(g.Labels, r.Labels), labels.EmptyLabels(), labels.EmptyLabels(), "", true,
		slog.New(slog.DiscardHandler))
	return b, nil
}

// run evaluates the rule at each multiple of its interval up to `to`. It begins before `from`, by what the
// rule remembers, so that an alert that was pending at `from` fires when it would have.
func (b *backtest) run(ctx context.Context) error {
	memory := b.rule.HoldDuration() + b.rule.KeepFiringFor() + b.interval
	begin := b.from.Add(-memory).Truncate(b.interval)
	all := int(b.to.Sub(begin)/b.interval) + 1
	for done := 0; done < all; done += b.part {
		b.progress(done, all)
		first := begin.Add(time.Duration(done) * b.interval)
		if err := b.evaluate(ctx, first, min(b.part, all-done)); err != nil {
			return err
		}
	}
	for _, p := range b.active {
		b.keep(*p)
	}
	slices.SortFunc(b.periods, func(a, b alertPeriod) int {
		if c := a.Pending.Compare(b.Pending); c != 0 {
			return c
		}
		return labels.Compare(a.Labels, b.Labels)
	})
	return nil
}

// evaluate evaluates n slots, whose values one query gives. If the query fails, it looks for the slots of
// which it fails: at these, alerts stay as they were.
func (b *backtest) evaluate(ctx context.Context, first time.Time, n int) error {
	expr, last := b.rule.Query().String(), first.Add(time.Duration(n-1)*b.interval)
	series, err := b.data.series(ctx, expr, first.Add(-b.offset), last.Add(-b.offset), b.interval)
	if refused, ok := errors.AsType[apiclient.Refused](err); ok && refused.Type == "execution" {
		if n == 1 {
			return b.fail(err)
		}
		second := first.Add(time.Duration(n/2) * b.interval)
		if err := b.evaluate(ctx, first, n/2); err != nil {
			return err
		}
		return b.evaluate(ctx, second, n-n/2)
	}
	if err != nil {
		return fmt.Errorf("from %s to %s: %w", first.Format(time.DateTime), last.Format(time.DateTime), err)
	}
	at := vectorsOf(series)
	query := func(ctx context.Context, q string, ts time.Time) (promql.Vector, error) {
		if q == expr {
			return at[ts.UnixMilli()], nil
		}
		values, err := b.data.values(ctx, q, ts) // of a template in a label
		return vectorOf(values), err
	}
	for i := range n {
		ts := first.Add(time.Duration(i) * b.interval)
		_, err := b.rule.Eval(ctx, b.offset, ts, query, nil, b.limit)
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		if b.slots++; err != nil {
			b.failed++
			b.failure = cmp.Or(b.failure, err)
		}
		b.note(ts)
	}
	return nil
}

// fail notes that the query of one slot failed.
func (b *backtest) fail(err error) error {
	b.slots++
	b.failed++
	b.failure = cmp.Or(b.failure, err)
	if b.failed >= mostFailed {
		return errHardlyWorks
	}
	return nil
}

var errHardlyWorks = fmt.Errorf("the expression failed %d times", mostFailed)

// note follows the alerts after an evaluation.
func (b *backtest) note(ts time.Time) {
	seen := map[uint64]bool{}
	for _, a := range b.rule.ActiveAlerts() {
		hash := a.Labels.Hash()
		seen[hash] = true
		p := b.active[hash]
		if p == nil {
			p = &alertPeriod{Labels: a.Labels, Pending: a.ActiveAt}
			b.active[hash] = p
		}
		if a.State == rules.StateFiring && p.Firing.IsZero() {
			p.Firing = a.FiredAt
		}
	}
	for hash, p := range b.active {
		if !seen[hash] {
			p.Resolved = ts
			b.keep(*p)
			delete(b.active, hash)
		}
	}
}

// keep keeps a period if it reaches into the time that is reported.
func (b *backtest) keep(p alertPeriod) {
	switch {
	case !p.Resolved.IsZero() && !p.Resolved.After(b.from):
	case len(b.periods) >= mostPeriods:
		b.cut = true
	default:
		b.periods = append(b.periods, p)
	}
}

// vectorsOf returns the values of series by their time in Unix milliseconds.
func vectorsOf(series model.Matrix) map[int64]promql.Vector {
	all := map[int64]promql.Vector{}
	for _, s := range series {
		metric := labelsOf(s.Metric)
		for _, v := range s.Values {
			t := int64(v.Timestamp)
			all[t] = append(all[t], promql.Sample{T: t, F: float64(v.Value), Metric: metric})
		}
		for _, h := range s.Histograms { // an alert takes a histogram as 0
			t := int64(h.Timestamp)
			all[t] = append(all[t], promql.Sample{T: t, Metric: metric})
		}
	}
	return all
}

func vectorOf(values model.Vector) promql.Vector {
	var all promql.Vector
	for _, v := range values {
		all = append(all, promql.Sample{T: int64(v.Timestamp), F: float64(v.Value), Metric: labelsOf(v.Metric)})
	}
	return all
}

func labelsOf(m model.Metric) labels.Labels {
	b := labels.NewScratchBuilder(len(m))
	for name, value := range m {
		b.Add(string(name), string(value))
	}
	b.Sort()
	return b.Labels()
}
