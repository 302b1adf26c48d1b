package e2e

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
)

// A machine with data becomes a cluster, and two empty nodes join it while it gets writes. They are filled with its
// data. Then all nodes have the same samples, those from before the cluster, too, and each answers them alone.
func TestNodesAreFilled(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := newTrio(t)
	for _, n := range nodeNames {
		c.dirs[n] = dataDir(t)
	}
	before := c.oneMachine()
	must(t, freshet, "cluster", "init", "--data-dir", c.dirs["a"], "--name", "a")
	c.begin("a")
	w := c.startWriter("filled", breathe, "a")
	hits := c.startIncrements("unixgram", c.nodes["a"].Unixgram, "hits", 2)
	hits.sent = before
	c.begin("b", "c")
	c.caughtUp()
	reach(time.Now().Add(3 * time.Second))
	w.stop()
	c.counted("hits", hits)
	for _, n := range nodeNames {
		w.check(n)
		if entries, err := os.ReadDir(filepath.Join(c.dirs[n], "fill")); err == nil {
			t.Errorf("node %s still has the directory of its fill, with %v", n, entries)
		}
	}
	c.writeMarks("a")
	c.statesAgree("a")
	at := tilesClosed()
	want := c.everything("a", at)
	if len(want) < 10 {
		t.Errorf("node a has %d series: too few to show anything", len(want))
	}
	for _, n := range []string{"b", "c"} {
		if got := c.everything(n, at); !reflect.DeepEqual(got, want) {
			t.Errorf("node %s has\n%v\nwant those of node a:\n%v", n, got, want)
		}
	}
	for _, n := range []string{"a", "b"} {
		c.nodes[n].kill(t)
	}
	if got := c.everything("c", at); !reflect.DeepEqual(got, want) {
		t.Errorf("node c alone has\n%v\nwant\n%v", got, want)
	}
}

// While a node is filled, it is killed, and so is the node that gives its data. The fill goes on. Then the node
// has what all have.
func TestAFillIsKilled(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := newTrio(t)
	for _, n := range nodeNames {
		c.dirs[n], c.extra[n] = dataDir(t), []string{"--cluster-fill-rate", "64KiB"}
	}
	before := c.oneMachine()
	must(t, freshet, "cluster", "init", "--data-dir", c.dirs["a"], "--name", "a")
	c.begin("a")
	hits := c.startIncrements("unixgram", c.nodes["a"].Unixgram, "hits", 2)
	hits.sent = before
	b := c.start("b")
	c.isFilled("a", "b")
	b.kill(t)
	b = c.start("b")
	c.isFilled("a", "b")
	hits.stop() // a kill may lose what the kernel has for the process
	c.hasAll("a", "hits", hits.sent)
	c.nodes["a"].kill(t)
	c.begin("a")
	c.becomesReady("b", b)

	d := c.start("c")
	from := c.isFilled("a", "c")
	c.nodes[from].kill(t)
	c.begin(from)
	c.becomesReady("c", d)
	c.caughtUp()
	c.hasAll("c", "hits", hits.sent)
	c.writeMarks("a")
	c.statesAgree("a")
	at := tilesClosed()
	want := c.everything("a", at)
	for _, n := range []string{"b", "c"} {
		if got := c.everything(n, at); !reflect.DeepEqual(got, want) {
			t.Errorf("node %s has\n%v\nwant those of node a:\n%v", n, got, want)
		}
	}
}

