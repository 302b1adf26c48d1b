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
	am, counted := startAlertmanager(t, testAddress+":9093"), countNotifications(t)
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
	feedTo(t, func() *process { return c.node(nodeNames[int(turn.Add(1))%len(nodeNames)]) })
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
	listener, err := net.Listen("tcp", testAddress+":0")
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
// processes are killed every 30 s: so one that was killed may have sent what the next one sends again. In CI, where the
// machine may be busy, the leader may change once more.
func (n *notifications) check(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.got) == 0 {
		t.Error("the second Alertmanager got nothing")
	}
	most := 3
	if soak {
		most = 2
	}
	for key, at := range n.got {
		twice := 0
		for i := range at {
			if i > 0 && at[i].Sub(at[i-1]) < 25*time.Second {
				twice++
			}
			if i >= most && at[i].Sub(at[i-most]) < 25*time.Second {
				t.Errorf("%s: was sent at %v, want at most %d times", key, at[i-most:i+1], most)
			}
		}
		t.Logf("%s: sent %d times, %d of them again", key, len(at), twice)
	}
}

// TestRulesByAPIInACluster sets rules on one machine that founds a cluster, and then on nodes that do not lead. Each
// node lists what was answered, also after the leader has died, and the one that leads evaluates it. Late samples are
// still taken after results of now. A backup of one node has all rules.
func TestRulesByAPIInACluster(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := newTrio(t)
	for _, n := range nodeNames {
		c.dirs[n] = dataDir(t)
	}
	const old, first = "{name: g, interval: 1s, rules: [{record: old, expr: vector(1)}]}",
		"{name: first, interval: 1s, rules: [{record: first, expr: vector(2)}]}"
	p := c.alone("a", c.dirs["a"])
	p.mustSet(t, http.MethodPost, "/machine", old)
	p.terminate(t)
	c.found()
	c.listRules("machine/g")

	leader := c.leader()
	others := slices.DeleteFunc(slices.Clone(nodeNames), func(n string) bool { return n == leader })
	c.node(others[0]).mustSet(t, http.MethodPost, "/team%2Fa", first)
	c.node(others[1]).mustSet(t, http.MethodPost, "/team%2Fa", strings.ReplaceAll(first, "first", "second"))
	c.listRules("machine/g", "team/a/first", "team/a/second")
	c.evaluates(others[0], map[string]float64{"old": 1, "first": 2, "second": 2})
	// Results of now have a store of their own, and do not make late samples of a sender too old.
	late := time.Now().Add(-3 * time.Hour).UnixMilli()
	if status, text, _, err := c.node(others[1]).write(remoteWriteV2, pack(t, requestV2(late, 5, "late"))); status != 204 {
		t.Errorf("late samples: status %d, %q, error %v; want 204", status, text, err)
	}
	if err := c.node(leader).expect("last_over_time(late[4h])", 5, 0); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]string{
		"/team%2Fa/none": "group does not exist\n", "/none": "group namespace does not exist\n",
	} {
		if status, text := c.node(others[0]).setRules(t, http.MethodDelete, path, ""); status != http.StatusNotFound ||
			text != want {
			t.Errorf("delete %s: status %d, %q; want 404 and %q", path, status, text, want)
		}
	}

	c.kill(leader)
	c.changesRules(others[1], http.MethodDelete, "/machine", "")
	c.changesRules(others[0], http.MethodPost, "/team%2Fa", strings.ReplaceAll(first, "vector(2)", "vector(3)"))
	c.begin(leader) // rules wait for the collector of this node
	c.caughtUp()
	c.listRules("team/a/first", "team/a/second")
	c.evaluates(others[0], map[string]float64{"first": 3, "second": 2})
	c.statesAgree("a")

	backup := filepath.Join(t.TempDir(), "backup")
	runFreshet(t, "backup", backup, "--server", "unix:"+filepath.Join(c.dirs["b"], "operator.sock"))
	for _, node := range nodeNames {
		c.kill(node)
	}
	c.dirs["b"] = dataDir(t)
	runFreshet(t, "restore", backup, "--data-dir", c.dirs["b"], "--name", "b")
	c.begin("b")
	c.node("b").setGroups(t, "team/a/first", "team/a/second")
	for name, want := range map[string]float64{"last_over_time(late[4h])": 5, "last_over_time(second[1h])": 2} {
		if err := c.node("b").expect(name, want, 0); err != nil {
			t.Error(err)
		}
	}
}

// listRules checks that each node has the groups that are set, as NAMESPACE/GROUP.
func (c *trio) listRules(want ...string) {
	c.t.Helper()
	for _, n := range nodeNames {
		c.node(n).setGroups(c.t, want...)
	}
}

// changesRules repeats a change until it is accepted, as clients do while the nodes elect a leader.
func (c *trio) changesRules(node, method, path, body string) {
	c.t.Helper()
	eventually(c.t, time.Minute, "node "+node+" takes a change of rules", func() error {
		if status, text := c.node(node).setRules(c.t, method, path, body); status != http.StatusAccepted {
			return fmt.Errorf("status %d: %s", status, text)
		}
		return nil
	})
}

// evaluates waits until a node has the results of recording rules.
func (c *trio) evaluates(node string, all map[string]float64) {
	c.t.Helper()
	for name, want := range all {
		eventually(c.t, time.Minute, "the rule "+name+" is evaluated", func() error {
			return c.node(node).expect(name, want, 0)
		})
	}
}

// TestRulesWaitForSendersThatAnotherNodeSentBack cuts a node off that does not lead, which then asks a sender to send
// again later. The leader, whose rules wait for what the sender holds, must hear of it once the node is back.
func TestRulesWaitForSendersThatAnotherNodeSentBack(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	c.changesRules("a", http.MethodPost, "/n", "{name: g, rules: [{record: r, expr: vector(1)}]}")
	eventually(t, 2*time.Minute, "the leader hears that another node sent a sender back", func() error {
		leader := c.leader()
		cut := nodeNames[(slices.Index(nodeNames, leader)+1)%len(nodeNames)]
		heal := c.cutOff(cut)
		body := pack(t, requestV2(time.Now().UnixMilli(), 1, "held"))
		status, text, _, err := c.node(cut).write(remoteWriteV2, body)
		heal()
		if err != nil || status != http.StatusServiceUnavailable {
			return fmt.Errorf("a write to the node that is cut off: status %d, %q, error %v", status, text, err)
		}
		for refused := time.Now(); time.Since(refused) < 8*time.Second; time.Sleep(100 * time.Millisecond) {
			var state waitingState
			if err := c.node(leader).ask("/api/v1/status/rules", nil, &state); err != nil {
				return err
			}
			for _, l := range state.Late {
				if l.Reason == "refused" && l.Sender == "" {
					return nil
				}
			}
		}
		return errors.New("the leader knows of no refusals")
	})
}

// cutOff lets a node send nothing to the others. The returned function ends this.
func (c *trio) cutOff(node string) (heal func()) {
	var all []func()
	for _, other := range nodeNames {
		if other != node {
			all = append(all, c.machines[node].silence(c.machines[other]))
		}
	}
	return func() {
		for _, heal := range all {
			heal()
		}
	}
}
