package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
)

// kill ends a node with SIGKILL.
func (c *trio) kill(node string) {
	c.t.Helper()
	p := c.nodes[node]
	p.signal(c.t, syscall.SIGKILL)
	<-p.exited
}

// rejoin lets a node join with an empty directory, and waits until it is ready. Only the leader remembers that the node
// may, so if another one leads meanwhile, the node is refused, and rejoin begins again.
func (c *trio) rejoin(by, node string) {
	c.t.Helper()
	for refused := true; refused; {
		eventually(c.t, time.Minute, "node "+node+" counts as lost", func() error {
			_, err := c.cluster(by, "replace", node)
			return err
		})
		p := c.start(node)
		eventually(c.t, startLimit, "node "+node+" joins, or is refused", func() error {
			said := p.output.String()
			select {
			case <-p.exited:
				if refused = strings.Contains(said, "has another data directory already"); !refused {
					c.t.Fatalf("node %s ended before it joined: %v\n%s", node, p.err, said)
				}
				return nil
			default:
			}
			if refused = !strings.Contains(said, "joined the cluster"); refused {
				return errors.New("it has done neither")
			}
			return nil
		})
		if !refused {
			c.becomesReady(node, p)
		}
	}
}

// cluster runs `freshet cluster` at a node, and returns what it printed.
func (c *trio) cluster(at string, args ...string) (text string, err error) {
	out, err := exec.Command(freshet, append([]string{"cluster"}, append(args, "--server",
		"unix:"+filepath.Join(c.dirs[at], "operator.sock"))...)...).
		CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}

// voters returns the nodes that vote, as one of them says.
func (c *trio) voters(at string) (voters []string, err error) {
	var all answer.Cluster
	err = c.node(at).ask("/api/v1/status/cluster", nil, &all)
	for _, g := range all.Groups {
		voters = append(voters, g.Members...)
	}
	return voters, err
}

// vote waits until these nodes vote, and no other one does.
func (c *trio) vote(at string, want ...string) {
	c.t.Helper()
	eventually(c.t, time.Minute, fmt.Sprintf("%v vote", want), func() error {
		got, err := c.voters(at)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%v vote", got)
		}
		return err
	})
}

// Under load, a node loses its directory and comes back with an empty one. Then each other node is killed for a
// while, so that the replaced one is needed for every write. Nothing is lost or counted twice, and no sender
// gets an answer of 5xx. The lost directory turns up again, and the others refuse it.
func TestANodeIsReplaced(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	l := startCluster(t)
	l.start("replaced")
	reach(time.Now().Add(2 * time.Second))
	l.setParted("b", true)
	if _, err := l.cluster("a", "replace", "b"); err == nil || !strings.Contains(err.Error(), "still answers") {
		t.Errorf("the replacement of a node that answers: %v", err)
	}
	l.kill("b")
	lost := l.dirs["b"]
	l.dirs["b"] = dataDir(t)
	l.rejoin("a", "b")
	l.vote("a", "a", "b", "c")
	l.caughtUp()
	l.setParted("b", false)
	for _, node := range []string{"a", "c"} {
		l.setParted(node, true)
		l.kill(node)
		reach(time.Now().Add(inCI / 2))
		l.begin(node)
		l.caughtUp()
		l.setParted(node, false)
	}
	l.finish(true)

	l.nodes["b"].terminate(t)
	fresh := l.dirs["b"]
	before, err := l.nodes["a"].ownMetric(`freshet_peer_refused_total{reason="member"}`)
	if err != nil {
		t.Fatal(err)
	}
	m := l.machines["b"]
	serve := serveCommand(lost, append(l.flags(), "--cluster-node", "b", "--cluster-join", "--http-listen",
		m.address+":0", "--distributor-otlp-grpc-listen", "", "--dogstatsd-udp", "")...)
	old := begin(t, lost, m.command(serve.Path, serve.Args[1:]...))
	eventually(t, time.Minute, "node a refuses the lost directory", func() error {
		n, err := l.nodes["a"].ownMetric(`freshet_peer_refused_total{reason="member"}`)
		if err == nil && n == before {
			err = fmt.Errorf("%v messages were refused before and after", n)
		}
		return err
	})
	old.says(t, "the node was replaced or removed; to join again, it needs an empty directory")
	old.terminate(t)
	l.dirs["b"] = fresh
	l.begin("b")
	l.caughtUp()
}

