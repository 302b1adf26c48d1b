package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/remoteload"
	peerstsdb "github.com/freshet-io/freshet/lab/peers-tsdb"
	"github.com/freshet-io/freshet/lab/report"
)

// rulesPart is the name of this part in -only.
const rulesPart = "rules"

// rulesJob is the label `job` of the series that the rules read.
const rulesJob = "rules"

// rulesPlan is the plan of a run.
type rulesPlan struct {
	pods     int           // each is a group of rules, and has a hundred series
	every    time.Duration // interval of the groups, and length of the measurement: each rule is evaluated once
	interval time.Duration // between two samples of a series
	history  int           // samples of each series before the rules begin
}

// standardRules has 10,000 rules each minute.
func standardRules() rulesPlan {
	return rulesPlan{pods: 500, every: time.Minute, interval: 15 * time.Second, history: 20}
}

// briefRules evaluates as many rules three times as often, for a run of a minute.
func briefRules() rulesPlan {
	p := standardRules()
	p.every = 20 * time.Second
	return p
}

// rulesOfHandler is how many rules writeRules makes for each handler of a pod.
const rulesOfHandler = 4

func (p rulesPlan) rules() int { return p.pods * len(handlers()) * rulesOfHandler }

func (p rulesPlan) series() int { return p.pods * seriesOfPod }

func (p rulesPlan) rate() float64 { return float64(p.series()) / p.interval.Seconds() }

// load returns the samples from a time on.
func (p rulesPlan) load(begin time.Time) remoteload.Config {
	c := remoteload.Standard()
	c.Name, c.Series, c.Batch, c.Interval = rulesJob, p.series(), 500, p.interval.Milliseconds()
	c.Begin = begin.UnixMilli()
	return c
}

// rulesEnd is how long the samples go on after the measurement.
const rulesEnd = 2 * time.Second

// seriesOfPod is how many series remoteload makes for a pod.
const seriesOfPod = 100

// writeRules writes the rules of all pods: recordings and alerts as people have them, half of each.
func (p rulesPlan) writeRules(file string) error {
	var b strings.Builder
	b.WriteString("groups:\n")
	for pod := range p.pods {
		fmt.Fprintf(&b, "- name: pod-%d\n  interval: %v\n  rules:\n", pod, p.every)
		for _, handler := range handlers() {
			of := fmt.Sprintf("job=%q,pod=%q,handler=%q", rulesJob, remoteload.Pod(pod), handler)
			rule := func(kind, name, expr string) {
				fmt.Fprintf(&b, "  - {%s: %q, expr: %q, labels: {pod: %q, handler: %q}}\n", kind, name, expr,
					remoteload.Pod(pod), handler)
			}
			rule("record", "code:http_requests:rate5m", "sum by (code) (rate(http_requests_total{"+of+"}[5m]))")
			rule("record", "le:http_request_duration_seconds:p99",
				"histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket{"+of+"}[5m])))")
			rule("alert", "ManyErrors", "sum(rate(http_requests_total{"+of+`,code="500"}[5m])) / sum(rate(http_requests_total{`+
				of+"}[5m])) > 2")
			rule("alert", "ManyRequests", "http_requests_in_flight{"+of+"} > 1e9")
		}
	}
	return os.WriteFile(file, []byte(b.String()), 0o600)
}

// rulesSteps returns the steps of this part.
func (l *lab) rulesSteps() (steps []step) {
	plan := standardRules()
	if l.brief {
		plan = briefRules()
	}
	part := plan.part(l)
	l.results.Rules = part
	for run := range l.runs {
		steps = append(steps, step{
			what:  fmt.Sprintf("rules, run %d", run+1),
			takes: 2*plan.every + 15*time.Second,
			do:    func(ctx context.Context) error { return l.runRules(ctx, part, plan) },
		})
	}
	return steps
}

// part returns results that contain only the plan.
func (p rulesPlan) part(l *lab) *report.Rules {
	part := &report.Rules{Date: l.results.Date, Machine: l.results.Machine, Versions: l.ourVersion(),
		Rules: p.rules(), Groups: p.pods, Every: p.every.Seconds(), Series: p.series(), Rate: p.rate()}
	for _, peer := range l.rulesPeers() {
		part.Versions = append(part.Versions, report.Version{Name: peer.Name, Version: peer.Version})
	}
	return part
}

// rulesPeers returns the peers that evaluate rules.
func (l *lab) rulesPeers() []peerstsdb.Peer {
	return slices.DeleteFunc(slices.Clone(l.tsdbs), func(p peerstsdb.Peer) bool { return !p.Rules })
}

// rulesDatabases returns the peers, of which the first is the base of comparison, and then Freshet. Each evaluates
// the rules of a file.
func (l *lab) rulesDatabases(file string) (all []*evaluating, err error) {
	plain := map[string]database{}
	for _, d := range l.databases() {
		plain[d.name] = d
	}
	add := func(d database) { all = append(all, &evaluating{database: d, plain: plain[d.name]}) }
	for _, p := range l.rulesPeers() {
		add(database{name: p.Name, group: report.Peer,
			start: func(ctx context.Context, dir string) (*runningDatabase, error) {
				r, err := p.StartWithRules(ctx, peersDir, dir, file)
				if err != nil {
					return nil, err
				}
				return &runningDatabase{pid: r.PID, url: r.URL, stop: r.Stop}, nil
			}})
	}
	settings := filepath.Join(filepath.Dir(file), "freshet.yaml")
	ours := l.databases("--config", settings)
	add(ours[len(ours)-1])
	return all, os.WriteFile(settings, fmt.Appendf(nil, "rules: {files: [%q]}\n", file), 0o600)
}

