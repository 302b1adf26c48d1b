package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// startGateway starts a gateway that is a collector, too. It has only a push secret.
func (c *trio) startGateway() *process {
	c.t.Helper()
	m, dir := c.machines["d"], dataDir(c.t)
	serve := serveCommand(dir, append(c.flags(), "--role", "collector,gateway", "--cluster-secret-file", c.pushSecret(),
		"--http-listen", m.address+":0", "--dogstatsd-udp", m.address+":0")...)
	return launch(c.t, dir, m.command(serve.Path, serve.Args[1:]...))
}

// answered returns how many reads each node has answered for a gateway.
func (p *process) answered(t *testing.T) map[string]float64 {
	t.Helper()
	reads := map[string]float64{}
	for _, n := range nodeNames {
		v, err := p.ofNode("freshet_gateway_requests_total", n)
		if err != nil {
			t.Fatal(err)
		}
		reads[n] = v
	}
	return reads
}

// ofNode returns the value of one of the process's own metrics, for the reads that a node answered.
func (p *process) ofNode(name, node string) (v float64, err error) {
	body, err := p.get("/metrics", url.Values{})
	if err != nil {
		return 0, err
	}
	series := fmt.Sprintf(`%s{kind="read",node=%q} `, name, node)
	for line := range strings.Lines(string(body)) {
		if rest, is := strings.CutPrefix(line, series); is {
			_, err = fmt.Sscan(rest, &v)
			return v, err
		}
	}
	return 0, nil
}

// A gateway with a push secret takes writes and queries. When the node that answered a query is killed, another
// node answers the next query. When the leader is killed, a write waits for the next leader. The counts of the
// gateway's own collector arrive, too. The nodes trust the gateway, so they list senders by their own addresses.
func TestGateway(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := newTrio(t, "d")
	for _, n := range nodeNames {
		c.dirs[n], c.extra[n] = dataDir(t), []string{"--http-trusted-proxies", c.machines["d"].address}
	}
	c.found()
	g := c.startGateway()
	wrote := func(v float64) {
		t.Helper()
		status, text, header, err := g.write(remoteWriteV2, pack(t, requestV2(time.Now().UnixMilli(), v, "w")))
		if err != nil || status != http.StatusNoContent || header.Get("X-Prometheus-Remote-Write-Samples-Written") != "1" {
			t.Errorf("a write is answered with %d, %q, error %v; want 204 and one sample written", status, text, err)
		}
	}
	read := func(want float64) (node string) {
		t.Helper()
		before := g.answered(t)
		if v, err := g.value("w"); err != nil || v != want {
			t.Errorf("a query is answered with %v, want %v; error %v", v, want, err)
		}
		for n, reads := range g.answered(t) {
			if reads > before[n] {
				node = n
			}
		}
		return node
	}
	all := c.startIncrements("udp", g.UDP, "hits", 2)
	eventually(t, 30*time.Second, "the gateway says that all nodes are up to date", func() error {
		s, err := g.clusterState()
		if err != nil || s.Leader == "" || len(s.Nodes) != 3 {
			return fmt.Errorf("the status is %+v, want a leader and three nodes; error %w", s, err)
		}
		for _, n := range s.Nodes {
			if !n.Ready || n.Applied == nil || *n.Applied == 0 || n.Lag == nil || *n.Lag > 1 {
				return fmt.Errorf("of node %s: %+v", n.Name, n)
			}
		}
		return nil
	})
	wrote(1)
	senders, err := exec.Command(freshet, "senders", "--server", g.HTTP).CombinedOutput()
	if err != nil || !strings.Contains(string(senders), "\n"+testAddress+", Go-http-client/1.1  remote_write") {
		t.Errorf("freshet senders does not list %s: %v\n%s", testAddress, err, senders)
	}
	leader, node := c.leader(), ""
	eventually(t, 30*time.Second, "a node that does not lead answers a query", func() error {
		if node = read(1); node == "" || node == leader {
			return fmt.Errorf("node %q answers", node)
		}
		return nil
	})
	c.nodes[node].kill(t)
	for range 6 { // two for each node
		if other := read(1); other == "" || other == node {
			t.Errorf("node %s is dead, but the answer is from %q, want another node", node, other)
		}
	}
	c.begin(node)
	c.nodes[leader].kill(t)
	wrote(2)
	if other := read(2); other == "" || other == leader {
		t.Errorf("node %s is dead, but the answer is from %q, want another node", leader, other)
	}
	c.begin(leader)
	c.counted("hits", all)
	c.equal()
	for _, n := range nodeNames {
		c.nodes[n].kill(t)
	}
	eventually(t, 10*time.Second, "the gateway says that no node is left", func() error {
		s, err := g.clusterState()
		if err != nil || s.Leader != "" || len(s.Nodes) != 3 || s.Nodes[0].Ready {
			return fmt.Errorf("%+v, %v", s, err)
		}
		if ready, _ := http.Get("http://" + g.HTTP + "/-/ready"); ready == nil || ready.StatusCode != 503 {
			return fmt.Errorf("/-/ready: %+v", ready)
		}
		return nil
	})
	status, text, _, err := g.write(remoteWriteV2, pack(t, requestV2(time.Now().UnixMilli(), 3, "w")))
	if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(text, "no node of the cluster answers") {
		t.Errorf("without nodes, a write is answered with %d, %q, error %v; want 503 and the cause", status, text, err)
	}
	g.terminate(t)
}