// A machine with data becomes a cluster while it gets writes, which goes back to a single node, and grows again. The
// first node that is removed leads. Counters go on as if nothing had happened.
func TestOneNodeBecomesThreeAndOneAgain(t *testing.T) {
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
	hits := c.startIncrements("unixgram", c.nodes["a"].Unixgram, "hits", 2)
	c.begin("b", "c")
	c.caughtUp()
	hits.stop() // node a may be removed
	sent += hits.sent
	leader := c.leader()
	second, last := next(leader), next(next(leader))
	hits = c.startIncrements("unixgram", c.nodes[last].Unixgram, "hits", 2)
	w := c.startWriter("shrinks", breathe, last)
	if _, err := c.cluster(last, "remove", second); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("a removal without --yes: %v", err)
	}
	if _, err := c.cluster(last, "remove", "x", "--yes"); err == nil || !strings.Contains(err.Error(), "no such node") {
		t.Errorf("the removal of an unknown node: %v", err)
	}
	for _, node := range []string{leader, second} {
		if _, err := c.cluster(node, "remove", node, "--yes"); err != nil {
			t.Fatal(err)
		}
		c.nodes[node].terminate(t)
	}
	c.vote(last, last)
	hits.stop()
	sent += hits.sent
	c.uninterrupted(last, "hits", sent)
	if _, err := c.cluster(last, "remove", last, "--yes"); err == nil || !strings.Contains(err.Error(), "too few") {
		t.Errorf("the removal of the last node: %v", err)
	}
	reach(time.Now().Add(time.Second))
	c.nodes[last].terminate(t)
	c.begin(last)
	hits = c.startIncrements("unixgram", c.nodes[last].Unixgram, "hits", 2)
	for _, node := range []string{leader, second} {
		c.dirs[node] = dataDir(t)
	}
	c.begin(leader, second)
	c.vote(last, nodeNames...)
	c.caughtUp()
	w.stop()
	hits.stop()
	sent += hits.sent
	for _, node := range nodeNames {
		c.uninterrupted(node, "hits", sent)
	}
	for _, node := range nodeNames {
		w.check(node)
	}
	c.statesAgree(last)
	c.equal()
	if len(w.refused) > 0 || len(w.acked) < 10 {
		t.Errorf("%d writes were acknowledged; refused: %q", len(w.acked), w.refused)
	}
	t.Logf("%d writes were acknowledged; the longest pause was %v", len(w.acked), w.longest)
	if os.Getenv("FRESHET_SOAK") != "" {
		c.comparePrices(last)
	}
}

// comparePrices lets a node alone be the cluster again, and logs what remote write costs it, beside a machine that was
// never in a cluster and makes the same promise: an acknowledged write survives a power loss.
func (c *trio) comparePrices(last string) {
	c.t.Helper()
	for _, node := range nodeNames {
		if node == last {
			continue
		}
		if _, err := c.cluster(node, "remove", node, "--yes"); err != nil {
			c.t.Fatal(err)
		}
		c.nodes[node].terminate(c.t)
	}
	c.vote(last, last)
	c.nodes[last].terminate(c.t)
	dir := dataDir(c.t)
	starts := map[string]func() *process{
		"a node alone": func() *process {
			c.begin(last)
			return c.nodes[last]
		},
		"one machine": func() *process { return c.alone(last, dir, "--store-wal-fsync", "commit") },
	}
	least := map[string]float64{}
	for range 3 {
		for name, start := range starts {
			p := start()
			price := c.writePrice(last, p)
			c.t.Logf("%s: %.3f s of CPU for a million samples of remote write", name, price)
			if least[name] == 0 || price < least[name] {
				least[name] = price
			}
			p.terminate(c.t)
		}
	}
	c.t.Logf("a node alone takes %.2f times the CPU of one machine for remote write",
		least["a node alone"]/least["one machine"])
}

// writePrice returns how many seconds of CPU a million samples of remote write cost a process.
func (c *trio) writePrice(machine string, p *process) float64 {
	c.t.Helper()
	out, err := c.machines[machine].command(freshet, "bench", "remote-write", "--json", "--server", "http://"+p.HTTP,
		"--version", "2", "--series", "20000", "--rounds", "50", "--live", "--interval", "100ms").Output()
	var a struct {
		Run struct {
			Measured map[string]float64 `json:"measured"`
		} `json:"run"`
	}
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	price := a.Run.Measured["cpu_seconds_per_million_samples"]
	if err != nil || price <= 0 {
		c.t.Fatalf("bench: %v: %s", err, out)
	}
	return price
}

