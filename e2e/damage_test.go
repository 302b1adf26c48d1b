package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A leader folds wrongly for a while: it leaves out what a node pushed. It finds that the two others agree with each
// other, hands over the lead to one of them, and answers no queries from then on, even after a restart. The two good
// nodes stay, and the bad one still votes.
func TestALeaderThatFoldsWronglyLeaves(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := newTrio(t)
	wrong := filepath.Join(t.TempDir(), "wrong") // a folds wrongly while this file exists
	for _, n := range nodeNames {
		c.dirs[n] = dataDir(t)
	}
	for _, n := range nodeNames {
		c.extra[n] = []string{"--cluster-heal-after", "0"}
	}
	c.faults["a"] = []string{"FRESHET_FAULT=fold", "FRESHET_FAULT_FOLD=" + wrong}
	c.found()
	if leader := c.leader(); leader != "a" {
		c.lead("a", leader)
	}
	hits := c.startIncrements("unixgram", c.nodes["b"].Unixgram, "hits", 2)
	c.statesAgree("b")
	eventually(t, 30*time.Second, "increments are counted", func() error { // so that there are tiles to close
		_, err := c.nodes["a"].value("hits")
		return err
	})
	if err := os.WriteFile(wrong, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "a good node leads, and only the bad one is damaged", func() error {
		// States are compared every 64 entries. Tiles with wrong values close after up to 44 s.
		for range 10 {
			_, _, _, err := c.nodes["b"].write(remoteWriteV2, pack(t, requestV2(time.Now().UnixMilli(), 1, "compares")))
			if err != nil {
				return err
			}
		}
		return c.onlyDamaged("b", "a", "its state is not that of most nodes")
	})
	if err := os.Remove(wrong); err != nil {
		t.Fatal(err)
	}
	c.answersNothing("a")
	c.nodes["a"].kill(t)
	c.nodes["a"] = c.start("a")
	c.nodes["a"].waitListening(t)
	c.answersNothing("a")
	// Node b may lead. If it is killed, it loses increments that it has received and not handed over yet.
	hits.stop()
	counted := func() {
		t.Helper()
		for _, n := range []string{"b", "c"} {
			eventually(t, 30*time.Second, "node "+n+" has all increments", func() error {
				v, err := c.nodes[n].value("hits")
				if err == nil && v != hits.sent {
					err = fmt.Errorf("%v of %v increments are counted", v, hits.sent)
				}
				return err
			})
		}
	}
	counted()
	old := c.leader()
	other := map[string]string{"b": "c", "c": "b"}[old]
	c.nodes[old].kill(t)
	eventually(t, 30*time.Second, "the other good node leads by the vote of the bad one", func() error {
		_, _, _, err := c.nodes[other].write(remoteWriteV2, pack(t, requestV2(time.Now().UnixMilli(), 1, "goes_on")))
		if err != nil {
			return err
		}
		return c.onlyDamaged(other, "a", "its state is not that of most nodes")
	})
	c.begin(old)
	counted()
}

// onlyDamaged returns an error unless a node says that the named node alone is damaged, is not ready and does not lead.
func (c *trio) onlyDamaged(at, node, what string) error {
	s, err := c.nodes[at].clusterState()
	if err != nil {
		return err
	}
	if s.Leader == node || s.Leader == "" {
		return fmt.Errorf("%q leads", s.Leader)
	}
	for _, n := range s.Nodes {
		switch {
		case n.Name != node && n.Damage != nil:
			c.t.Fatalf("node %s is damaged: %s", n.Name, n.Damage.What)
		case n.Name == node && (n.Damage == nil || !strings.Contains(n.Damage.What, what) || n.Ready):
			return fmt.Errorf("node %s: ready %v, damage %+v, want %q", node, n.Ready, n.Damage, what)
		}
	}
	return nil
}

// answersNothing is a check that a damaged node answers no query, is not ready, and says why.
func (c *trio) answersNothing(node string) {
	c.t.Helper()
	p := c.nodes[node]
	for _, path := range []string{"/api/v1/query?query=hits", "/api/v1/events", "/-/ready"} {
		eventually(c.t, 30*time.Second, path+" of node "+node+" says that the node is damaged", func() error {
			path, query, _ := strings.Cut(path, "?")
			params := map[string][]string{}
			if name, value, has := strings.Cut(query, "="); has {
				params[name] = []string{value}
			}
			_, err := p.get(path, params)
			if err == nil {
				return errors.New("it answers")
			}
			if !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "this node is damaged") {
				return err
			}
			return nil
		})
	}
}