// evaluating is a database that evaluates rules in a run.
type evaluating struct {
	database
	plain database // without rules
	*runningDatabase
	writer *loadgen.Writer

	// The figures of the run.
	seconds, memory            float64
	evaluated, failures, found uint64
}

// runRules fills and starts all databases, sends them the same samples, and measures one interval after each rule was
// evaluated once.
func (l *lab) runRules(ctx context.Context, part *report.Rules, plan rulesPlan) (err error) {
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "rules.yaml")
	all, err := l.rulesDatabases(file)
	if err := errors.Join(err, plan.writeRules(file)); err != nil {
		return err
	}
	for _, e := range all {
		if err := e.fill(ctx, plan, filepath.Join(dir, e.name)); err != nil {
			return fmt.Errorf("rules, the history of %s: %w", e.name, err)
		}
	}
	defer func() {
		for _, e := range all {
			if e.runningDatabase != nil {
				err = errors.Join(err, e.stop())
			}
		}
	}()
	for _, e := range all {
		if e.runningDatabase, err = e.start(ctx, filepath.Join(dir, e.name)); err != nil {
			return fmt.Errorf("start %s: %w", e.name, err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, e := range all {
		group.Go(func() error {
			if err := e.measure(ctx, plan); err != nil {
				return fmt.Errorf("rules, %s: %w", e.name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, e := range all {
		c := part.Cost(e.name, e.group)
		c.Seconds, c.Resident = append(c.Seconds, e.seconds), append(c.Resident, e.memory)
		c.Evaluations, c.Failed, c.Found = c.Evaluations+e.evaluated, c.Failed+e.failures, c.Found+e.found
		if i > 0 && all[0].group == report.Peer {
			c.Ratio = append(c.Ratio, e.seconds/all[0].seconds)
		}
	}
	return nil
}

// fill writes the history, without rules: they would wait for a sender that sends fast and then slowly.
func (e *evaluating) fill(ctx context.Context, plan rulesPlan, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	p, err := e.plain.start(ctx, dir)
	if err != nil {
		return err
	}
	begin := time.Now().Add(-time.Duration(plan.history) * plan.interval)
	if e.writer, err = p.writer(plan.load(begin), writeConnections); err == nil {
		err = e.send(ctx, loadgen.WriterPace{Rounds: plan.history})
	}
	return errors.Join(err, p.stop())
}

// measure writes samples as they come. It measures the second of two intervals: in the first, the rules make their
// series.
func (e *evaluating) measure(ctx context.Context, plan rulesPlan) (err error) {
	if e.writer, err = e.runningDatabase.writer(plan.load(time.Now()), writeConnections); err != nil {
		return err
	}
	sending, ctx := errgroup.WithContext(ctx)
	sending.Go(func() error { // each round at once, as of a scraper: older samples would be late, and the rules wait
		for begun, round := time.Now(), 0; time.Duration(round)*plan.interval < 2*plan.every+rulesEnd; round++ {
			if err := wait(ctx, time.Until(begun.Add(time.Duration(round)*plan.interval))); err != nil {
				return err
			}
			if err := e.send(ctx, loadgen.WriterPace{Rounds: 1}); err != nil {
				return err
			}
		}
		return nil
	})
	sending.Go(func() error {
		if err := wait(ctx, plan.every); err != nil {
			return err
		}
		return e.interval(ctx, plan)
	})
	return sending.Wait()
}

func (e *evaluating) send(ctx context.Context, pace loadgen.WriterPace) error {
	r, err := e.writer.Run(ctx, pace)
	if err == nil && r.Written != r.Sent.Samples {
		err = fmt.Errorf("sent %d samples, but only %d were acknowledged: %s", r.Sent.Samples, r.Written, r.Refused)
	}
	return err
}

// interval measures one interval of the groups.
func (e *evaluating) interval(ctx context.Context, plan rulesPlan) error {
	evaluated, failed, err := e.evaluations(ctx)
	if err != nil {
		return err
	}
	before, err := report.CPUTime(e.pid)
	if err != nil {
		return err
	}
	if err := wait(ctx, plan.every); err != nil {
		return err
	}
	after, err := report.CPUTime(e.pid)
	if err != nil {
		return err
	}
	e.seconds = (after - before).Seconds()
	evaluatedAfter, failedAfter, err := e.evaluations(ctx)
	if err != nil {
		return err
	}
	e.evaluated, e.failures = evaluatedAfter-evaluated, failedAfter-failed
	bytes, err := resident(e.pid)
	if err != nil {
		return err
	}
	e.memory = float64(bytes)
	e.found, err = e.query(ctx, `count({__name__=~"code:.*|le:.*"})`, time.Now().UnixMilli())
	return err
}

// evaluations returns how many rules were evaluated since the start, and how many of them failed.
func (e *evaluating) evaluations(ctx context.Context) (evaluated, failed uint64, err error) {
	err = metricsOf(ctx, e.url, func(family string, m *dto.Metric) {
		switch family {
		case "prometheus_rule_evaluations_total":
			evaluated += uint64(m.GetCounter().GetValue())
		case "prometheus_rule_evaluation_failures_total":
			failed += uint64(m.GetCounter().GetValue())
		}
	})
	return evaluated, failed, err
}
