package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
)

// testedRules has every part of a rule that decides when it fires.
const testedRules = `
groups:
- name: shop
  interval: 30s
  query_offset: 30s
  labels: {site: berlin}
  rules:
  - {record: "level:sum", expr: sum(level)}
  - alert: LevelHigh
    expr: level > 10
    for: 2m
    keep_firing_for: 90s
    labels:
      much: '{{ if gt $value 50.0 }}yes{{ else }}no{{ end }}'
      all: '{{ with query "count(level)" }}{{ . | first | value }}{{ end }}'
  - {alert: Gone, expr: absent(level), for: 1m}
  - {alert: Now, expr: level == 20}
  - {alert: Sometimes, expr: "level + on() group_left() (level > 15)"}
- name: limited
  limit: 1
  rules:
  - {alert: TooMany, expr: level >= 0}
`

// testedData are samples each 30 s from the Unix epoch: a condition that holds too briefly, one that holds,
// gaps that keep_firing_for bridges and that it does not bridge, a new label, and an end.
const testedData = `
load 30s
  level{shop="north"} 0x5 20x2 0x5 20x20 0x1 20x3 0x20 60x30 0x20 20x10
  level{shop="south"} 5x40 30x30 5x90
`

// engine answers queries from a storage with Prometheus' engine.
type engine struct {
	engine  *promql.Engine
	storage storage.Storage
	asked   int // range queries
	broken  error
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	return &engine{
		engine:  promqltest.NewTestEngine(t, false, 0, 1_000_000),
		storage: promqltest.LoadedStorage(t, testedData),
	}
}

func (e *engine) series(ctx context.Context, expr string, begin, end time.Time,
	step time.Duration) (model.Matrix, error) {
	if e.asked++; e.broken != nil {
		return nil, e.broken
	}
	q, err := e.engine.NewRangeQuery(ctx, e.storage, nil, expr, begin, end, step)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	m, err := q.Exec(ctx).Matrix()
	if err != nil {
		return nil, apiclient.Refused{Type: "execution", Text: err.Error()}
	}
	var all model.Matrix
	for _, s := range m {
		stream := &model.SampleStream{Metric: metricOf(s.Metric)}
		for _, p := range s.Floats {
			stream.Values = append(stream.Values,
				model.SamplePair{Timestamp: model.Time(p.T), Value: model.SampleValue(p.F)})
		}
		all = append(all, stream)
	}
	return all, nil
}

func (e *engine) values(ctx context.Context, expr string, at time.Time) (model.Vector, error) {
	v, err := rules.EngineQueryFunc(e.engine, e.storage)(ctx, expr, at)
	var all model.Vector
	for _, s := range v {
		all = append(all, &model.Sample{
			Metric: metricOf(s.Metric), Timestamp: model.Time(s.T), Value: model.SampleValue(s.F),
		})
	}
	return all, err
}