// uninterrupted waits until a counter has its total at a node, and checks that it never began again: its increase
// equals the increments that were sent.
func (c *trio) uninterrupted(node, name string, sent float64) {
	c.t.Helper()
	c.hasAll(node, name, sent)
	if v, err := c.nodes[node].value("increase(" + name + "[1h] anchored)"); err != nil || v != sent {
		c.t.Errorf("node %s: the increase of %s is %v, error %v, want %v", node, name, v, err, sent)
	}
}

// A node was cut off while the others took writes. When it is back, one of the others loses its directory at once, and
// the third one dies. The node never gives a short answer: its queries fail, or say what they may lack. With the third
// one, everything is there, and the emptied node can be replaced.
func TestTwoLossesAtOnce(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	heal := c.machines["c"].cut()
	w := c.startWriter("losses", breathe, "a", "b")
	reach(time.Now().Add(3 * time.Second))
	w.stop()
	heal()
	c.kill("a")
	c.dirs["a"] = dataDir(t)
	emptied := c.start("a")
	c.kill("b")
	const query = "count_over_time(losses[1h])"
	for range 8 {
		if v, err := c.nodes["c"].value(query); err == nil && v != float64(len(w.acked)) {
			t.Errorf("node c has %v of %d samples, and does not say so", v, len(w.acked))
		}
		partial, err := c.nodes["c"].get("/api/v1/query", url.Values{"query": {query}, "partial_response": {"true"}})
		if whole := fmt.Sprintf("%q]", fmt.Sprint(len(w.acked))); err != nil ||
			!strings.Contains(string(partial), whole) && !strings.Contains(string(partial), `"warnings":["`) {
			t.Errorf("node c has %d samples or fewer, and a partial answer does not say so: %s, %v", len(w.acked), partial, err)
		}
	}
	c.begin("b")
	w.check("b")
	w.check("c")
	select {
	case <-emptied.exited:
	case <-time.After(time.Minute):
		t.Error("the emptied node goes on")
	}
	emptied.says(t, "has another data directory already")
	c.rejoin("b", "a")
	c.vote("b", nodeNames...)
	c.caughtUp()
	w.check("a")
	c.statesAgree("b")
}

// Two of three nodes are lost for good, and the cluster goes on with the third one: it has everything that was
// acknowledged, and takes writes again. The lost ones come back at the same time, and end: no write is lost or counted
// twice. With empty directories they join again.
func TestRecover(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	w := c.startWriter("recovered", breathe, "b")
	reach(time.Now().Add(2 * time.Second))
	w.stop()
	c.caughtUp()
	for _, node := range nodeNames {
		c.kill(node)
	}
	id := c.recovers("b", "not the cluster")
	c.begin("b")
	c.vote("b", "b")
	w.check("b")
	again := c.startWriter("again", breathe, "b")
	hits := c.startIncrements("unixgram", c.nodes["b"].Unixgram, "hits", 2)
	var lost sync.WaitGroup
	for _, node := range []string{"a", "c"} { // both at once: they are most nodes of the old cluster
		m := c.machines[node]
		serve := serveCommand(c.dirs[node], append(c.flags(), "--cluster-node", node, "--http-listen", m.address+":0",
			"--distributor-otlp-grpc-listen", "", "--dogstatsd-udp", "")...)
		cmd := m.command(serve.Path, serve.Args[1:]...)
		lost.Go(func() {
			timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
			out, err := cmd.CombinedOutput()
			timer.Stop()
			if err == nil || !strings.Contains(string(out), "the cluster was recovered without this node") {
				t.Errorf("node %s comes back: %v\n%s", node, err, out)
			}
		})
	}
	lost.Wait()
	for _, node := range []string{"a", "c"} {
		c.dirs[node] = dataDir(t)
		c.rejoin("b", node)
	}
	c.vote("b", nodeNames...)
	c.caughtUp()
	again.stop()
	hits.stop()
	for _, node := range nodeNames {
		w.check(node)
		again.check(node)
		eventually(t, time.Minute, "node "+node+" counts each increment once", func() error {
			v, err := c.nodes[node].value("hits")
			if err == nil && v != hits.sent {
				err = fmt.Errorf("%v of %v increments are counted", v, hits.sent)
			}
			return err
		})
	}
	c.statesAgree("b")
	c.equal()
	if out, err := c.cluster("a", "status"); err != nil || !strings.Contains(out, id) {
		t.Errorf("the cluster has another id than %s: %v\n%s", id, err, out)
	}
}

