package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ready asks a node for /-/ready, and returns the status and what the node waits for.
func (p *process) ready() (status int, waitsFor string, err error) {
	resp, err := http.Get("http://" + p.HTTP + "/-/ready")
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	var state struct {
		WaitsFor string `json:"waits_for"`
	}
	err = json.NewDecoder(resp.Body).Decode(&state)
	return resp.StatusCode, state.WaitsFor, err
}

// Under load, two leaders are drained, one after the other, and each restarts while it is drained, and is undrained.
// No write fails at a second node, and nothing is lost.
func TestNodesAreDrained(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	w := c.startWriter("drained", breathe, nodeNames...)
	for range 2 {
		leader := c.leader()
		if out, err := c.cluster(next(leader), "drain", leader, "--for", "1h"); err != nil ||
			!strings.Contains(out, "for 1h0m0s") {
			t.Fatalf("the drain of %s: %v: %s", leader, err, out)
		}
		eventually(t, 30*time.Second, "another node leads", func() error {
			s, err := c.nodes[next(leader)].clusterState()
			if err == nil && (s.Leader == leader || s.Leader == "") {
				err = fmt.Errorf("%q leads", s.Leader)
			}
			return err
		})
		c.isDrained(leader)
		w.check(leader) // it still answers
		c.restartsDrained(leader)
	}
	if _, err := c.cluster("a", "drain", "x"); err == nil || !strings.Contains(err.Error(), "no such node") {
		t.Errorf("the drain of an unknown node: %v", err)
	}
	w.stop()
	for _, node := range nodeNames {
		w.check(node)
	}
	c.statesAgree("a")
	c.equal()
	w.unbroken()
}

// unbroken checks that a stopped writer had to send nothing again. In CI, whose machine may be busy, a change of the
// leader may take so long that a write fails.
func (w *writer) unbroken() {
	w.c.t.Helper()
	broken := len(w.unavailable) > 0 || w.tries > 1
	if !soak {
		broken = len(w.unavailable) > fewUnavailable || w.tries > len(nodeNames)
	}
	if len(w.refused) > 0 || len(w.acked) < 10 || broken {
		w.c.t.Errorf("refused: %q; unavailable: %q; %d tries of a write failed, the last with %s", w.refused, w.unavailable,
			w.tries, w.failure)
	}
	w.c.t.Logf("%d writes were acknowledged; the longest pause was %v; unavailable: %q", len(w.acked), w.longest,
		w.unavailable)
}

// isDrained checks what a drained node says of itself, and that it votes.
func (c *trio) isDrained(node string) {
	c.t.Helper()
	p := c.nodes[node]
	eventually(c.t, 30*time.Second, "the drained node is not ready", func() error {
		status, waitsFor, err := p.ready()
		if err == nil && (status != http.StatusServiceUnavailable || !strings.Contains(waitsFor, "is drained")) {
			err = fmt.Errorf("/-/ready answers %d, and waits for %q", status, waitsFor)
		}
		return err
	})
	if v, err := p.ownMetric("freshet_group_drained"); err != nil || v != 1 {
		c.t.Errorf("freshet_group_drained is %v; %v", v, err)
	}
	if voters, err := c.voters(next(node)); err != nil || len(voters) != 3 {
		c.t.Errorf("%v vote; %v", voters, err)
	}
}

// restartsDrained restarts a drained node, which is drained afterwards, too, and undrains it.
func (c *trio) restartsDrained(node string) {
	c.t.Helper()
	c.setParted(node, true)
	c.nodes[node].terminate(c.t)
	p := c.start(node)
	eventually(c.t, 30*time.Second, "the drain outlives a restart", func() error {
		out, err := c.cluster(next(node), "status")
		if err == nil && !strings.Contains(out, "drained") {
			err = fmt.Errorf("the status is\n%s", out)
		}
		return err
	})
	if _, err := c.cluster(next(node), "undrain", node); err != nil {
		c.t.Fatal(err)
	}
	c.becomesReady(node, p)
	c.caughtUp()
	c.setParted(node, false)
}