// waitListening waits until the process listens, and reads its addresses. It may not be ready.
func (p *process) waitListening(t *testing.T) {
	t.Helper()
	eventually(t, startLimit, "freshet listens", func() error {
		b, err := os.ReadFile(filepath.Join(p.dataDir, "listening.json"))
		if err != nil {
			return err
		}
		return json.Unmarshal(b, &p.listening)
	})
}

// The state of the only node that is left was outvoted before, and it was healing: its data are set aside. It is
// recovered from them with a clear yes, takes writes, and answers with a warning. Another node joins with its data, and
// answers without the warning.
func TestRecoverADamagedNode(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	w := c.startWriter("doubtful", breathe, "b")
	reach(time.Now().Add(2 * time.Second))
	w.stop()
	c.caughtUp()
	for _, node := range nodeNames {
		c.kill(node)
	}
	aside := dataDir(t)
	for _, name := range []string{"cluster.json", "tsdb", "groups", "events.db"} { // what a healing node sets aside
		if err := os.Rename(filepath.Join(c.dirs["b"], name), filepath.Join(aside, name)); err != nil {
			t.Fatal(err)
		}
	}
	c.dirs["b"] = aside
	damage := []byte(`{"what":"its state is not that of most nodes","since":"2026-11-28T04:05:06Z"}`)
	if err := os.WriteFile(filepath.Join(c.dirs["b"], "damaged.json"), damage, 0o640); err != nil {
		t.Fatal(err)
	}
	mustFail(t, "--accept-damage", "cluster", "recover", "--from", "b", "--data-dir", c.dirs["b"], "--lose-data")
	c.recovers("b", "not the cluster", "--accept-damage")
	c.begin("b")
	c.vote("b", "b")
	w.check("b")
	again := c.startWriter("again", breathe, "b")
	reach(time.Now().Add(2 * time.Second))
	again.stop()
	again.check("b")
	warns := func(node string) (warned bool) {
		t.Helper()
		eventually(t, 30*time.Second, "node "+node+" answers", func() error {
			answer, err := c.nodes[node].get("/api/v1/query", map[string][]string{"query": {"count_over_time(again[1h])"}})
			warned = strings.Contains(string(answer), "this node is damaged, and no other one votes")
			return err
		})
		return warned
	}
	if !warns("b") {
		t.Error("node b answers without a warning")
	}
	c.dirs["a"] = dataDir(t)
	c.rejoin("b", "a")
	c.vote("a", "a", "b")
	w.check("a")
	again.check("a")
	if warns("a") {
		t.Error("node a answers with a warning")
	}
	c.answersNothing("b")
}

// A byte of a store's WAL changes while a node is stopped. The node finds that, and says so. It answers no query of
// this store, while a gateway, which asks all nodes, answers all. The other nodes go on.
func TestADamagedStoreAnswersNothing(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrioWith(t, []string{"--cluster-heal-after", "0"}, "d")
	gateway := c.startGateway()
	w := c.startWriter("damaged", breathe, "a")
	reach(time.Now().Add(3 * time.Second))
	w.stop()
	c.caughtUp()
	c.nodes["c"].terminate(t)
	c.damage("c", walFiles)
	c.nodes["c"] = c.start("c")
	c.nodes["c"].waitListening(t)
	eventually(t, time.Minute, "only node c is damaged", func() error { return c.onlyDamaged("b", "c", "wal") })
	const query = "count_over_time(damaged[1h])"
	eventually(t, time.Minute, "node c answers a query with 503, and says why", func() error {
		v, err := c.nodes["c"].value(query)
		if err == nil {
			t.Fatalf("node c answers %v", v)
		}
		if !strings.Contains(err.Error(), "other nodes have all data") || !strings.Contains(err.Error(), "503") {
			return err
		}
		return nil
	})
	for range 10 {
		if v, err := c.nodes["c"].value(query); err == nil {
			t.Errorf("node c answers %v", v)
		}
		eventually(t, time.Minute, "the gateway answers", func() error {
			v, err := gateway.value(query)
			if want := float64(w.count()); err == nil && v != want {
				t.Fatalf("the gateway answers %v samples, want %v", v, want)
			}
			return err
		})
	}
	eventually(t, time.Minute, "node c is not ready because it is damaged", func() error {
		_, err := c.nodes["c"].get("/-/ready", nil)
		if err == nil {
			t.Fatal("node c is ready")
		}
		if !strings.Contains(err.Error(), "this node is damaged") {
			return err
		}
		return nil
	})
	mustFail(t, "a snapshot of it would be, too", "backup", filepath.Join(t.TempDir(), "damaged"), "--server",
		"unix:"+filepath.Join(c.dirs["c"], "operator.sock"))
	w.check("a")
	w.check("b")
}

