package e2e

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// TestAlerts checks that a real server has every metric of deploy/alerts.yaml: an alert on a
// metric that does not exist never fires. docs/operations.md must say under each alert's name
// what to do.
func TestAlerts(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "freshet.yaml")
	if err := os.WriteFile(config, []byte("forward: {backends: [{name: gone, url: \"http://127.0.0.1:9/\"}]}\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, dataDir(t), "--config", config, "--self-probe")
	increment(t, p, "before", 1)
	runbook, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var metrics []byte
	eventually(t, time.Minute, "a store is open, samples have passed the stages, and a tenant has closed a tile",
		func() error {
			// Some metrics exist only once the conditions above hold.
			metrics, err = p.get("/metrics", nil)
			for _, name := range []string{"prometheus_tsdb_head_series",
				"freshet_stage_seconds", "freshet_aggregator_store_errors_total"} {
				if err == nil && !hasMetric(string(metrics), name) {
					err = fmt.Errorf("/metrics has no %s", name)
				}
			}
			return err
		})
	inCluster := startLonelyCollector(t)
	eventually(t, 10*time.Second, "a collector in a cluster has an outbox", func() error {
		more, err := inCluster.get("/metrics", nil)
		if err == nil && !hasMetric(string(more), "freshet_outbox_oldest_seconds") {
			err = errors.New("the collector has no outbox")
		}
		metrics = append(metrics, more...)
		return err
	})
	rules := alertRules(t)
	if len(rules) < 10 {
		t.Errorf("deploy/alerts.yaml has only %d rules, fewer than expected", len(rules))
	}
	for _, rule := range rules {
		if !strings.Contains(string(runbook), "### "+rule.Alert+"\n") {
			t.Errorf("docs/operations.md does not say what to do for %s", rule.Alert)
		}
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" {
			t.Errorf("%s has no severity or no summary", rule.Alert)
		}
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metricsOf(expr) {
			if name != "up" && !ofCluster.MatchString(name) && !hasMetric(string(metrics), name) {
				t.Errorf("the alert %s uses %s, which the server does not have", rule.Alert, name)
			}
		}
		if _, err := p.get("/api/v1/query", url.Values{"query": {rule.Expr}}); err != nil {
			t.Errorf("query for the alert %s: %v", rule.Alert, err)
		}
	}
}

// startLonelyCollector starts a collector of a cluster without any reachable node.
func startLonelyCollector(t *testing.T) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	secret, err := exec.Command(freshet, "cluster", "secret").Output()
	if err == nil {
		err = os.WriteFile(file, secret, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return start(t, dataDir(t), "--role", "collector", "--cluster-nodes", "a=127.0.0.1:9", "--cluster-secret-file", file)
}

// ofCluster matches metrics that only a node of a cluster has.
var ofCluster = regexp.MustCompile(`^freshet_(group|cluster|history)_`)

// hasMetricsOfAlerts checks that a process has every metric that an alert uses and that begins with
// `prefix`.
func hasMetricsOfAlerts(t *testing.T, p *process, prefix string) {
	t.Helper()
	asked := 0
	for _, rule := range alertRules(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metricsOf(expr) {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			asked++
			eventually(t, 10*time.Second, "/metrics has "+name+", as "+rule.Alert+" wants", func() error {
				metrics, err := p.get("/metrics", nil)
				if err == nil && !hasMetric(string(metrics), name) {
					err = errors.New("/metrics does not have the metric")
				}
				return err
			})
		}
	}
	if asked == 0 {
		t.Errorf("no alert uses a metric that begins with %s", prefix)
	}
}

// metricsOf returns the metrics that an expression asks for. It drops the suffix _bucket, since all
// series of a classic histogram share one HELP line.
func metricsOf(expr parser.Expr) (names []string) {
	for _, selector := range parser.ExtractSelectors(expr) {
		names = append(names, strings.TrimSuffix(nameOf(selector), "_bucket"))
	}
	return names
}

// alertRules reads the rules of deploy/alerts.yaml as Prometheus does.
func alertRules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile("../deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}),
		slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return groups.Groups[0].Rules
}

func nameOf(selector []*labels.Matcher) string {
	for _, m := range selector {
		if m.Name == model.MetricNameLabel {
			return m.Value
		}
	}
	return ""
}

// hasMetric looks for the HELP line, since a metric with labels may have no series yet.
func hasMetric(metrics, name string) bool {
	return regexp.MustCompile(`(?m)^# HELP ` + regexp.QuoteMeta(name) + ` `).MatchString(metrics)
}
