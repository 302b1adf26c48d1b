package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	signals "github.com/freshet-io/freshet/internal/lib/run"
)

// The leader is asked to stop, with a long http.shutdown_delay. It is not ready at once, another node leads, and it
// still answers writes and queries. A second signal ends the wait, and the stop is an orderly one. A restart in place
// does not wait.
func TestAStoppingNodeStillAnswers(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrioWith(t, []string{"--http-shutdown-delay", "1h"})
	leader := c.leader()
	p, other := c.nodes[leader], next(leader)
	w := c.startWriter("stopping", breathe, next(other))
	if out, err := exec.Command(freshet, "restart", "--data-dir", c.dirs[other]).CombinedOutput(); err != nil {
		t.Errorf("the restart in place of node %s: %v\n%s", other, err, out)
	}
	c.caughtUp()
	p.signal(t, syscall.SIGTERM)
	eventually(t, 30*time.Second, "the stopping node is not ready", func() error {
		status, waitsFor, err := p.ready()
		if err == nil && (status != http.StatusServiceUnavailable || !strings.Contains(waitsFor, "stopping")) {
			err = fmt.Errorf("/-/ready answers %d, and waits for %q", status, waitsFor)
		}
		return err
	})
	eventually(t, 30*time.Second, "another node leads", func() error {
		s, err := c.nodes[other].clusterState()
		if err == nil && (s.Leader == leader || s.Leader == "") {
			err = fmt.Errorf("%q leads", s.Leader)
		}
		return err
	})
	status, text, _, err := p.write(remoteWriteV2, pack(t, requestV2(time.Now().UnixMilli(), 1, "late")))
	if err != nil || status/100 != 2 {
		t.Errorf("the stopping node answers a write with %d %s, error %v", status, text, err)
	}
	if v, err := p.value("late"); err != nil || v != 1 {
		t.Errorf("the stopping node answers a query with %v, error %v", v, err)
	}
	w.check(leader)
	if resp, err := http.Get("http://" + p.HTTP + "/-/healthy"); err != nil || !resp.Close {
		t.Errorf("the stopping node keeps a connection open for another request: %v", err)
	} else {
		_ = resp.Body.Close()
	}
	reach(time.Now().Add(signals.SameStop)) // a signal that comes sooner belongs to the first one
	p.terminate(t)
	if said := p.output.String(); !strings.Contains(said, "stopping: not ready any more") {
		t.Errorf("the stopping node printed\n%s", said)
	}
	c.begin(leader)
	c.caughtUp()
	w.stop()
	w.unbroken()
	for _, node := range nodeNames {
		w.check(node)
	}
	c.equal()
}