// A node was away for so long that the leader's log no longer has what the node lacks. It finds that out, and ends. Its
// next start fills it again. The same member goes on, and has what all have.
func TestANodeIsFilledAgain(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := newTrio(t)
	for _, n := range nodeNames {
		c.dirs[n] = dataDir(t)
	}
	sent := c.oneMachine()
	must(t, freshet, "cluster", "init", "--data-dir", c.dirs["a"], "--name", "a")
	c.begin("a")
	c.begin("b", "c")
	c.caughtUp()
	c.nodes["c"].terminate(t)
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(c.dirs["c"])); err != nil {
		t.Fatal(err)
	}
	c.begin("c")
	hits := c.startIncrements("unixgram", c.nodes["a"].Unixgram, "hits", 2)
	hits.sent = sent
	reach(time.Now().Add(5 * time.Second))
	hits.stop()
	c.hasAll("c", "hits", hits.sent)
	// Node b gets another directory, whose log begins now.
	c.nodes["b"].terminate(t)
	c.dirs["b"] = dataDir(t)
	c.rejoin("a", "b")
	c.caughtUp()
	// Node c gets its old directory, and then node b leads. A leader from before would find that node c has forgotten
	// entries.
	c.nodes["c"].terminate(t)
	delete(c.nodes, "c")
	if err := os.RemoveAll(c.dirs["c"]); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(c.dirs["c"], os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	for tries, leads := 0, ""; leads != "b"; tries++ {
		if tries == 10 {
			t.Fatal("node b does not lead")
		}
		last := c.leader()
		c.nodes[last].terminate(t)
		c.begin(last)
		leads = c.leader()
	}
	lacks := c.start("c")
	select {
	case <-lacks.exited:
	case <-time.After(2 * time.Minute):
		t.Fatal("a node that lacks entries goes on")
	}
	if said := lacks.output.String(); !strings.Contains(said, "gets the data of another node") {
		t.Errorf("a node that lacks entries says\n%s", said)
	}
	c.begin("c")
	c.caughtUp()
	c.hasAll("c", "hits", hits.sent)
	c.writeMarks("b")
	c.statesAgree("b")
	at := tilesClosed()
	if got, want := c.everything("c", at), c.everything("b", at); !reflect.DeepEqual(got, want) {
		t.Errorf("node c has\n%v\nwant those of node b:\n%v", got, want)
	}
}

