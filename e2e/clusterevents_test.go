package e2e

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"
)

// An event may come in at any node, or at a collector. Then all nodes return it once, with the same id, even if
// the leader is killed meanwhile.
func TestAllNodesHaveTheSameEvents(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t, "d")
	p := c.startCollector(c.pushSecret())
	p.waitReady(t)
	var want []string
	send := func(socket, title string) {
		t.Helper()
		sendEvent(t, socket, title)
		want = append(want, title)
	}
	for _, n := range nodeNames {
		send(c.nodes[n].Unixgram, "at node "+n)
	}
	send(p.Unixgram, "at a collector")
	c.haveEvents(want)
	leader := c.leader()
	follower := nodeNames[(slices.Index(nodeNames, leader)+1)%3]
	c.nodes[leader].kill(t)
	for i := range 5 {
		send(c.nodes[follower].Unixgram, fmt.Sprintf("at a follower %d", i))
		send(p.Unixgram, fmt.Sprintf("at a collector %d", i))
		reach(time.Now().Add(500 * time.Millisecond))
	}
	c.begin(leader)
	c.haveEvents(want)
	if lost, err := p.ownMetric("freshet_outbox_lost_events_total"); err != nil || lost != 0 {
		t.Errorf("the collector lost %v events, want none; error %v", lost, err)
	}
}

// sendEvent sends an event to a socket of datagrams.
func sendEvent(t *testing.T, socket, title string) {
	t.Helper()
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "_e{%d,4}:%s|text", len(title), title); err != nil {
		t.Fatal(err)
	}
}

// titles returns the titles of all events that a process answers with, sorted.
func (p *process) titles() (all []string, err error) {
	var events []struct{ Title string }
	err = p.ask("/api/v1/events", url.Values{"limit": {"1000"}}, &events)
	for _, e := range events {
		all = append(all, e.Title)
	}
	slices.Sort(all)
	return all, err
}

// haveEvents waits until each node has events with these titles, each once, and compares the nodes.
func (c *trio) haveEvents(titles []string) {
	c.t.Helper()
	type stored struct {
		ID, Title string
		Time      float64
	}
	var all [][]stored
	for _, n := range nodeNames {
		var events []stored
		eventually(c.t, 30*time.Second, "node "+n+" has all events", func() error {
			events = nil
			if err := c.nodes[n].ask("/api/v1/events", url.Values{"limit": {"1000"}}, &events); err != nil {
				return err
			}
			var got []string
			for _, e := range events {
				got = append(got, e.Title)
			}
			slices.Sort(got)
			if want := slices.Sorted(slices.Values(titles)); !slices.Equal(got, want) {
				return fmt.Errorf("the node has the events %q, want %q", got, want)
			}
			return nil
		})
		all = append(all, events)
	}
	for _, other := range all[1:] {
		if !slices.Equal(all[0], other) {
			c.t.Errorf("one node has the events %+v, but another node has %+v", all[0], other)
		}
	}
}
