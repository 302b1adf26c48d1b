package e2e

import (
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sumOfBooks is the part of a cluster's ledger that the tests read.
type sumOfBooks struct {
	Node    string
	Short   bool
	Samples struct {
		Received, Restored, Collected, Window, Stored, Tile float64
		HandedOver                                          float64 `json:"handed_over"`
		Difference                                          float64
	}
	Nodes      []booksOfProcess
	Collectors []booksOfProcess
}

type booksOfProcess struct {
	Name  string
	Error string
	Ended bool
	Age   *float64 `json:"age_seconds"`
}

func (p *process) sumOfBooks(local bool) (s sumOfBooks, err error) {
	return s, p.ask("/api/v1/status/ledger", url.Values{"local": {strconv.FormatBool(local)}}, &s)
}

// The ledger at any node is the sum over all nodes and collectors. Together they handed over as many samples as
// the nodes collected, even if a leader was paused and windows were sent twice. The ledger names a dead
// node, and the sum includes the last known books of that node. A node shows the outbox of a collector
// that finds no leader. The sum has the final books of a collector that stops.
func TestTheLedgerOfACluster(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t, "d")
	collector := c.startCollector(c.pushSecret())
	collector.waitReady(t)
	all := []*increments{c.startIncrements("unixgram", collector.Unixgram, "summed", 2)}
	for _, n := range nodeNames {
		all = append(all, c.startIncrements("unixgram", c.nodes[n].Unixgram, "summed", 2))
	}
	for i, n := range nodeNames { // each node receives one request
		status, text, _, err := c.nodes[n].write(remoteWriteV2,
			pack(t, requestV2(time.Now().UnixMilli()+int64(i), float64(i), "summed_at_"+n)))
		if err != nil || status != 204 {
			t.Fatal(status, text, err)
		}
	}
	reach(time.Now().Add(2 * time.Second))
	signal := func(node string, s syscall.Signal) {
		if err := syscall.Kill(c.nodes[node].cmd.Process.Pid, s); err != nil {
			t.Fatal(err)
		}
	}
	leader := c.leader()
	signal(leader, syscall.SIGSTOP)
	reach(time.Now().Add(5 * time.Second))
	signal(leader, syscall.SIGCONT)
	reach(time.Now().Add(2 * time.Second))
	c.counted("summed", all...)
	c.caughtUp()
	own, err := collector.sumOfBooks(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodeNames {
		eventually(t, 30*time.Second, "the sum of the ledgers at node "+n+" closes", func() error {
			s, err := c.nodes[n].sumOfBooks(false)
			if err != nil {
				return err
			}
			x, received := s.Samples, own.Samples.Received
			for _, m := range nodeNames {
				alone, err := c.nodes[m].sumOfBooks(true)
				if err != nil || len(alone.Nodes) > 0 {
					return fmt.Errorf("node %s alone has the books %+v, error %v", m, alone, err)
				}
				received += alone.Samples.Received
			}
			if x.Difference != 0 || x.Received != received || x.Window != 0 || s.Short || len(s.Nodes) != 3 || s.Node != n ||
				len(s.Collectors) != 1 || x.Collected != x.HandedOver || own.Samples.HandedOver == 0 {
				return fmt.Errorf("the sum is %+v, but nodes and collector received %v, and the collector handed over %v", s,
					received, own.Samples.HandedOver)
			}
			return nil
		})
	}
	eventually(t, 30*time.Second, "the nodes have the stages of the collector", func() error {
		told := 0.0
		for _, n := range nodeNames {
			if v, err := c.nodes[n].ownMetric("freshet_collectors_stage_samples_total"); err == nil {
				told += v
			}
		}
		if told == 0 {
			return errors.New("no node was told any")
		}
		return nil
	})
	for _, n := range []string{"a", "b"} {
		state := c.outboxes(n)
		if len(state.Collectors) != 1 || state.Collectors[0].Outbox.Bytes != 0 || state.Collectors[0].Version == "" ||
			len(state.Nodes) != 3 || state.Nodes[1].Outbox == nil {
			t.Errorf("node %s says %+v", n, state)
		}
	}

	c.nodes["c"].kill(t)
	s, err := c.nodes["a"].sumOfBooks(false)
	if last := s.Nodes[2]; err != nil || !s.Short || last.Name != "c" || last.Error == "" || last.Age == nil ||
		s.Samples.Difference != 0 {
		t.Errorf("after node c died, the sum is %+v, error %v", s, err)
	}
	out, err := exec.Command(freshet, "ledger", "--server", c.nodes["a"].HTTP).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "the books of node c are ") {
		t.Errorf("%v\n%s", err, out)
	}

	c.nodes["b"].kill(t) // now none leads
	waits := c.startIncrements("unixgram", collector.Unixgram, "waits", 2)
	eventually(t, 30*time.Second, "node a knows the collector's outbox", func() error {
		state := c.outboxes("a")
		if o := state.Collectors[0].Outbox; o.Bytes == 0 || o.Oldest == 0 {
			return errors.New("node a reports an empty outbox")
		}
		return nil
	})
	c.begin("b", "c")
	c.counted("waits", waits)
	collector.terminate(t)
	eventually(t, 30*time.Second, "node a has the final books of the collector", func() error {
		s, err := c.nodes["a"].sumOfBooks(false)
		if err != nil || len(s.Collectors) != 1 || !s.Collectors[0].Ended || s.Collectors[0].Error != "" ||
			s.Samples.Difference != 0 || s.Samples.Window != 0 || s.Short {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	})
}

// outboxes has the fields about outboxes from the answer of /api/v1/status/cluster.
type outboxes struct {
	Nodes []struct {
		Name   string
		Outbox *outboxState
	}
	Collectors []struct {
		Name, Version string
		Outbox        outboxState
	}
}

type outboxState struct {
	Bytes  float64
	Oldest float64 `json:"oldest_seconds"`
}

func (c *trio) outboxes(at string) (s outboxes) {
	c.t.Helper()
	if err := c.nodes[at].ask("/api/v1/status/cluster", nil, &s); err != nil {
		c.t.Fatal(err)
	}
	return s
}