// The data of a node are damaged, and it does not know. A node that joins finds that out, names the file, and gets the
// data of another node.
func TestDamagedDataAreNotPassedOn(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := newTrio(t)
	for _, n := range nodeNames {
		c.dirs[n] = dataDir(t)
	}
	sent := c.oneMachine()
	must(t, freshet, "cluster", "init", "--data-dir", c.dirs["a"], "--name", "a")
	c.begin("a")
	c.begin("b")
	follower := map[string]string{"a": "b", "b": "a"}[c.leader()]
	segments, err := filepath.Glob(filepath.Join(c.dirs[follower], "tsdb", "default", "raw", "wal", "0*"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("the log of node %s is %v, error %v", follower, segments, err)
	}
	changeByte(t, segments[0], 9)
	c.begin("c")
	said, want := c.nodes["c"].output.String(), "the data of node "+follower+" are damaged: store raw of tenant default: "
	if !strings.Contains(said, want) || !strings.Contains(said, "raw/wal") {
		t.Errorf("node c says\n%s\nwant %q, with the path of the log", said, want)
	}
	c.hasAll("c", "hits", sent)
	at := tilesClosed()
	healthy := c.leader()
	if got, want := c.everything("c", at), c.everything(healthy, at); !reflect.DeepEqual(got, want) {
		t.Errorf("node c has\n%v\nwant those of node %s:\n%v", got, healthy, want)
	}
}

// changeByte changes a byte of a file that a process may have open.
func changeByte(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err = f.ReadAt(b, at); err == nil {
		b[0] ^= 1
		_, err = f.WriteAt(b, at)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// writeMarks writes so many entries that nodes which have just started can be compared, however slow the machine is.
func (c *trio) writeMarks(at string) {
	c.t.Helper()
	for range 200 { // a mark is made every 64 entries, and the first one is not whole
		status, text, _, err := c.nodes[at].write(remoteWriteV2, pack(c.t, requestV2(time.Now().UnixMilli(), 1, "marks")))
		if err != nil || status/100 == 4 {
			c.t.Fatalf("a write is answered with %d %s, error %v", status, text, err)
		}
	}
}

// isFilled waits until a node says that another one is being filled, and returns from which node.
func (c *trio) isFilled(at, node string) (from string) {
	c.t.Helper()
	if from = c.fillsFrom(at, node); from == "" {
		c.t.Fatalf("node %s is ready, and was to be seen while it is filled", node)
	}
	return from
}

// fillsFrom waits until a node gets data of another one, and returns which one. It returns "" if the node is ready.
func (c *trio) fillsFrom(at, node string) (from string) {
	c.t.Helper()
	eventually(c.t, 3*time.Minute, "node "+node+" is being filled, or ready", func() error {
		var all answer.Cluster
		if err := c.node(at).ask("/api/v1/status/cluster", nil, &all); err != nil {
			return err
		}
		for _, n := range all.Nodes {
			if f := n.Fill; n.Name == node && f != nil && f.Bytes > 0 && f.Bytes < f.OfBytes {
				from = f.From
			}
			if n.Name == node && (n.Ready || from != "") {
				return nil
			}
		}
		return fmt.Errorf("the state is %+v", all.Nodes)
	})
	return from
}

// hasAll waits until a counter has its total at a node.
func (c *trio) hasAll(node, name string, total float64) {
	c.t.Helper()
	eventually(c.t, 30*time.Second, "node "+node+" has all increments", func() error {
		return c.node(node).expect(name, total, 0)
	})
}

// becomesReady waits until the process of a node is ready.
func (c *trio) becomesReady(node string, p *process) {
	c.t.Helper()
	p.waitReady(c.t)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[node] = p
}

// oneMachine writes samples at machine a, which is in no cluster yet. It returns the sum of the counter hits.
func (c *trio) oneMachine() (sent float64) {
	c.t.Helper()
	p := c.alone("a", c.dirs["a"])
	for i := range 400 {
		at := time.Now().Add(time.Duration(-i) * 2 * time.Second)
		body := pack(c.t, requestV2(at.UnixMilli(), float64(i), fmt.Sprintf("old_%d_%0200d", i%70, i%70)))
		status, text, _, err := p.write(remoteWriteV2, body)
		if err != nil || status/100 != 2 {
			c.t.Fatalf("a write is answered with %d %s, error %v", status, text, err)
		}
	}
	conn := c.startIncrements("unixgram", p.Unixgram, "hits", 2)
	reach(time.Now().Add(12 * time.Second))
	conn.stop()
	eventually(c.t, 30*time.Second, "all increments are counted", func() error {
		return p.expect("hits", conn.sent, 0)
	})
	p.terminate(c.t)
	return conn.sent
}

// alone starts a process that is in no cluster, on one of the machines.
func (c *trio) alone(machine, dir string, flags ...string) *process {
	c.t.Helper()
	m := c.machines[machine]
	serve := serveCommand(dir, append([]string{"--http-listen", m.address + ":0",
		"--distributor-otlp-grpc-listen", m.address + ":0", "--dogstatsd-udp", "", "--self-metrics=false"}, flags...)...)
	cmd := m.command(serve.Path, serve.Args[1:]...)
	cmd.Env = withoutGroup(cmd.Environ())
	return launch(c.t, dir, cmd)
}

// tilesClosed waits until all tiles up to a moment are closed, and returns that moment. Later tiles are not in the
// stores, and each node answers with them as of now.
func tilesClosed() time.Time {
	at := time.Now()
	reach(at.Add(20 * time.Second))
	return at
}

// everything returns all samples that a node has in its stores, whether it reaches the others or not.
func (c *trio) everything(node string, at time.Time) map[string]string {
	c.t.Helper()
	return c.stored(node, everySeries, at)
}

// stored returns the samples of a query that a node has in its stores, whether it reaches the others or not.
func (c *trio) stored(node, query string, at time.Time) map[string]string {
	c.t.Helper()
	var answer struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			Values []any             `json:"values"`
		} `json:"result"`
	}
	err := c.nodes[node].ask("/api/v1/query", url.Values{"query": {query},
		"time": {fmt.Sprintf("%.3f", float64(at.UnixMilli())/1000)}, "partial_response": {"true"}}, &answer)
	if err != nil {
		c.t.Fatal(err)
	}
	all := map[string]string{}
	for _, r := range answer.Result {
		all[fmt.Sprint(r.Metric)] = fmt.Sprint(r.Values)
	}
	return all
}
