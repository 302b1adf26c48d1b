package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// setRules sends a request as mimirtool and Grafana do, to a path below the API of rules.
func (p *process) setRules(t *testing.T, method, path, body string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.HTTP+"/prometheus/config/v1/rules"+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Scope-OrgID", "anonymous") // mimirtool always sends a tenant
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(all)
}

// mustSet sends a request that must be accepted.
func (p *process) mustSet(t *testing.T, method, path, body string) {
	t.Helper()
	if status, text := p.setRules(t, method, path, body); status != http.StatusAccepted {
		t.Fatalf("%s %s: status %d: %s", method, path, status, text)
	}
}

// setGroups compares the groups that are set, as NAMESPACE/GROUP.
func (p *process) setGroups(t *testing.T, want ...string) {
	t.Helper()
	status, text := p.setRules(t, http.MethodGet, "", "")
	if status != http.StatusOK {
		t.Fatalf("list the rules: status %d: %s", status, text)
	}
	var got []string
	namespace := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if name, is := strings.CutPrefix(line, "    - name: "); is {
			got = append(got, namespace+"/"+name)
		} else if !strings.HasPrefix(line, " ") {
			namespace = strings.TrimSuffix(line, ":")
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the groups %q are set, want %q", got, want)
	}
}

// TestRulesByAPI loads, lists, gets, syncs and deletes rules as mimirtool does, beside rules of a file, while
// the server is killed and restored from a backup. An alert that fires goes on, and nothing that was answered
// is lost.
func TestRulesByAPI(t *testing.T) {
	t.Parallel() // it mostly waits
	am := startAlertmanager(t, freeAddress(t))
	ofAFile := "groups: [{name: of a file, interval: 1s, rules: [{record: seven, expr: vector(7)}]}]"
	p, file := ruleServer(t, ofAFile, am.HTTP)
	config := filepath.Join(p.dataDir, "freshet.yaml")

	// load: mimirtool looks for each group, and sends it if it is not there.
	namespace := "/team%2Fa"
	if status, text := p.setRules(t, http.MethodGet, namespace+"/alerts", ""); status != http.StatusNotFound ||
		text != "group does not exist\n" {
		t.Errorf("a group that does not exist: status %d, %q", status, text)
	}
	alerts := "name: alerts\ninterval: 1s\nrules:\n    - record: eight\n      expr: seven + 1\n" +
		"    - alert: Eight\n      expr: eight > 7\n      labels:\n        severity: page\n"
	p.mustSet(t, http.MethodPost, namespace, alerts)
	p.mustSet(t, http.MethodPost, namespace, "{name: other, rules: [{record: nine, expr: vector(9)}]}")
	p.mustSet(t, http.MethodPost, "/second", "{name: g, rules: [{record: ten, expr: vector(10)}]}")

	// get, and diff: mimirtool compares what it gets with its files.
	if status, text := p.setRules(t, http.MethodGet, namespace+"/alerts", ""); status != http.StatusOK || text != alerts {
		t.Errorf("the group has status %d and is\n%s\nwant\n%s", status, text, alerts)
	}
	p.setGroups(t, "second/g", "team/a/alerts", "team/a/other")
	eventually(t, time.Minute, "the alert fires", func() error { return firesAlone(am, "Eight") })

	// Acknowledged rules are there after a kill, and the alert goes on.
	since, err := am.firing()
	if err != nil {
		t.Fatal(err)
	}
	p.mustSet(t, http.MethodDelete, "/second", "")
	p.kill(t)
	p = start(t, p.dataDir, "--config", config)
	p.setGroups(t, "team/a/alerts", "team/a/other")
	var active struct{ Alerts []struct{ State string } }
	eventually(t, time.Minute, "the alert fires after the kill", func() error {
		if err := p.ask("/api/v1/alerts", nil, &active); err != nil {
			return err
		}
		if len(active.Alerts) != 1 || active.Alerts[0].State != "firing" {
			return fmt.Errorf("alerts are %v", active)
		}
		return firesAlone(am, "Eight")
	})
	if now, err := am.firing(); err != nil || !now["Eight"].StartsAt.Equal(since["Eight"].StartsAt) {
		t.Errorf("the alert fires since %v, error %v; before the kill it fired since %v", now["Eight"].StartsAt, err,
			since["Eight"].StartsAt)
	}

	// A backup has the rules.
	snapshot, restored := filepath.Join(dataDir(t), "snapshot"), filepath.Join(dataDir(t), "data")
	runFreshet(t, "backup", snapshot, "--server", "http://"+p.HTTP)
	runFreshet(t, "restore", snapshot, "--data-dir", restored)
	again := start(t, restored)
	again.setGroups(t, "team/a/alerts", "team/a/other")
	again.terminate(t)

	// sync: mimirtool sends what differs, and deletes what its files do not have.
	p.mustSet(t, http.MethodDelete, namespace+"/other", "")
	p.mustSet(t, http.MethodPost, namespace, strings.ReplaceAll(alerts, "eight > 7", "eight > 8"))
	p.setGroups(t, "team/a/alerts")
	eventually(t, time.Minute, "the alert is resolved by the changed rule", func() error { return firesAlone(am, "") })

	p.mustSet(t, http.MethodDelete, namespace, "")
	status, text := p.setRules(t, http.MethodGet, "", "")
	if status != http.StatusNotFound || text != "no rule groups found\n" {
		t.Errorf("without rules: status %d, %q", status, text)
	}
	var rules struct{ Groups []struct{ File, Name string } }
	if err := p.ask("/api/v1/rules", nil, &rules); err != nil || len(rules.Groups) != 1 || rules.Groups[0].File != file {
		t.Errorf("groups are %v, error %v; want the one of the file", rules, err)
	}
	left, err := os.ReadDir(filepath.Join(p.dataDir, "rules", "default"))
	if err != nil || len(left) > 0 {
		t.Errorf("the files %v are left, error %v", left, err)
	}
}
