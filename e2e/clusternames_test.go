package e2e

import (
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"
)

// A name has one owner in the whole cluster. Two kinds that come in under one name at two nodes are
// stored as the same two series on all nodes. This holds even if the leader is killed, and if each node
// later gets the other kind.
func TestANameHasOneOwnerInTheCluster(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	total := 0.0
	for range 30 { // `latency` as a counter at node a, and as a gauge at node b
		sendTo(t, c.nodes["a"].Unixgram, "latency:1|c|#host:x")
		sendTo(t, c.nodes["b"].Unixgram, "latency:7|g|#host:x")
		total++
		reach(time.Now().Add(100 * time.Millisecond))
	}
	counter, gauge := "latency", "latency_gauge"
	check := func(level float64) {
		t.Helper()
		for _, n := range nodeNames {
			eventually(t, 30*time.Second, "node "+n+" has both series", func() error {
				if _, err := c.nodes[n].value("latency_counter"); err == nil {
					counter, gauge = "latency_counter", "latency"
				}
				v, err := c.nodes[n].value(counter)
				if err == nil && v != total {
					err = fmt.Errorf("%s has %v, want %v", counter, v, total)
				}
				if err == nil {
					if v, err = c.nodes[n].value(gauge); err == nil && v != level {
						err = fmt.Errorf("%s has %v, want %v", gauge, v, level)
					}
				}
				return err
			})
			if v, err := c.nodes[n].value(`count({__name__=~"latency.*"})`); err != nil || v != 2 {
				t.Errorf("node %s has %v series, want 2; error %v", n, v, err)
			}
			var metadata map[string][]struct{ Type string }
			if err := c.nodes[n].ask("/api/v1/metadata", url.Values{}, &metadata); err != nil || len(metadata[counter]) != 1 ||
				metadata[counter][0].Type != "counter" || len(metadata[gauge]) != 1 || metadata[gauge][0].Type != "gauge" {
				t.Errorf("node %s has the metadata %+v; error %v", n, metadata, err)
			}
		}
	}
	check(7)
	owner := counter
	leader := c.leader()
	c.nodes[leader].kill(t)
	c.begin(leader)
	// Now each node gets the other kind; the owners stay the same.
	sendTo(t, c.nodes["a"].Unixgram, "latency:9|g|#host:x")
	sendTo(t, c.nodes["b"].Unixgram, "latency:1|c|#host:x")
	total++
	check(9)
	if counter != owner {
		t.Errorf("the counter was stored as %s, and is stored as %s now", owner, counter)
	}
	c.equal()
}

// sendTo sends a line.
func sendTo(t *testing.T, socket, line string) {
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(line)); err != nil {
		t.Error(err)
	}
}
