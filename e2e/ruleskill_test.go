package e2e

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// killRules has rules for the feed. Its alerts are pending or fire while the server is killed: Pends for
// the whole test, Soon for some of it.
const killRules = feedRules + `
- name: slow
  interval: 10s
  rules:
  - {alert: Pends, expr: "level > 0", for: 10h}
  - {alert: Soon, expr: "level > 0", for: %s}
  - {alert: Kept, expr: "level > 0 and on() vector(time()) < %d", keep_firing_for: 10h}
`

// TestKillsLeaveRulesAlone kills the server every 30 s. The Alertmanager must see what it sees without
// kills, and recordings must be whole: the rules go on where they were, and wait for what their sender
// could not send meanwhile.
func TestKillsLeaveRulesAlone(t *testing.T) {
	t.Parallel() // it mostly waits
	lasting, pending := 2*time.Minute, 40*time.Second
	if soak {
		lasting, pending = 15*time.Minute, 5*time.Minute
	}
	am := startAlertmanager(t, freeAddress(t))
	dir, address := dataDir(t), freeAddress(t)
	write(t, filepath.Join(dir, "freshet.yaml"), fmt.Sprintf("rules:\n  files: [%s/rules.yaml]\n"+
		"  alertmanagers: [{targets: [%s]}]\n", dir, am.HTTP))
	write(t, filepath.Join(dir, "rules.yaml"), feedRules)
	run := func() *process {
		return start(t, dir, "--config", filepath.Join(dir, "freshet.yaml"), "--http-listen", address)
	}
	p := run()
	startFeed(t, p)
	reach(time.Now().Add(30 * time.Second)) // ranges are full; before, the traffic was indeed low
	eventually(t, time.Minute, "the alert of level fires alone", func() error { return firesAlone(am, "AlwaysOn") })
	write(t, filepath.Join(dir, "rules.yaml"), fmt.Sprintf(killRules, pending, time.Now().Unix()+60))
	if status, text := p.post(t, "/-/reload"); status != 200 {
		t.Fatalf("the reload answers %d: %s", status, text)
	}
	eventually(t, time.Minute, "the new alerts are there", func() error {
		return p.expect(`count(ALERTS{alertname=~"Pends|Soon"})`, 2, 0)
	})
	changes := watchAlerts(t, am)
	begun := time.Now()
	for next := begun; time.Since(begun) < lasting; {
		next = next.Add(30 * time.Second)
		reach(next)
		p.kill(t)
		p = run()
	}
	eventually(t, 3*time.Minute, "all alerts fire that must", func() error { return firesAlone(am, "AlwaysOn Kept Soon") })
	eventually(t, 3*time.Minute, "no group waits", p.noGroupWaits)
	ended := time.Now().Add(-10 * time.Second)

	log := slices.DeleteFunc(changes(), func(s string) bool { return strings.Contains(s, "FreshetRulesWaiting") })
	order := []string{"AlwaysOn", "AlwaysOn Kept", "AlwaysOn Kept Soon"}
	if !slices.IsSortedFunc(log, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) }) ||
		slices.ContainsFunc(log, func(s string) bool { return !slices.Contains(order, s) }) {
		t.Errorf("the Alertmanager saw %q; want AlwaysOn, then Kept, then Soon to fire, and nothing else", log)
	}
	for name, want := range map[string]float64{"c:increase": 200, "c:increase:double": 400} {
		checkRecording(t, p, name, want, begun, ended)
	}
	all, err := am.firing()
	if err != nil {
		t.Fatal(err)
	}
	for name, hold := range map[string]time.Duration{"Pends": -1, "Soon": pending, "Kept": 0} {
		active := p.activeSince(t, name)
		if hold >= 0 && !all[name].StartsAt.Equal(active.Add(hold)) {
			t.Errorf("%s fires since %v, want %v after %v", name, all[name].StartsAt, hold, active)
		}
	}
}

// firesAlone checks which alerts fire.
func firesAlone(am *process, want string) error {
	all, err := am.firing()
	if err != nil {
		return err
	}
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != want {
		return fmt.Errorf("firing are %s, want %s", got, want)
	}
	return nil
}

// activeSince returns when an alert became active. It must never have changed.
func (p *process) activeSince(t *testing.T, name string) (since time.Time) {
	t.Helper()
	var data struct{ Result []result }
	query := fmt.Sprintf(`ALERTS_FOR_STATE{alertname=%q}[30m]`, name)
	if err := p.ask("/api/v1/query", url.Values{"query": {query}}, &data); err != nil || len(data.Result) != 1 {
		t.Fatalf("%s: %v, error %v", query, data, err)
	}
	for _, s := range data.Result[0].Values {
		at := time.Unix(int64(s.V), 0)
		if !since.IsZero() && !at.Equal(since) {
			t.Errorf("the time of alert %s begins again: it is active since %v, and since %v", name, since, at)
			return since
		}
		since = at
	}
	return since
}
