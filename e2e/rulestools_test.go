package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
)

// TestBacktest checks that freshet rules backtest finds when an alert would have fired, on data that a
// server has stored.
func TestBacktest(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := dataDir(t)
	p := start(t, dir)
	begin := time.Now().Add(-40 * time.Minute).Truncate(time.Minute)
	at := func(minute int) time.Time { return begin.Add(time.Duration(minute) * time.Minute) }
	level := prompb.TimeSeries{
		Labels: []prompb.Label{{Name: "__name__", Value: "level"}, {Name: "shop", Value: "north"}},
	}
	for ts := at(0); ts.Before(at(30)); ts = ts.Add(15 * time.Second) {
		value := 0.0
		if !ts.Before(at(10)) && ts.Before(at(20)) {
			value = 20
		}
		level.Samples = append(level.Samples, prompb.Sample{Timestamp: ts.UnixMilli(), Value: value})
	}
	request := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{level}}
	status, text, _, err := p.write(remoteWriteV1, pack(t, request))
	if err != nil || status/100 != 2 {
		t.Fatalf("write: status %d, %s, %v", status, text, err)
	}
	file := filepath.Join(dir, "tested.yaml")
	write(t, file, `
groups:
- name: shop
  interval: 15s
  rules:
  - {alert: LevelHigh, expr: level > 10, for: 2m, keep_firing_for: 1m}
  - {alert: Never, expr: level > 100}
`)
	args := []string{"rules", "backtest", "--rule", file, "--server", "http://" + p.HTTP,
		"--from", fmt.Sprint(begin.Unix()), "--to", fmt.Sprint(at(30).Unix())}
	var found struct {
		Alerts []struct {
			Alert   string
			Periods []struct {
				Labels                    map[string]string
				Pending, Firing, Resolved time.Time
			}
		}
	}
	if err := json.Unmarshal([]byte(command(t, append(args, "--json")...)), &found); err != nil {
		t.Fatal(err)
	}
	if len(found.Alerts) != 2 || len(found.Alerts[0].Periods) != 1 || len(found.Alerts[1].Periods) != 0 {
		t.Fatalf("found %+v, want one time of LevelHigh", found)
	}
	is := found.Alerts[0].Periods[0]
	if !is.Pending.Equal(at(10)) || !is.Firing.Equal(at(12)) || !is.Resolved.Equal(at(21)) ||
		is.Labels["shop"] != "north" {
		t.Errorf("LevelHigh is %+v, want pending at %v, firing 2 min and resolved 11 min later", is, at(10))
	}
	if out := command(t, args...); !strings.Contains(out, "LevelHigh: would have fired 1 time") ||
		!strings.Contains(out, "▒▒███") || !strings.Contains(out, "9m0s") {
		t.Errorf("printed:\n%s", out)
	}
}

// TestRulesDiff checks that freshet rules diff says what a reload changes, and nothing after it.
func TestRulesDiff(t *testing.T) {
	t.Parallel() // it mostly waits
	p, file := ruleServer(t, someRules)
	diff := func() (out string, code int) {
		t.Helper()
		cmd := exec.Command(freshet, "rules", "diff", file, "--server", "http://"+p.HTTP)
		text, err := cmd.Output()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(text), cmd.ProcessState.ExitCode()
	}
	if out, code := diff(); out != "" || code != 0 {
		t.Errorf("without a change: exit code %d, printed %s", code, out)
	}
	changed := strings.Replace(someRules, "level:double > 10", "level:double > 12", 1) +
		"- name: new\n  query_offset: 10s\n  rules: [{alert: Added, expr: level}]\n"
	write(t, file, changed)
	want := fmt.Sprintf("~ group alerts of %[1]s\n"+
		"    ~ alert LevelHigh: expr: level:double > 10 -> level:double > 12\n"+
		"+ group new of %[1]s\n    + alert Added\n", file)
	if out, code := diff(); out != want || code != 1 {
		t.Errorf("exit code %d, printed:\n%swant 1 and:\n%s", code, out, want)
	}
	if status, answer := p.post(t, "/-/reload"); status != http.StatusOK {
		t.Fatalf("reload: status %d, %s", status, answer)
	}
	if out, code := diff(); out != "" || code != 0 {
		t.Errorf("after the reload: exit code %d, printed %s", code, out)
	}
	write(t, file, "groups: [{name: g, rules: [{alert: A, expr: sum(}]}]")
	if out, code := diff(); out != "" || code != 2 {
		t.Errorf("of a file with a mistake: exit code %d, printed %s", code, out)
	}
}
