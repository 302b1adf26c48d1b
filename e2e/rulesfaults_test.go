package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serveRules starts a server with a section `rules`.
func serveRules(t *testing.T, dir, section string, args ...string) *process {
	t.Helper()
	config := filepath.Join(dir, "freshet.yaml")
	write(t, config, "rules: "+section+"\n")
	return start(t, dir, append([]string{"--config", config}, args...)...)
}

// TestADeadSenderFiresAlerts ends a sender for good. Rules wait for it until rules.sender_timeout, and then
// take its silence for what it is.
func TestADeadSenderFiresAlerts(t *testing.T) {
	t.Parallel() // it mostly waits
	const timeout, interval = 40 * time.Second, 5 * time.Second
	am := startAlertmanager(t, freeAddress(t))
	dir := dataDir(t)
	write(t, filepath.Join(dir, "rules.yaml"), feedRules)
	p := serveRules(t, dir, fmt.Sprintf("{files: [%s/rules.yaml], sender_timeout: %v, alertmanagers: [{targets: [%q]}]}",
		dir, timeout, am.HTTP))
	f := startFeed(t, p)
	reach(time.Now().Add(30 * time.Second)) // ranges are full
	eventually(t, time.Minute, "the alert of level fires alone", func() error { return firesAlone(am, "AlwaysOn") })
	f.end()
	dead := time.Now()
	reach(dead.Add(timeout - 5*time.Second))
	if err := firesAlone(am, "AlwaysOn"); err != nil && time.Since(dead) < timeout {
		t.Errorf("before rules.sender_timeout: %v", err)
	}
	var silent notification
	eventually(t, 4*time.Minute, "the alert about silence fires", func() error {
		all, err := am.firing()
		var fires bool
		if silent, fires = all["Silent"]; err == nil && !fires {
			err = fmt.Errorf("firing are %v", all)
		}
		return err
	})
	if after := silent.StartsAt.Sub(dead); after > timeout+interval {
		t.Errorf("the alert fires as of %v after the last request, want at most %v", after, timeout+interval)
	}
	t.Logf("the alert came after %v, as of %v", time.Since(dead).Round(time.Second), silent.StartsAt.Sub(dead))
	p.says(t, "a sender is gone: rules no longer wait for its data")
	if n := strings.Count(p.output.String(), "a sender is gone"); n != 1 {
		t.Errorf("the log says %d times that the sender is gone, want once", n)
	}
	if n, err := p.ownMetric("freshet_rules_senders_gone_total"); err != nil || n != 1 {
		t.Errorf("freshet_rules_senders_gone_total is %v, error %v; want 1", n, err)
	}
}

// TestBrokenAlertmanagersDelayNoOther has an Alertmanager that hangs and one that is down, besides a good
// one. The good one hears at once, and the one that was down hears of what fires once it is there.
func TestBrokenAlertmanagersDelayNoOther(t *testing.T) {
	t.Parallel() // it mostly waits
	good, down := startAlertmanager(t, freeAddress(t)), freeAddress(t)
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts, so requests get no answer
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	dir := dataDir(t)
	write(t, filepath.Join(dir, "rules.yaml"), "groups: [{name: g, interval: 5s, rules: [{alert: On, expr: vector(1)}]}]")
	p := serveRules(t, dir, fmt.Sprintf("{files: [%s/rules.yaml], alertmanagers: [{targets: [%q, %q, %q]}]}", dir,
		hangs.Addr(), down, good.HTTP))
	eventually(t, time.Minute, "the good Alertmanager hears of the alert", func() error { return firesAlone(good, "On") })
	for _, broken := range []string{hangs.Addr().String(), down} {
		eventually(t, time.Minute, "failures of "+broken+" are counted", func() error {
			metrics, err := p.get("/metrics", nil)
			sample := fmt.Sprintf(`prometheus_notifications_errors_total{alertmanager="http://%s/api/v2/alerts",`, broken)
			for line := range strings.Lines(string(metrics)) {
				if strings.HasPrefix(line, sample) && !strings.HasSuffix(line, " 0\n") {
					return nil
				}
			}
			return errors.Join(err, errors.New("no failure is counted"))
		})
	}
	if soak {
		reach(time.Now().Add(10 * time.Minute))
	}
	eventually(t, time.Minute, "the ledger has what was dropped", func() error {
		var books struct {
			Notifications []struct {
				Alertmanager  string
				Sent, Dropped uint64
			}
		}
		if err := p.ask("/api/v1/status/ledger", nil, &books); err != nil {
			return err
		}
		for _, n := range books.Notifications {
			isGood := strings.Contains(n.Alertmanager, good.HTTP)
			if isGood != (n.Sent > 0) || isGood != (n.Dropped == 0) {
				return fmt.Errorf("the notifications are %+v", books.Notifications)
			}
		}
		if len(books.Notifications) != 3 {
			return fmt.Errorf("the notifications are %+v, want those of three Alertmanagers", books.Notifications)
		}
		return nil
	})
	begun := time.Now()
	late := startAlertmanager(t, down)
	eventually(t, 5*time.Minute, "the Alertmanager that was down hears of the alert", func() error {
		return firesAlone(late, "On")
	})
	t.Logf("heard %v after it was there", time.Since(begun).Round(time.Second))
	if err := firesAlone(good, "On"); err != nil {
		t.Errorf("at the good Alertmanager meanwhile: %v", err)
	}
}