func metricOf(l labels.Labels) model.Metric {
	m := model.Metric{}
	l.Range(func(l labels.Label) { m[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
	return m
}

// A backtest has the same alerts in the same states, at each evaluation, as Prometheus has that evaluates
// the rule with its own queries, also where the parts of a backtest meet.
func TestBacktestIsWhatPrometheusDoes(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	groups, errs := rulefmt.Parse([]byte(testedRules), false, model.UTF8Validation, p, nil)
	if errs != nil {
		t.Fatal(errs)
	}
	e := newEngine(t)
	from, to := time.Unix(0, 0).UTC(), time.Unix(30*160, 0).UTC()
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			b, err := newBacktest(&g, &r, 30*time.Second, p)
			if err != nil {
				t.Fatal(err)
			}
			b.data, b.from, b.to, b.part = e, from, to, 7
			if err := b.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := statesOf(b.periods, from, to, b.interval)
			want := prometheusStates(t, e, &g, &r, from, to, b.interval)
			if !slices.Equal(got, want) {
				t.Errorf("%s:\n%s\nwant, as Prometheus:\n%s", r.Alert, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if len(want) == 0 && r.Alert != "TooMany" || (b.failed > 0) != (r.Alert == "TooMany" || r.Alert == "Sometimes") {
				t.Errorf("%s: Prometheus has %d states, %d evaluations failed (%v)", r.Alert, len(want), b.failed, b.failure)
			}
		}
	}
}

// prometheusStates lists the active alerts of each evaluation by Prometheus.
func prometheusStates(t *testing.T, e *engine, g *rulefmt.RuleGroup, r *rulefmt.Rule, from, to time.Time,
	interval time.Duration) (all []string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
	if err != nil {
		t.Fatal(err)
	}
	rule := rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
		rules.FromMaps(g.Labels, r.Labels), labels.EmptyLabels(), labels.EmptyLabels(), "", true, promslog.NewNopLogger())
	var offset time.Duration
	if g.QueryOffset != nil {
		offset = time.Duration(*g.QueryOffset)
	}
	query := rules.EngineQueryFunc(e.engine, e.storage)
	for ts := from.Add(-10 * time.Minute); !ts.After(to); ts = ts.Add(interval) {
		_, _ = rule.Eval(t.Context(), offset, ts, query, nil, g.Limit) // an error shows in the alerts
		for _, a := range rule.ActiveAlerts() {
			if !ts.Before(from) {
				all = append(all, fmt.Sprintf("%s %s %s", ts.Format(time.TimeOnly), a.State, a.Labels))
			}
		}
	}
	slices.Sort(all)
	return all
}

// statesOf lists the alerts that are active at each evaluation, by their periods.
func statesOf(periods []alertPeriod, from, to time.Time, interval time.Duration) (all []string) {
	for _, p := range periods {
		for ts := from; !ts.After(to); ts = ts.Add(interval) {
			if ts.Before(p.Pending) || !p.Resolved.IsZero() && !ts.Before(p.Resolved) {
				continue
			}
			state := rules.StatePending
			if !p.Firing.IsZero() && !ts.Before(p.Firing) {
				state = rules.StateFiring
			}
			all = append(all, fmt.Sprintf("%s %s %s", ts.Format(time.TimeOnly), state, p.Labels))
		}
	}
	slices.Sort(all)
	return all
}

// An alert whose condition began before --from fires when it would have, and what ended before is left out.
func TestBacktestKnowsWhatWasBefore(t *testing.T) {
	c := newBacktestCommand(t, 18*30, 30*40)
	all, err := c.run(t.Context(), fileOf(t, testedRules))
	if err != nil {
		t.Fatal(err)
	}
	high := all[0].Periods
	if len(all) != 5 || len(high) == 0 || high[0].Pending.Unix() != 16*30 || high[0].Firing.Unix() != 20*30 {
		t.Errorf("%d alerts; LevelHigh is active %+v, want since 480 s, before --from, and firing 2 min later",
			len(all), high)
	}
	if all[4].Failed == 0 || !strings.Contains(all[4].Error, "exceeded limit of 1") {
		t.Errorf("TooMany has %d failed evaluations, with %q", all[4].Failed, all[4].Error)
	}
}

// An alert that keep_firing_for keeps firing at --from is found.
func TestBacktestKnowsWhatKeepsFiring(t *testing.T) {
	all, err := newBacktestCommand(t, 75*30, 90*30).run(t.Context(), fileOf(t, testedRules))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all[0].Periods, func(p alertPeriod) bool { return p.Labels.Get("shop") == "south" })
	if i < 0 || all[0].Periods[i].Firing.IsZero() || all[0].Periods[i].Resolved.Unix() != 76*30 {
		t.Errorf("LevelHigh is active %+v, want of the south until 90 s after its condition held", all[0].Periods)
	}
}

// A rule that flaps all the time costs bounded memory, and the output says that times are missing.
func TestBacktestKeepsABoundedNumberOfPeriods(t *testing.T) {
	b := backtest{from: time.Unix(100, 0)}
	for range mostPeriods + 1 {
		b.keep(alertPeriod{Pending: time.Unix(200, 0)})
	}
	if len(b.periods) != mostPeriods || !b.cut {
		t.Errorf("%d periods are kept, cut %v", len(b.periods), b.cut)
	}
}

func TestBacktestMistakes(t *testing.T) {
	for file, want := range map[string]string{
		"groups: [{name: g, rules: [{alert: A, expr: sum(}]}]":    "parse error",
		"groups: [{name: g, rules: [{record: a, expr: sum(b)}]}]": "has no alerting rule",
	} {
		_, err := newBacktestCommand(t, 0, 60).run(t.Context(), fileOf(t, file))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", file, err, want)
		}
	}
	c := newBacktestCommand(t, 0, 60)
	c.data.(*engine).broken = errors.New("too many samples")
	_, err := c.run(t.Context(), fileOf(t, testedRules))
	if err == nil || !strings.Contains(err.Error(), "alert LevelHigh: from ") {
		t.Errorf("a query fails: %v, want the alert and the time", err)
	}
}