// A byte of a node's data changes at a random position, while the node is stopped. No answer of the node is wrong. If
// the node finds the damage, it ends, and its next start gets the data of another node. Then it votes and has
// everything, and its old data are gone. The other nodes go on.
func TestADamagedNodeHeals(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	tries := 1
	if os.Getenv("FRESHET_SOAK") != "" {
		tries = 20
	}
	c := startTrioWith(t, []string{"--cluster-heal-after", "1s"})
	c.makeBlocks("a", "c")
	w := c.startWriter("healed", breathe, "a")
	const seed = 21
	r := rand.New(rand.NewPCG(seed, 1))
	heals := 0
	for i := range tries {
		for _, files := range []string{logFiles, "groups/0/*.checkpoint", walFiles,
			"tsdb/default/raw/01*/index", "tsdb/default/raw/01*/chunks/*", "tsdb/default/raw/01*/meta.json"} {
			reach(time.Now().Add(3 * time.Second))
			c.nodes["c"].terminate(t)
			found, err := filepath.Glob(filepath.Join(c.dirs["c"], files))
			if err != nil || len(found) == 0 {
				t.Fatalf("try %d: node c has no file %s; %v", i, files, err)
			}
			flip(t, r, found[r.IntN(len(found))])
			if c.heals("c", w) {
				heals++
			}
		}
	}
	w.stop()
	for _, n := range nodeNames {
		w.check(n)
	}
	c.writeMarks("a")
	c.statesAgree("a")
	c.equal()
	t.Logf("the node got the data of another node %d times", heals)
	if heals < tries {
		t.Errorf("the node healed %d times, want %d or more", heals, tries)
	}
	if len(w.refused) > 0 {
		t.Errorf("writes at node a were refused: %q", w.refused)
	}
}

// The events of a stopped node are damaged: pages cannot be read, or a title changes. The node answers no queries of
// events, until it has the events of another node. It forgets none, and the node's event log is never taken for whole.
func TestDamagedEventsHeal(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrioWith(t, []string{"--cluster-heal-after", "1s"})
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("event number %02d", i))
		sendEvent(t, c.nodes["a"].Unixgram, want[i])
	}
	c.haveEvents(want)
	for what, damage := range map[string]func(file []byte) []byte{
		"a page cannot be read": func(f []byte) []byte {
			at := bytes.Index(f, []byte(want[7]))
			return append(f[:at-at%4096], append(bytes.Repeat([]byte{0xa5}, 4096), f[at-at%4096+4096:]...)...)
		},
		"a title changed": func(f []byte) []byte {
			return bytes.ReplaceAll(f, []byte(want[7]), []byte("event number 77"))
		},
	} {
		c.nodes["c"].terminate(t)
		path := filepath.Join(c.dirs["c"], "events.db")
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte(want[7])) {
			err = os.WriteFile(path, damage(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		before := c.memberOf("c")
		c.healsWhile("c", func(p *process) error {
			titles, err := p.titles()
			if err == nil && !slices.Equal(titles, slices.Sorted(slices.Values(want))) {
				t.Fatalf("%s: node c answers with the events %q", what, titles)
			}
			return err
		})
		if c.memberOf("c") == before {
			t.Errorf("%s: node c did not find it", what)
		}
		c.haveEvents(want)
		eventually(t, time.Minute, "the damaged file is removed", func() error {
			left, err := filepath.Glob(filepath.Join(c.dirs["c"], "*damaged*"))
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("there is %s", left)
			}
			return err
		})
	}
}