// A node is recovered by mistake: it was only cut off, and the others take writes. Once it reaches them again, its
// first start is refused, and they go on. If it starts while it is still cut off, there are two clusters, of which the
// older one ends when they meet. Neither ever has data of the other. And the mistake can be undone: without the
// recovered node, the others start with everything that they acknowledged.
func TestARecoveryByMistake(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	cut := func() (heal func()) {
		a, b := c.machines["c"].silence(c.machines["a"]), c.machines["c"].silence(c.machines["b"])
		return func() { a(); b() }
	}
	heal := cut()
	c.kill("c")
	w := c.startWriter("kept", breathe, "a", "b")
	goesOn := func() {
		t.Helper()
		sent := w.count()
		eventually(t, time.Minute, "nodes a and b take writes", func() error {
			if w.count() < sent+10 {
				return fmt.Errorf("%d writes are acknowledged, %d before", w.count(), sent)
			}
			return nil
		})
	}
	goesOn()
	c.recovers("c", "not the cluster")
	goesOn()
	heal()
	c.ends("c", c.start("c"), "was recovered", "still runs", "freshet cluster replace c")
	goesOn()

	heal = cut()
	c.begin("c")
	c.vote("c", "c")
	lone := c.startWriter("lone", breathe, "c")
	eventually(t, time.Minute, "node c takes writes", func() error {
		if lone.count() == 0 {
			return errors.New("none is acknowledged")
		}
		return nil
	})
	goesOn()
	w.stop()
	heal()
	for _, node := range []string{"a", "b"} {
		c.ends(node, c.nodes[node], "the cluster was recovered without this node")
	}
	lone.stop()
	lone.check("c")
	if v, err := c.nodes["c"].value("count_over_time(kept[1h])"); err == nil {
		t.Errorf("the recovered node has %v samples of the others", v)
	}

	c.kill("c")
	c.begin("a", "b")
	c.vote("a", nodeNames...)
	w.check("a")
	w.check("b")
	if v, err := c.nodes["a"].value("count_over_time(lone[1h])"); err == nil {
		t.Errorf("node a has %v samples of the recovered node", v)
	}
	c.dirs["c"] = dataDir(t)
	c.rejoin("a", "c")
	c.caughtUp()
	w.check("c")
	c.statesAgree("a")
	c.equal()
}

// ends waits until the process of a node ends by itself, and checks what it says.
func (c *trio) ends(node string, p *process, texts ...string) {
	c.t.Helper()
	eventually(c.t, time.Minute, "node "+node+" ends", func() error {
		select {
		case <-p.exited:
			return nil
		default:
			return errors.New("it runs")
		}
	})
	p.says(c.t, texts...)
}