// A rule whose expression never works costs a bounded number of queries, and the other rules are tested.
func TestBacktestOfARuleThatFails(t *testing.T) {
	c := newBacktestCommand(t, 0, 1_000_000)
	e := c.data.(*engine)
	e.broken = apiclient.Refused{Type: "execution", Text: "many-to-many matching not allowed"}
	all, err := c.run(t.Context(), fileOf(t, testedRules))
	if err != nil || len(all) != 5 {
		t.Fatalf("%d alerts, error %v", len(all), err)
	}
	for _, a := range all {
		if !a.Ended || a.Failed != mostFailed || !strings.Contains(a.Error, "many-to-many") {
			t.Errorf("%s: ended %v, %d evaluations failed with %q", a.Alert, a.Ended, a.Failed, a.Error)
		}
	}
	if most := 5 * 3 * mostFailed; e.asked > most {
		t.Errorf("%d queries, want at most %d", e.asked, most)
	}
}

func newBacktestCommand(t *testing.T, from, to int64) backtestCommand {
	t.Helper()
	view := terminal.View{Out: &bytes.Buffer{}, Notes: &bytes.Buffer{}, Columns: 80, At: time.Unix(to, 0),
		Length: time.Duration(to-from) * time.Second}
	return backtestCommand{data: newEngine(t), view: view, interval: time.Minute}
}

func fileOf(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The plot has a bar for each alert, and its table each time. Neither obeys control characters in labels.
func TestBacktestForPeople(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 0, 0, 0, time.Local)
	at := func(minutes int) time.Time { return begin.Add(time.Duration(minutes) * time.Minute) }
	var out, notes bytes.Buffer
	v := terminal.View{Out: &out, Notes: &notes, Columns: 80, At: at(40), Length: 40 * time.Minute}
	err := writeBacktest(v, []testedAlert{{
		Alert: "Slow", Evaluations: 41, Failed: 1, Error: "no\x1b[2J", Cut: true, Periods: []alertPeriod{
			{Labels: labels.FromStrings("alertname", "Slow", "shop", "north"),
				Pending: at(10), Firing: at(15), Resolved: at(20)},
			{Labels: labels.FromStrings("alertname", "Slow", "shop", "\x1b[2J"), Pending: at(30)},
		}}, {Alert: "Never"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Slow: would have fired 1 time, in 41 evaluations\n",
		strings.Repeat("·", 10) + strings.Repeat("▒", 5) + strings.Repeat("█", 6) + strings.Repeat("·", 19) +
			`  {shop="north"}`,
		strings.Repeat("·", 30) + strings.Repeat("▒", 10),
		"2026-01-02 03:10:00  2026-01-02 03:15:00  2026-01-02 03:20:00       5m0s\n",
		"never", "not yet", "Never: would have fired 0 times",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
	for _, want := range []string{"1 evaluation failed", "only 10000 times are shown"} {
		if !strings.Contains(notes.String(), want) {
			t.Errorf("no %q in the notes:\n%s", want, &notes)
		}
	}
	if strings.Contains(out.String()+notes.String(), "\x1b") {
		t.Error("a label can control the terminal")
	}
}