// A bit of the recovery epoch changes in cluster.json of a stopped node. With a later epoch, the node would tell the
// others that the cluster was recovered without them, and they would end. So it does not start, and its error has the
// way out. The others go on.
func TestANodeWithADamagedIdentity(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	w := c.startWriter("identity", breathe, "a", "b")
	c.nodes["c"].terminate(t)
	path := filepath.Join(c.dirs["c"], "cluster.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Replace(text, []byte(`"epoch": 1`), []byte(`"epoch": 3`), 1)
	if bytes.Equal(damaged, text) {
		t.Fatalf("there is no epoch 1 in %s", text)
	}
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	c.ends("c", c.start("c"), "cluster.json is damaged", "freshet cluster replace")
	c.dirs["c"] = dataDir(t)
	c.rejoin("a", "c")
	c.vote("a", nodeNames...)
	w.stop()
	c.caughtUp()
	for _, n := range nodeNames {
		w.check(n)
	}
	if len(w.refused) > 0 {
		t.Errorf("writes were refused: %q", w.refused)
	}
}

// makeBlocks writes samples of the last eight hours at one node, and waits until another node has made a block of them.
func (c *trio) makeBlocks(at, node string) {
	c.t.Helper()
	for i := range 8 * 60 {
		then := time.Now().Add(-8*time.Hour + time.Duration(i)*time.Minute)
		status, text, _, err := c.nodes[at].write(remoteWriteV2, pack(c.t, requestV2(then.UnixMilli(), float64(i), "old")))
		if err != nil || status/100 != 2 {
			c.t.Fatalf("a write is answered with %d %s, error %v", status, text, err)
		}
	}
	eventually(c.t, 3*time.Minute, "node "+node+" has a block", func() error {
		blocks, err := filepath.Glob(filepath.Join(c.dirs[node], "tsdb/default/raw/01*/index"))
		if err == nil && len(blocks) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}

// Patterns of files that the tests damage, below the data directory.
const (
	walFiles = "tsdb/default/raw/wal/0*"
	logFiles = "groups/0/*.segment"
)

// damage changes a byte in the middle of the last file of a pattern, while the node is stopped.
func (c *trio) damage(node, pattern string) {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(c.dirs[node], pattern))
	if err != nil || len(found) == 0 {
		c.t.Fatalf("node %s has no file %s; %v", node, pattern, err)
	}
	path := found[len(found)-1]
	text, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	text[len(bytes.TrimRight(text, "\x00"))/2] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// flip changes a byte of a file, in front of the zeros at its end.
func flip(t *testing.T, r *rand.Rand, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := r.IntN(max(1, len(bytes.TrimRight(text, "\x00"))))
	text[at] ^= byte(1 + r.IntN(255))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("byte %d of %d of %s is changed", at, len(text), path)
}

// heals starts a stopped node again and again, as a service manager does, until it is ready and votes. It reports
// whether the node set its data aside. While the node is not ready, none of its answers is short.
func (c *trio) heals(node string, w *writer) (healed bool) {
	c.t.Helper()
	return c.healsWhile(node, func(p *process) error {
		before := w.count()
		if v, err := p.value("count_over_time(healed[1h])"); err == nil && v < float64(before) {
			c.t.Fatalf("node %s answers %v samples, want %d or more", node, v, before)
		} else if err != nil {
			return err
		}
		v, err := p.value("sum_over_time(old[9h])")
		if err == nil && v != 479*480/2 {
			c.t.Fatalf("node %s answers %v, want the sum %v of the old samples", node, v, 479*480/2)
		}
		return err
	})
}

// memberOf returns what makes a node's directory this member and no other.
func (c *trio) memberOf(node string) string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dirs[node], "cluster.json"))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

// healsWhile does what heals does. `answers` fails while the node does not answer.
func (c *trio) healsWhile(node string, answers func(p *process) error) (healed bool) {
	c.t.Helper()
	p := c.start(node)
	c.nodes[node] = p
	eventually(c.t, 3*time.Minute, "node "+node+" has healed", func() error {
		select {
		case <-p.exited:
			p = c.start(node)
			c.nodes[node] = p
		default:
		}
		aside, err := filepath.Glob(filepath.Join(c.dirs[node], "damaged-*"))
		if healed = healed || len(aside) > 0; err != nil || len(aside) > 0 {
			return fmt.Errorf("old data: %v, %v", aside, err)
		}
		listening, err := os.ReadFile(filepath.Join(c.dirs[node], "listening.json"))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(listening, &p.listening); err != nil {
			return err
		}
		if err := answers(p); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(c.dirs[node], "healing.json")); err == nil {
			return errors.New("it still heals")
		}
		_, err = p.get("/-/ready", nil)
		return err
	})
	return healed
}
