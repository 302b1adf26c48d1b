package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stallIntervals are the intervals of the groups in stallRules.
var stallIntervals = []time.Duration{5 * time.Second, 15 * time.Second}

// stallRules has the groups of feedRules with each interval.
func stallRules() string {
	var b strings.Builder
	b.WriteString("groups:\n")
	for _, interval := range stallIntervals {
		fmt.Fprintf(&b, `
- name: recorded_%[1]v
  interval: %[1]v
  rules:
  - {record: "c:increase:%[1]v", expr: "sum(increase(c[20s]))"}
  - {record: "c:increase:double:%[1]v", expr: "2 * c:increase:%[1]v"}
- name: alerts_%[1]v
  interval: %[1]v
  rules:
  - {alert: TrafficFell_%[1]v, expr: "sum(rate(c[20s])) < 5"}
  - {alert: Silent_%[1]v, expr: "absent_over_time(c[30s])"}
  - {alert: AlwaysOn_%[1]v, expr: "level > 0"}
`, interval)
	}
	return b.String()
}

// alwaysOn are the alerts of stallRules that fire while the feed is whole.
const alwaysOn = "AlwaysOn_15s AlwaysOn_5s"

// ruled is a server that evaluates stallRules, and its Alertmanager.
type ruled struct {
	name         string
	server       *process
	alertmanager *process
}

// stalled has Freshet and a Prometheus, whose rules go by the clock. Both have the same rules and the same feed.
type stalled struct {
	*testing.T
	freshet, prometheus ruled
	feed                *feed // of Freshet
	reason              string
	stall               func(bool) // holds back the data of the feed, or lets them go
}

// newStalled starts both servers. The caller starts their feeds.
func newStalled(t *testing.T, reason string) *stalled {
	t.Helper()
	s := &stalled{T: t, reason: reason}
	am := startAlertmanager(t, freeAddress(t))
	p, file := ruleServer(t, stallRules(), am.HTTP)
	s.freshet = ruled{"Freshet", p, am}
	am = startAlertmanager(t, freeAddress(t))
	p = startPrometheus(t, fmt.Sprintf("rule_files: [%s]\n"+
		"alerting: {alertmanagers: [{static_configs: [{targets: [%q]}]}]}\n", file, am.HTTP),
		"--web.enable-remote-write-receiver")
	s.prometheus = ruled{"Prometheus", p, am}
	return s
}

// TestRulesWaitForTheirData stalls a sender for longer than the ranges of the rules. By the clock, alerts fire and
// recordings have holes, which the test prints for Prometheus. In Freshet all is as if there had been no stall.
func TestRulesWaitForTheirData(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newStalled(t, "silent")
	s.feed = startFeed(t, s.freshet.server)
	beside := startFeed(t, s.prometheus.server)
	s.stall = func(stalled bool) {
		s.feed.stalled.Store(stalled)
		beside.stalled.Store(stalled)
	}
	s.run()
}

// TestRulesWaitForSendersThatWereSentBack does the same with a sender that gets a 503: it holds data
// because the server told it to.
func TestRulesWaitForSendersThatWereSentBack(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newStalled(t, "refused")
	config := filepath.Join(s.freshet.server.dataDir, "freshet.yaml")
	usual, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	s.feed = startFeed(t, s.freshet.server)
	beside := startFeed(t, s.prometheus.server)
	s.stall = func(stalled bool) {
		text := string(usual)
		if stalled {
			text += "distributor: {rate: 1}\n"
		}
		write(t, config, text)
		if status, text := s.freshet.server.post(t, "/-/reload"); status != http.StatusOK {
			t.Fatalf("the reload answers %d: %s", status, text)
		}
		beside.stalled.Store(stalled)
		if stalled { // more than the rate allows in an hour: all that follows is refused
			flood := pack(t, requestV2(time.Now().UnixMilli(), 1, numbered("flood", 4000)...))
			if status, text, _, err := s.freshet.server.write(remoteWriteV2, flood); err != nil ||
				status != http.StatusNoContent && status != http.StatusServiceUnavailable { // an earlier flood still counts
				t.Fatalf("the flood: %d %s, error %v", status, text, err)
			}
		}
	}
	s.run()
}

// numbered returns the names of n metrics.
func numbered(name string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s_%d", name, i))
	}
	return all
}

