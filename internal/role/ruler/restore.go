package ruler

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/rulestate"
)

// identified yields the alerting rules of a group, each with its identity. Names and labels identify
// rules, as in Group.CopyState.
func identified(group *rules.Group) iter.Seq2[*rules.AlertingRule, rulestate.Rule] {
	return func(yield func(*rules.AlertingRule, rulestate.Rule) bool) {
		before := map[string]int{}
		for _, rule := range group.Rules() {
			a, is := rule.(*rules.AlertingRule)
			if !is {
				continue
			}
			id := rulestate.Rule{Name: a.Name(), Labels: a.Labels().String()}
			id.Nth = before[id.Name+id.Labels]
			before[id.Name+id.Labels]++
			if !yield(a, id) {
				return
			}
		}
	}
}

// reviver gives groups the alerts that they had in an earlier process. Prometheus' library can copy
// alerts from one group to another only, so reviver makes a group with these alerts: rules whose
// expressions are answered with the alerts' labels.
type reviver struct {
	options  *rules.ManagerOptions
	external labels.Labels
	address  string
	logger   *slog.Logger
}

// revive gives a new group its alerts as of the saved evaluation. Of a rule that is no longer in the
// group, it takes none.
func (v *reviver) revive(ctx context.Context, group *rules.Group, saved *rulestate.Group) {
	twin := &twin{alerts: map[string][]rulestate.Alert{}, found: map[*rulestate.Alert]bool{}, query: v.options.QueryFunc}
	var all []rules.Rule
	for rule, id := range identified(group) {
		expr := &parser.StringLiteral{Val: fmt.Sprintf("alerts of rule %d", len(all))}
		twin.alerts[expr.String()] = alertsOf(saved, id)
		// Labels of the rule may be templates. Labels of its alerts take their place below.
		all = append(all, rules.NewAlertingRule(rule.Name(), expr, rule.HoldDuration(), rule.KeepFiringFor(), rule.Labels(),
			labels.EmptyLabels(), v.external, v.address, true, v.logger))
		rule.SetEvaluationTimestamp(saved.Slot) // otherwise its state would be unknown
	}
	from := rules.NewGroup(rules.GroupOptions{
		Name: group.Name(), File: group.File(), Interval: group.Interval(), Rules: all,
		Opts: &rules.ManagerOptions{
			Context: ctx, ExternalURL: v.options.ExternalURL, QueryFunc: twin.answer, Appendable: nowhere{}, Logger: v.logger,
			NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, ResendDelay: resendDelay,
			Metrics: rules.NewGroupMetrics(nil),
		},
	})
	// The first evaluation makes the alerts. The second is the saved one again: it removes what is not among
	// the saved alerts, and tells the group which series of ALERTS it has written.
	from.Eval(ctx, saved.Slot)
	lost := twin.fill(from)
	twin.again = true
	from.Eval(ctx, saved.Slot)
	twin.fill(from)
	if lost > 0 {
		v.logger.Warn("alerts begin anew after the restart: templates of their labels give other labels now",
			"file", group.File(), "group", group.Name(), "alerts", lost)
	}
	group.CopyState(from)
}

func alertsOf(g *rulestate.Group, id rulestate.Rule) []rulestate.Alert {
	for _, r := range g.Rules {
		if r.Name == id.Name && r.Labels == id.Labels && r.Nth == id.Nth {
			return r.Alerts
		}
	}
	return nil
}

// twin answers the expressions of a group that reviver makes.
type twin struct {
	alerts map[string][]rulestate.Alert // by expression
	again  bool                         // this is the second evaluation
	found  map[*rulestate.Alert]bool    // alerts that the first evaluation has made
	query  rules.QueryFunc              // answers queries of templates
}

// answer implements rules.QueryFunc.
func (w *twin) answer(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
	all, is := w.alerts[expr]
	if !is {
		return w.query(ctx, expr, at)
	}
	var v promql.Vector
	for i := range all {
		a := &all[i]
		if w.again && (!w.found[a] || a.State == rulestate.Resolved || !a.KeepFiringSince.IsZero()) {
			continue // the expression did not return it
		}
		v = append(v, promql.Sample{Metric: a.Labels, T: at.UnixMilli(), F: a.Value})
	}
	return v, nil
}

// fill gives the alerts of a group their saved fields. It returns how many of the saved alerts the group
// does not have. Others that it has are pending, so that an evaluation without them removes them.
func (w *twin) fill(group *rules.Group) (lost int) {
	for _, rule := range group.AlertingRules() {
		saved := map[string]*rulestate.Alert{}
		all := w.alerts[rule.Query().String()]
		for i := range all {
			saved[all[i].Labels.String()] = &all[i]
		}
		lost += len(saved)
		rule.ForEachActiveAlert(func(a *rules.Alert) {
			s := saved[a.Labels.String()]
			if s == nil {
				a.State = rules.StatePending
				return
			}
			lost--
			w.found[s] = true
			*a = rules.Alert{
				State: states[s.State], Labels: s.Labels, Annotations: s.Annotations, Value: s.Value, ActiveAt: s.ActiveAt,
				FiredAt: s.FiredAt, ResolvedAt: s.ResolvedAt, LastSentAt: s.LastSentAt, ValidUntil: s.ValidUntil,
				KeepFiringSince: s.KeepFiringSince,
			}
		})
	}
	return lost
}

var states = map[rulestate.State]rules.AlertState{
	rulestate.Resolved: rules.StateInactive, rulestate.Pending: rules.StatePending, rulestate.Firing: rules.StateFiring,
}

func savedAlert(a *rules.Alert) rulestate.Alert {
	s := rulestate.Alert{
		State: rulestate.Resolved, Labels: a.Labels, Annotations: a.Annotations, Value: a.Value, ActiveAt: a.ActiveAt,
		FiredAt: a.FiredAt, ResolvedAt: a.ResolvedAt, LastSentAt: a.LastSentAt, ValidUntil: a.ValidUntil,
		KeepFiringSince: a.KeepFiringSince,
	}
	switch a.State {
	case rules.StatePending:
		s.State = rulestate.Pending
	case rules.StateFiring:
		s.State = rulestate.Firing
	}
	return s
}

// nowhere is a storage that keeps nothing.
type nowhere struct{}

// Appender implements storage.Appendable.
func (nowhere) Appender(context.Context) storage.Appender { return discarding{} }

// discarding takes samples and keeps none.
type discarding struct{ storage.Appender } // nil: rules call no other methods

// SetOptions implements storage.Appender.
func (discarding) SetOptions(*storage.AppendOptions) {}

// Append implements storage.Appender.
func (discarding) Append(storage.SeriesRef, labels.Labels, int64, float64) (storage.SeriesRef, error) {
	return 0, nil
}

// Commit implements storage.Appender.
func (discarding) Commit() error { return nil }
