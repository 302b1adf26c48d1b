package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// monitored is an expression of a panel in deploy/grafana, or the part of an alert's expression
// that has a value even if the alert does not fire.
type monitored struct{ in, expr string }

// needFaults are the metrics that have no series before a fault, each with the reason.
var needFaults = map[string]string{
	"freshet_limit_samples_total":       "it has a series for each limit that was reached",
	"freshet_distributor_refused_total": "it has a series for each reason for which samples of a request were refused",
	"freshet_distributor_retries_total": "it has a series for each reason for which a sender was told to retry",
	"freshet_store_samples_refused_":    "it has a series for each reason for which a store refused samples",
}

// ofClusters has the prefixes of the metrics that a single machine does not have.
var ofClusters = []string{"freshet_cluster_", "freshet_group_", "freshet_history_", "freshet_outbox_"}

// asker queries a store.
type asker func(expr string) ([]result, error)

// TestDashboards checks that every expression of deploy/grafana and deploy/alerts.yaml has an answer,
// and that no alert fires on a healthy server. The test queries three stores: a Prometheus that scrapes
// Freshet with its defaults and so stores classic histograms, a Prometheus that stores native
// histograms, and Freshet's own store. TestAlertsOfACluster covers the expressions that only clusters
// answer. The second Prometheus sends its samples on to another Freshet, whose answers must be the same.
func TestDashboards(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "freshet.yaml")
	if err := os.WriteFile(config, []byte("forward: {backends: [{name: gone, url: \"http://127.0.0.1:9/\"}]}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dataDir(t), "--config", config, "--self-interval", "1s", "--self-probe")
	copied := start(t, dataDir(t), "--self-metrics=false", "--self-probe=false")
	askers, prometheus := scrapers(t, fmt.Sprintf("remote_write: [{url: %q, send_native_histograms: true}]",
		"http://"+copied.HTTP+"/api/v1/write"), p.HTTP)
	askers["Freshet's own store"] = p.self
	all := slices.DeleteFunc(slices.Concat(panelExpressions(t, ".*"), alertParts(t)), func(m monitored) bool {
		return m.ofCluster() || needsFault(m.expr)
	})
	if len(all) < 59 {
		t.Fatalf("deploy has %d expressions, want at least 59", len(all))
	}
	flood(t, "udp", p.UDP, 1000, 1000, func(packet []byte, _ int) []byte { return append(packet, "dashboards:1|c\n"...) })
	answered(t, all, askers, func() error {
		if status, text, _, err := p.write("application/x-protobuf",
			pack(t, v1Of(requestV2(time.Now().UnixMilli(), 1, "dashboards_written")))); err != nil ||
			status != http.StatusNoContent {
			return fmt.Errorf("a write: %d %s %v", status, text, err)
		}
		increment(t, p, "dashboards", 1)
		return nil
	})
	checkForms(t, askers)
	noneFires(t, askers)
	sameAnswers(t, prometheus, copied)
}

// TestAlertsOfACluster does the checks of TestDashboards for the alerts of clusters, with three nodes
// and a collector.
func TestAlertsOfACluster(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t, "d")
	collector := c.startCollector(c.pushSecret())
	collector.waitReady(t)
	askers, _ := scrapers(t, "", c.node("a").HTTP, c.node("b").HTTP, c.node("c").HTTP, collector.HTTP)
	all := slices.DeleteFunc(alertParts(t), func(m monitored) bool { return !m.ofCluster() })
	if len(all) < 7 {
		t.Fatalf("deploy has %d expressions of clusters, want at least 7", len(all))
	}
	answered(t, all, askers, func() error {
		increment(t, collector, "dashboards", 1)
		return nil
	})
	noneFires(t, askers)
}

// scrapers starts the two kinds of Prometheus, which scrape processes each second. The one with native histograms
// has more settings, and is returned.
func scrapers(t *testing.T, more string, targets ...string) (map[string]asker, *process) {
	t.Helper()
	scraping := func(settings, more string) *process {
		return startPrometheus(t, fmt.Sprintf("global: {scrape_interval: 1s%s}\nscrape_configs: [{job_name: freshet, "+
			"static_configs: [{targets: [%s]}]}]\n%s\n", settings, strings.Join(targets, ", "), more))
	}
	native := scraping(", scrape_native_histograms: true", more)
	return map[string]asker{
		"a Prometheus with its defaults":      scraping("", "").query,
		"a Prometheus with native histograms": native.query,
	}, native
}

// answered is a check that waits until each store has returned an answer to each expression. Before
// each try it calls `before`.
func answered(t *testing.T, all []monitored, askers map[string]asker, before func() error) {
	t.Helper()
	left := map[monitored][]string{} // stores that have not answered yet, by expression
	everywhere := slices.Sorted(maps.Keys(askers))
	for _, m := range all {
		left[m] = everywhere
	}
	eventually(t, 2*time.Minute, "every expression has an answer", func() error {
		if err := before(); err != nil {
			return err
		}
		var empty []string
		for m, at := range left {
			left[m] = slices.DeleteFunc(slices.Clone(at), func(who string) bool {
				results, err := askers[who](m.expr)
				if err != nil {
					t.Fatalf("%s, %s: %s: %v", who, m.in, m.expr, err)
				}
				return len(results) > 0
			})
			for _, who := range left[m] {
				empty = append(empty, fmt.Sprintf("%s: %s: %s", who, m.in, m.expr))
			}
		}
		if len(empty) > 0 {
			slices.Sort(empty)
			return fmt.Errorf("%d expressions have no answer:\n%s", len(empty), strings.Join(empty, "\n"))
		}
		return nil
	})
}