// TestRulesWaitForAStoppedCollector does the same with a collector on the way, which gets the feed and sends it on
// to both servers. It is stopped by SIGSTOP.
func TestRulesWaitForAStoppedCollector(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newStalled(t, "silent")
	dir := dataDir(t)
	config := filepath.Join(dir, "freshet.yaml")
	backend := "    - {name: %s, url: 'http://%s/api/v1/write', protocol: '2.0'}\n"
	write(t, config, "forward:\n  backends:\n"+fmt.Sprintf(backend, "freshet", s.freshet.server.HTTP)+
		fmt.Sprintf(backend, "prometheus", s.prometheus.server.HTTP))
	collector := start(t, dir, "--config", config, "--self-metrics=false")
	s.feed = startFeed(t, collector)
	s.stall = func(stalled bool) {
		signal := syscall.SIGCONT
		if stalled {
			signal = syscall.SIGSTOP
		}
		if err := collector.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	s.run()
}

// run stalls the feed once; a soak also stalls it for 4 min, and for 6, which is longer than rules.sender_timeout.
func (s *stalled) run() {
	s.Helper()
	reach(time.Now().Add(30 * time.Second)) // ranges are full; before, the traffic was indeed low
	s.alwaysOn()
	s.checkStall(time.Minute)
	if soak {
		s.checkStall(4 * time.Minute)
		s.checkGone(6 * time.Minute)
	}
}

// alwaysOn waits until the alerts of a whole feed fire alone, at both Alertmanagers.
func (s *stalled) alwaysOn() {
	s.Helper()
	for _, r := range []ruled{s.freshet, s.prometheus} {
		eventually(s.T, 3*time.Minute, "the alerts of level fire alone, in "+r.name, func() error {
			return firesAlone(r.alertmanager, alwaysOn)
		})
	}
}

// checkStall stalls the feed, and checks that the rules wait and miss nothing.
func (s *stalled) checkStall(lasting time.Duration) {
	s.Helper()
	seen := map[string]func() []firingSet{}
	for _, r := range []ruled{s.freshet, s.prometheus} {
		seen[r.name] = watchFiring(s.T, r.alertmanager)
	}
	begun := time.Now()
	s.stall(true)
	stalled := time.UnixMilli(s.feed.taken.Load())
	s.awaitStale(stalled, lasting)
	reach(begun.Add(lasting))
	s.stall(false)
	ended := time.Now()
	eventually(s.T, 3*time.Minute, "no group waits", s.freshet.server.noGroupWaits)
	s.Logf("%v, %s: caught up after %v", lasting, s.reason, time.Since(ended).Round(time.Second))
	reach(time.Now().Add(10 * time.Second))

	for _, r := range []ruled{s.freshet, s.prometheus} {
		log := seen[r.name]()
		due, missing, wrong, faults := s.recordings(r.server, begun, ended)
		s.Logf("%v, %s: %s has %d false alerts, %d false resolves, %d of %d slots missing and %d wrong", lasting, s.reason,
			r.name, falseAlerts(log), falseResolves(log), missing, due, wrong)
		if r.name == s.prometheus.name {
			continue
		}
		if falseAlerts(log)+falseResolves(log) > 0 {
			s.Errorf("the Alertmanager saw %v; want %s to fire throughout, and nothing else", log, alwaysOn)
		}
		for _, fault := range faults {
			s.Error(fault)
		}
	}
	s.alwaysOn()
}

// awaitStale waits until groups are stale. They must be within two intervals and 35 s from the last data.
func (s *stalled) awaitStale(stalled time.Time, lasting time.Duration) {
	s.Helper()
	since := map[string]time.Duration{}
	for _, interval := range stallIntervals {
		limit := 2*interval + 35*time.Second
		if limit >= lasting {
			continue
		}
		eventually(s.T, 2*time.Minute, fmt.Sprintf("both groups of %v are stale", interval), func() error {
			late, err := s.notice(stalled, since)
			switch {
			case err != nil:
				return err
			case since[fmt.Sprint("recorded_", interval)] == 0, since[fmt.Sprint("alerts_", interval)] == 0:
				return fmt.Errorf("stale are %v", since)
			case !late[s.reason]:
				return fmt.Errorf("late are %v, want %s", late, s.reason)
			}
			return nil
		})
		for _, kind := range []string{"recorded_", "alerts_"} {
			after := since[kind+interval.String()]
			s.Logf("%v, %s: %s%v is stale after %v, allowed are %v", lasting, s.reason, kind, interval,
				after.Round(100*time.Millisecond), limit)
			if soak && after > limit {
				s.Errorf("%s%v is stale after %v, want at most %v", kind, interval, after, limit)
			}
		}
	}
	if n, err := s.freshet.server.ownMetric("freshet_rules_stale_groups"); err != nil || n < float64(len(since)) {
		s.Errorf("freshet_rules_stale_groups is %v, error %v; want %d", n, err, len(since))
	}
}

// notice notes after what time each stale group was first seen to be stale. It returns why data are late.
func (s *stalled) notice(stalled time.Time, since map[string]time.Duration) (late map[string]bool, err error) {
	var state waitingState
	if err := s.freshet.server.ask("/api/v1/status/rules", nil, &state); err != nil {
		return nil, err
	}
	for _, g := range state.Waiting {
		if _, noted := since[g.Name]; g.Stale && !noted {
			since[g.Name] = time.Since(stalled)
		}
	}
	late = map[string]bool{}
	for _, l := range state.Late {
		late[l.Reason] = true
	}
	return late, nil
}

// recordings sums up the recordings of stallRules.
func (s *stalled) recordings(p *process, from, to time.Time) (due, missing, wrong int, faults []string) {
	s.Helper()
	for _, interval := range stallIntervals {
		for name, want := range map[string]float64{"c:increase:": 200, "c:increase:double:": 400} {
			found, err := p.slots(name+interval.String(), want, interval, from, to)
			if err != nil {
				s.Fatal(err)
			}
			due, missing, wrong = due+found.due, missing+found.missing, wrong+found.wrong
			faults = append(faults, found.faults...)
		}
	}
	return due, missing, wrong, faults
}

// falseAlerts counts the alerts that began to fire, though the feed was only late.
func falseAlerts(log []firingSet) (n int) {
	before := strings.Fields(alwaysOn)
	for _, c := range log {
		now := strings.Fields(c.names)
		for _, name := range now {
			if !slices.Contains(before, name) && name != "FreshetRulesWaiting" && !strings.HasPrefix(name, "AlwaysOn") {
				n++
			}
		}
		before = now
	}
	return n
}

// falseResolves counts the alerts that ceased to fire, though their condition holds.
func falseResolves(log []firingSet) (n int) {
	before := strings.Fields(alwaysOn)
	for _, c := range log {
		now := strings.Fields(c.names)
		for _, name := range before {
			if !slices.Contains(now, name) && strings.HasPrefix(name, "AlwaysOn") {
				n++
			}
		}
		before = now
	}
	return n
}

// checkGone stalls the feed for longer than rules.sender_timeout. Until then nothing changes. Afterwards the data
// count as absent, and Freshet says why.
func (s *stalled) checkGone(lasting time.Duration) {
	s.Helper()
	const timeout = 5 * time.Minute // the default
	ours, theirs := watchFiring(s.T, s.freshet.alertmanager), watchFiring(s.T, s.prometheus.alertmanager)
	begun := time.Now()
	s.stall(true)
	stalled := time.UnixMilli(s.feed.taken.Load())
	s.awaitStale(stalled, lasting)
	reach(begun.Add(lasting))
	var state waitingState
	if err := s.freshet.server.ask("/api/v1/status/rules", nil, &state); err != nil || len(state.Gone) == 0 {
		s.Errorf("after %v the state is %+v, error %v; want the sender to be gone", lasting, state, err)
	}
	s.freshet.server.says(s.T, "a sender is gone: rules no longer wait for its data")
	s.stall(false)
	s.alwaysOn()
	log := ours()
	for _, c := range log {
		s.Logf("%v, %s: Freshet, after %v: %s", lasting, s.reason, c.at.Sub(stalled).Round(time.Second), c.names)
		if c.names != alwaysOn && c.names != alwaysOn+" FreshetRulesWaiting" && c.at.Before(stalled.Add(timeout)) {
			s.Errorf("%s fire %v after the last data, before the sender is gone", c.names, c.at.Sub(stalled))
		}
	}
	if !slices.ContainsFunc(log, func(c firingSet) bool { return strings.Contains(c.names, "Silent_15s Silent_5s") }) {
		s.Errorf("the Alertmanager saw %v; want the alerts about silence", log)
	}
	for _, c := range theirs() {
		s.Logf("%v, %s: Prometheus, after %v: %s", lasting, s.reason, c.at.Sub(stalled).Round(time.Second), c.names)
	}
}