// TestAThousandGroups evaluates a thousand groups, and goes on with all of them after a kill.
func TestAThousandGroups(t *testing.T) {
	t.Parallel() // it mostly waits
	const groups = 1000
	var rules strings.Builder
	rules.WriteString("groups:\n")
	for n := range groups {
		fmt.Fprintf(&rules, "- {name: g%d, interval: 30s, rules: [{record: r, expr: vector(1), labels: {n: 'n%[1]d'}}, "+
			"{alert: A, expr: 'r{n=\"n%[1]d\"} > 0', for: 1h}]}\n", n)
	}
	dir := dataDir(t)
	write(t, filepath.Join(dir, "rules.yaml"), rules.String())
	p := serveRules(t, dir, fmt.Sprintf("{files: [%s/rules.yaml]}", dir))
	healthy := func() error { return p.rulesAreHealthy("/api/v1/rules", groups) }
	active := func() error { return p.expect("count(ALERTS_FOR_STATE)", groups, 0) }
	eventually(t, 5*time.Minute, "all groups are evaluated", healthy)
	eventually(t, 5*time.Minute, "all alerts are pending", active)
	before, err := p.value("sum(ALERTS_FOR_STATE)")
	if err != nil {
		t.Fatal(err)
	}
	p.kill(t)
	p = serveRules(t, dir, fmt.Sprintf("{files: [%s/rules.yaml]}", dir))
	eventually(t, 5*time.Minute, "all groups are evaluated again", healthy)
	eventually(t, 5*time.Minute, "alerts are active since the same times", func() error {
		return p.expect("sum(ALERTS_FOR_STATE)", before, 0)
	})
}

// rulesAreHealthy checks that there are so many groups, and that the rules of all were evaluated well.
func (p *process) rulesAreHealthy(path string, groups int) error {
	seen, token := 0, ""
	for first := true; first || token != ""; first = false {
		params := url.Values{"group_limit": {"300"}}
		if token != "" {
			params.Set("group_next_token", token)
		}
		var page struct {
			Groups []struct {
				Name  string
				Rules []struct{ Name, Health, LastError string }
			}
			GroupNextToken string
		}
		if err := p.ask(path, params, &page); err != nil {
			return err
		}
		for _, g := range page.Groups {
			for _, r := range g.Rules {
				if r.Health != "ok" {
					return fmt.Errorf("rule %s of group %s has the health %s: %s", r.Name, g.Name, r.Health, r.LastError)
				}
			}
		}
		seen, token = seen+len(page.Groups), page.GroupNextToken
	}
	if seen != groups {
		return fmt.Errorf("%d groups, want %d", seen, groups)
	}
	return nil
}

// TestOwnAlerts loads deploy/alerts.yaml for Freshet's own metrics, as docs/operations.md shows it.
func TestOwnAlerts(t *testing.T) {
	t.Parallel() // it mostly waits
	file, err := filepath.Abs("../deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := serveRules(t, dataDir(t), fmt.Sprintf("{interval: 5s, tenants: {freshet: {files: [%s]}}}", file),
		"--self-metrics")
	eventually(t, 4*time.Minute, "all rules are evaluated", func() error {
		return p.rulesAreHealthy("/self/api/v1/rules", 1)
	})
	eventually(t, time.Minute, "the alerts see Freshet's own metrics", func() error {
		var all struct {
			Alerts []struct{ Labels map[string]string }
		}
		if err := p.ask("/self/api/v1/alerts", nil, &all); err != nil {
			return err
		}
		for _, a := range all.Alerts {
			if a.Labels["alertname"] == "FreshetDown" {
				return errors.New("FreshetDown is active")
			}
		}
		return nil
	})
}