// slowness has the alerts that a machine with too few processors sets off for a moment. noneFires asks for the
// expressions alone, without the time for which they must hold.
var slowness = []string{"FreshetDown", "FreshetStale", "FreshetStageOverBudget", "FreshetGroupLogSlow",
	"FreshetNoLeader", "FreshetMemberLags", "FreshetClocksApart", "FreshetNodeUnreachable"}

// noneFires checks that no alert fires. In CI, slowness may.
func noneFires(t *testing.T, askers map[string]asker) {
	t.Helper()
	left := slices.Clone(slowness)
	for _, rule := range alertRules(t) {
		if i := slices.Index(left, rule.Alert); i >= 0 {
			if left = slices.Delete(left, i, i+1); !soak {
				continue
			}
		}
		for who, ask := range askers {
			if firing, err := ask(rule.Expr); err != nil || len(firing) > 0 && rule.Alert != "FreshetReloadFailed" {
				t.Errorf("%s: %s fires: %v %v", who, rule.Alert, firing, err)
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("there are no alerts %q", left)
	}
}

// checkForms checks that one Prometheus has only classic histograms and the other only native ones.
func checkForms(t *testing.T, askers map[string]asker) {
	t.Helper()
	for _, of := range []struct{ who, has, lacks string }{
		{"a Prometheus with its defaults", "freshet_stage_seconds_bucket", "freshet_stage_seconds"},
		{"a Prometheus with native histograms", "freshet_stage_seconds", "freshet_stage_seconds_bucket"},
	} {
		has, err := askers[of.who](of.has)
		lacks, err2 := askers[of.who](of.lacks)
		if err != nil || err2 != nil || len(has) == 0 || len(lacks) > 0 {
			t.Errorf("%s has %d series of %s (want some) and %d of %s (want none); errors %v, %v",
				of.who, len(has), of.has, len(lacks), of.lacks, err, err2)
		}
	}
}

// panelExpressions returns the expressions of deploy/grafana, with the values of variables filled
// in as Grafana does: `instance` is the value of $instance.
func panelExpressions(t *testing.T, instance string) (all []monitored) {
	t.Helper()
	files, err := filepath.Glob("../deploy/grafana/*.json")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				expr := strings.NewReplacer("$instance", instance, "$__rate_interval", "20s").Replace(target.Expr)
				all = append(all, monitored{filepath.Base(file) + ", " + panel.Title, expr})
			}
		}
	}
	return all
}

// alertParts returns the expressions that the alerts compare.
func alertParts(t *testing.T) (all []monitored) {
	t.Helper()
	for _, rule := range alertRules(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range compared(expr) {
			if !needsFault(part) {
				all = append(all, monitored{rule.Alert, part})
			}
		}
	}
	return all
}

// compared returns the parts of an expression that have a value even if a comparison is false. The
// classic and the native form of a histogram count as one part.
func compared(e parser.Expr) []string {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return compared(e.Expr)
	case *parser.NumberLiteral:
		return nil
	case *parser.BinaryExpr:
		quantile, is := e.LHS.(*parser.Call)
		if e.Op.IsComparisonOperator() || e.Op.IsSetOperator() && (!is || quantile.Func.Name != "histogram_quantile") {
			return append(compared(e.LHS), compared(e.RHS)...)
		}
	}
	return []string{e.String()}
}

// ofCluster reports whether only a cluster, but no single machine, can answer the expression.
func (m monitored) ofCluster() bool {
	return slices.ContainsFunc(ofClusters, func(part string) bool { return strings.Contains(m.expr, part) })
}

func needsFault(expr string) bool {
	for metric := range needFaults {
		if strings.Contains(expr, metric) {
			return true
		}
	}
	return false
}

// TestPromtool checks that Prometheus' own tool accepts deploy/alerts.yaml.
func TestPromtool(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "../.cache/promtool", "check", "rules",
		"../deploy/alerts.yaml").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "SUCCESS") {
		t.Errorf("promtool failed (`make test` installs it): %v\n%s", err, out)
	}
}

// Unit tests of rules are Prometheus' own: its tool runs them on the rules of docs/alerts.md.
func TestUnitTestsOfRules(t *testing.T) {
	t.Parallel()
	rules := shown(t, "docs/alerts.md", "yaml rules")
	const unit = `rule_files: [rules.yaml]
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
      - {series: 'queue_length{shop="north"}', values: '150x10'}
      - {series: 'orders', values: '0+15x10'}
    promql_expr_test:
      - {expr: 'shop:orders:rate', eval_time: 90s, exp_samples: [{labels: 'shop:orders:rate', value: 1}]}
    alert_rule_test:
      - {eval_time: 15s, alertname: QueueLong}
      - eval_time: 45s
        alertname: QueueLong
        exp_alerts:
          - exp_labels: {severity: page, shop: north}
            exp_annotations: {summary: '150 orders wait in SHOP'}
`
	for shop, want := range map[string]string{"north": "SUCCESS", "south": "FAILED"} {
		dir := t.TempDir()
		for name, text := range map[string]string{"rules.yaml": rules, "tests.yaml": strings.Replace(unit, "SHOP", shop, 1)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.CommandContext(t.Context(), "../.cache/promtool", "test", "rules",
			filepath.Join(dir, "tests.yaml")).CombinedOutput()
		if (err == nil) != (want == "SUCCESS") || !strings.Contains(string(out), want) {
			t.Errorf("a test that expects the shop %s: %v\n%s", shop, err, out)
		}
	}
}
