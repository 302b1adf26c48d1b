package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestANewLeaderGoesOnWithRules kills the leader of a cluster twice while alerts are pending and fire. The
// Alertmanager must see what it sees without kills, and recordings must be whole.
func TestANewLeaderGoesOnWithRules(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	kills, pending := 2, 40*time.Second
	if soak {
		kills, pending = 30, 5*time.Minute
	}
	c := newTrio(t)
	am, counted := startAlertmanager(t, "10.99.0.254:9093"), countNotifications(t)
	dir := dataDir(t)
	config, rules := filepath.Join(dir, "freshet.yaml"), filepath.Join(dir, "rules.yaml")
	write(t, config, fmt.Sprintf("rules: {files: [%s], alertmanagers: [{targets: [%q, %q]}]}\n", rules, am.HTTP,
		counted.address))
	write(t, rules, feedRules)
	for _, n := range nodeNames {
		c.dirs[n], c.extra[n] = dataDir(t), []string{"--config", config}
	}
	c.found()
	var turn atomic.Int64
	feedTo(t, func() *process { return c.node(nodeNames[int(turn.Add(1))%len(nodeNames)]) }, true)
	reach(time.Now().Add(30 * time.Second)) // ranges are full; before, the traffic was indeed low
	eventually(t, 2*time.Minute, "the alert of level fires alone", func() error { return firesAlone(am, "AlwaysOn") })
	write(t, rules, fmt.Sprintf(killRules, pending, time.Now().Unix()+90))
	for _, n := range nodeNames {
		if err := c.node(n).cmd.Process.Signal(syscall.SIGHUP); err != nil { // it reloads
			t.Fatal(err)
		}
	}
	eventually(t, time.Minute, "the new alerts are there", func() error {
		return c.node("a").expect(`count(ALERTS{alertname=~"Pends|Soon"})`, 2, 0)
	})
	changes := watchAlerts(t, am)
	begun := time.Now()
	for n := range kills {
		reach(begun.Add(time.Duration(n) * 30 * time.Second))
		leader := c.leader()
		c.node(leader).kill(t)
		c.begin(leader)
	}
	eventually(t, 5*time.Minute, "all alerts fire that must", func() error { return firesAlone(am, "AlwaysOn Kept Soon") })
	eventually(t, 3*time.Minute, "no group waits", func() error {
		leader := c.leader()
		if leader == "" {
			return errors.New("no node leads")
		}
		return c.node(leader).noGroupWaits()
	})
	ended := time.Now().Add(-10 * time.Second)

	log := slices.DeleteFunc(changes(), func(s string) bool { return strings.Contains(s, "FreshetRulesWaiting") })
	order := []string{"AlwaysOn", "AlwaysOn Kept", "AlwaysOn Kept Soon"}
	if !slices.IsSortedFunc(log, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) }) ||
		slices.ContainsFunc(log, func(s string) bool { return !slices.Contains(order, s) }) {
		t.Errorf("the Alertmanager saw %q; want AlwaysOn, then Kept, then Soon to fire, and nothing else", log)
	}
	counted.check(t)
	p := c.node("b")
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

// notifications are what a second Alertmanager got.
type notifications struct {
	address string

	mu  sync.Mutex
	got map[string][]time.Time // by alert and state
}

// countNotifications starts an Alertmanager that only counts, at the bridge between the machines.
func countNotifications(t *testing.T) *notifications {
	t.Helper()
	listener, err := net.Listen("tcp", "10.99.0.254:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &notifications{address: listener.Addr().String(), got: map[string][]time.Time{}}
	s := &http.Server{Handler: n}
	go func() { _ = s.Serve(listener) }() // ends by Close
	t.Cleanup(func() { _ = s.Close() })
	return n
}

func (n *notifications) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var all []struct {
		Labels           map[string]string
		StartsAt, EndsAt time.Time
	}
	if json.NewDecoder(r.Body).Decode(&all) != nil {
		return // the sender was killed
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for _, a := range all {
		state := "fires"
		if !a.EndsAt.After(now) {
			state = "is resolved"
		}
		key := fmt.Sprintf("%s %s, since %s", a.Labels["alertname"], state, a.StartsAt.Format(time.RFC3339Nano))
		n.got[key] = append(n.got[key], now)
	}
}

// check fails the test if a notification came more than twice. A process sends the same one at most every 30 s, and
// processes are killed every 30 s: so one that was killed may have sent what the next one sends again.
func (n *notifications) check(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.got) == 0 {
		t.Error("the second Alertmanager got nothing")
	}
	for key, at := range n.got {
		twice := 0
		for i := range at {
			if i > 0 && at[i].Sub(at[i-1]) < 25*time.Second {
				twice++
			}
			if i > 1 && at[i].Sub(at[i-2]) < 25*time.Second {
				t.Errorf("%s: was sent at %v, %v and %v, want at most twice", key, at[i-2], at[i-1], at[i])
			}
		}
		t.Logf("%s: sent %d times, %d of them again", key, len(at), twice)
	}
}
