package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// grafanaPanel is what the test reads of a panel of Grafana.
type grafanaPanel struct {
	Title   string
	Targets []struct{ Expr string }
}

// mayBeEmpty are panels that show nothing where all is well.
var mayBeEmpty = []string{"Lost or refused"}

// TestDashboards asks a running Freshet each expression of deploy/grafana and of
// deploy/alerts.yaml, as Grafana and Prometheus would, of its own metrics.
func TestDashboards(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--self-interval", "1s", "--self-probe")
	files, err := filepath.Glob("../deploy/grafana/*.json")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	flood(t, "udp", p.UDP, 1000, 1000, func(packet []byte, _ int) []byte { return append(packet, "dashboards:1|c\n"...) })
	eventually(t, 2*time.Minute, "every panel shows something", func() error {
		if status, text, _, err := p.write("application/x-protobuf", pack(t, v1Of(requestV2(time.Now().UnixMilli(), 1, "dashboards_written")))); err != nil || status != http.StatusNoContent {
			return fmt.Errorf("%d %s %v", status, text, err)
		}
		increment(t, p, "dashboards", 1)
		var empty []string
		for _, file := range files {
			text, err := os.ReadFile(file)
			var d struct{ Panels []grafanaPanel }
			if err == nil {
				err = json.Unmarshal(text, &d)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, panel := range d.Panels {
				shows := panel.Targets == nil || strings.Contains(strings.Join(mayBeEmpty, "\n"), panel.Title)
				for _, target := range panel.Targets {
					expr := strings.NewReplacer("$instance", ".*", "$__rate_interval", "20s").Replace(target.Expr)
					results, err := p.self(expr)
					if err != nil {
						t.Fatalf("%s, %s: %v", file, panel.Title, err)
					}
					shows = shows || len(results) > 0
				}
				if !shows {
					empty = append(empty, panel.Title)
				}
			}
		}
		if len(empty) > 0 {
			return fmt.Errorf("nothing to see in %q", empty)
		}
		return nil
	})
	// All is well: no alert fires.
	for _, rule := range alertRules(t) {
		if firing, err := p.self(rule.Expr); err != nil || len(firing) > 0 && rule.Alert != "FreshetReloadFailed" {
			t.Errorf("%s: %v %v", rule.Alert, firing, err)
		}
	}
}

// TestPromtool has Prometheus' own tool read the rules.
func TestPromtool(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "../.cache/promtool", "check", "rules", "../deploy/alerts.yaml").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "SUCCESS") {
		t.Errorf("%v; `make test` installs promtool\n%s", err, out)
	}
}