// recovers makes a stopped node the only one, once the right id is given instead of a wrong one. It returns the id.
func (c *trio) recovers(node, wrong string, flags ...string) (id string) {
	c.t.Helper()
	recovers := func(input string) (string, error) {
		args := append([]string{"cluster", "recover", "--from", node, "--data-dir", c.dirs[node], "--lose-data"}, flags...)
		cmd := exec.Command(freshet, args...)
		cmd.Stdin = strings.NewReader(input + "\n")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := recovers(wrong)
	if err == nil || !strings.Contains(out, "nothing was changed") {
		c.t.Errorf("with a wrong id: %v\n%s", err, out)
	}
	_, rest, _ := strings.Cut(out, "of cluster ")
	id, _, _ = strings.Cut(rest, " ")
	if out, err = recovers(id); err != nil || !strings.Contains(out, "is the only one now, in recovery epoch 2") {
		c.t.Fatalf("%v\n%s", err, out)
	}
	if out, err = recovers(id); err == nil || !strings.Contains(out, "only one of its cluster already") {
		c.t.Errorf("a second time: %v\n%s", err, out)
	}
	return id
}

// A node is backed up while senders write. The backup becomes a new cluster, which has everything that was acknowledged
// before the backup began, and nothing that was sent after it ended. It is a state that the cluster had: a sender sends
// a sample and a delta in turns, each once the other is acknowledged, and the backup has as many deltas as samples, or
// one less. Other nodes join it, and counters go on. A node that is cut off makes no backup.
func TestABackupOfACluster(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	meter, deltas := service("turns", httpExporter()(t, c.nodes["a"], true))
	turns, err := meter.Int64Counter("turns")
	if err != nil {
		t.Fatal(err)
	}
	flushed := 0.0 // how many deltas are acknowledged; read once the writer has stopped
	w := c.startWriter("backup", func(float64) {
		turns.Add(t.Context(), 1)
		defer func() { flushed++ }()
		if err := deltas.ForceFlush(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	}, "a")
	sent := c.startIncrements("unixgram", c.nodes["a"].Unixgram, "backed_up", 1)
	reach(time.Now().Add(3 * time.Second))
	before := w.count()
	backup := filepath.Join(t.TempDir(), "backup")
	said := runFreshet(t, "backup", backup, "--server", "unix:"+filepath.Join(c.dirs["b"], "operator.sock"))
	after := w.count()
	if !strings.Contains(said, "as of entry ") || !strings.Contains(said, "--name b") {
		t.Errorf("the backup said\n%s", said)
	}
	heal := c.machines["c"].cut()
	mustFail(t, "would lack what the cluster acknowledged", "backup", filepath.Join(t.TempDir(), "stale"), "--server",
		"unix:"+filepath.Join(c.dirs["c"], "operator.sock"))
	heal()
	w.stop()
	sent.stop()
	eventually(t, 30*time.Second, "all deltas are counted", func() error {
		v, err := c.nodes["b"].value("turns_total")
		if err == nil && v != flushed {
			err = fmt.Errorf("%v, want %v", v, flushed)
		}
		return err
	})
	for _, node := range nodeNames {
		c.kill(node)
		c.dirs[node] = dataDir(t)
	}
	mustFail(t, "add --name b", "restore", backup, "--data-dir", c.dirs["b"])
	t.Log(runFreshet(t, "restore", backup, "--data-dir", c.dirs["b"], "--name", "b"))
	c.begin("b")
	c.vote("b", "b")
	kept := w.first(c.nodes["b"])
	if kept < before || kept > after+1 { // the next sample may be stored before it is acknowledged
		t.Errorf("the backup has %v samples, want %d to %d", kept, before, after+1)
	}
	// The log has all deltas at once, but an answer has those of the last second only when that second is over.
	eventually(t, 30*time.Second, "the backup has the deltas that were sent after its samples", func() error {
		got, err := c.nodes["b"].value("turns_total")
		if err == nil && got != float64(kept) && got != float64(kept-1) {
			err = fmt.Errorf("%d samples and %v deltas", kept, got)
		}
		return err
	})
	total, err := c.nodes["b"].value("backed_up")
	if err != nil || total == 0 || total > sent.sent {
		t.Errorf("the backup has %v increments of %v; %v", total, sent.sent, err)
	}
	for _, node := range []string{"a", "c"} {
		c.rejoin("b", node)
	}
	c.vote("b", nodeNames...)
	c.caughtUp()
	more := c.startIncrements("unixgram", c.nodes["a"].Unixgram, "backed_up", 1)
	reach(time.Now().Add(2 * time.Second))
	more.stop()
	for _, node := range nodeNames {
		eventually(t, 30*time.Second, "node "+node+" goes on with the counter", func() error {
			v, err := c.nodes[node].value("backed_up")
			if want := total + more.sent; err == nil && v != want {
				err = fmt.Errorf("%v, want %v", v, want)
			}
			return err
		})
	}
	c.statesAgree("b")
	c.equal()
}

// first returns how many samples of the writer a node has. They must be the first ones, in order and without a gap.
func (w *writer) first(node *process) (n int) {
	w.c.t.Helper()
	results, err := node.query(w.name + "[1h]")
	if err != nil || len(results) != 1 {
		w.c.t.Fatalf("%d series, want 1; %v", len(results), err)
	}
	for i, p := range results[0].Values {
		if p.V != float64(i+1) {
			w.c.t.Fatalf("sample %d has the value %v, want %d", i, p.V, i+1)
		}
	}
	return len(results[0].Values)
}

// count returns how many samples are acknowledged.
func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}
