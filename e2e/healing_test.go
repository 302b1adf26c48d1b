package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A damaged node is killed at each step of its healing. Its next starts go on, and it heals. Until it votes with the
// new data, its old data exist.
func TestAHealingNodeIsKilled(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := newTrio(t)
	for _, n := range nodeNames {
		c.dirs[n], c.extra[n] = dataDir(t), []string{"--cluster-heal-after", "1s"}
	}
	c.nodes["a"] = c.alone("a", c.dirs["a"])
	c.makeBlocks("a", "a")
	c.nodes["a"].terminate(t)
	// The log of this cluster lacks what the machine had, so each new member is filled.
	must(t, freshet, "cluster", "init", "--data-dir", c.dirs["a"], "--name", "a")
	c.begin("a")
	c.begin("b", "c")
	c.caughtUp()
	w := c.startWriter("healed", breathe, "a")
	places := []string{"moved groups", "renewed", "votes"}
	if soak { // all places in internal/server, in the order of a healing
		places = []string{"noted", "agreed", "leaves", "moved tsdb", "moved groups", "moved events.db", "renewed",
			"installed", "joined", "votes", "removed"}
	}
	for _, place := range places {
		reach(time.Now().Add(2 * time.Second))
		c.nodes["c"].terminate(t)
		c.damage("c", walFiles)
		c.faults["c"] = []string{"FRESHET_FAULT=kill", "FRESHET_FAULT_PLACE=" + place}
		c.untilKilled("c", place)
		delete(c.faults, "c")
		if place == "renewed" {
			c.leadsElsewhere() // the next leader was not told that node c may be replaced
		}
		if place != "removed" && !c.hasDamagedData("c") {
			t.Fatalf("killed at %q, node c has no old data", place)
		}
		c.heals("c", w)
	}
	w.stop()
	for _, n := range nodeNames {
		w.check(n)
	}
	c.writeMarks("a")
	c.statesAgree("a")
	c.equal()
	if len(w.refused) > 0 {
		t.Errorf("writes at node a were refused: %q", w.refused)
	}
}

// A healing node has joined, and cannot vote yet, since too few nodes are there. It keeps its old data until it votes.
func TestOldDataStayUntilTheNodeVotes(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrioWith(t, []string{"--cluster-heal-after", "1s"})
	w := c.startWriter("healed", breathe, "a")
	reach(time.Now().Add(2 * time.Second))
	w.stop()
	c.caughtUp()
	c.nodes["c"].terminate(t)
	c.damage("c", walFiles)
	c.faults["c"] = []string{"FRESHET_FAULT=kill", "FRESHET_FAULT_PLACE=joined"}
	c.untilKilled("c", "joined")
	delete(c.faults, "c")
	c.kill("b")
	p := c.start("c")
	c.nodes["c"] = p
	p.waitListening(t)
	eventually(t, 30*time.Second, "the member of node c runs", func() error {
		s, err := p.clusterState()
		for _, n := range s.Nodes {
			if err == nil && n.Name == "c" && n.Applied == nil {
				err = fmt.Errorf("%+v", n)
			}
		}
		return err
	})
	reach(time.Now().Add(10 * time.Second)) // some of its looks whether it votes
	aside := filepath.Join(c.dirs["c"], "damaged-*", walFiles)
	if found, err := filepath.Glob(aside); err != nil || len(found) == 0 {
		t.Errorf("node c does not vote, and has removed its old data: %s; %v", found, err)
	}
	c.begin("b")
	c.becomesReady("c", p)
	eventually(t, time.Minute, "node c has removed its old data", func() error {
		found, err := filepath.Glob(aside)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("there is %s", found)
		}
		return err
	})
	for _, n := range nodeNames {
		w.check(n)
	}
}

// A damaged voter heals beside a spare. The spare takes its place at once, and the healed node is the next spare: it
// does not vote, and removes its old data all the same. So it heals again when it is damaged again, as a spare.
func TestADamagedNodeHealsBesideASpare(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startFour(t, "--cluster-heal-after", "1s")
	c.makeBlocks("a", "c")
	w := c.startWriter("healed", breathe, "a")
	for _, was := range []string{"voter", "spare"} {
		c.part("a", "c", was)
		reach(time.Now().Add(2 * time.Second))
		c.nodes["c"].terminate(t)
		c.damage("c", walFiles)
		if !c.heals("c", w) {
			t.Errorf("the damaged %s does not heal", was)
		}
		c.nodes["c"].says(t, "this node has healed; its old data are removed")
		c.part("a", "c", "spare")
		c.vote("a", "a", "b", "d")
	}
	w.stop()
	c.caughtUp()
	for _, n := range c.names() {
		w.check(n)
	}
	c.statesAgree("a")
	c.equal()
	if len(w.refused) > 0 {
		t.Errorf("writes at node a were refused: %q", w.refused)
	}
}

// leadsElsewhere makes the other one of nodes a and b lead, while node c is away.
func (c *trio) leadsElsewhere() {
	c.t.Helper()
	leader, other := "", ""
	eventually(c.t, 30*time.Second, "node a or b leads", func() error {
		s, err := c.nodes["a"].clusterState()
		leader, other = s.Leader, map[string]string{"a": "b", "b": "a"}[s.Leader]
		if err == nil && other == "" {
			err = fmt.Errorf("%q leads", leader)
		}
		return err
	})
	if out, err := c.cluster(other, "drain", leader, "--for", "1h"); err != nil {
		c.t.Fatalf("the drain of %s: %v: %s", leader, err, out)
	}
	eventually(c.t, 30*time.Second, "node "+other+" leads", func() error {
		s, err := c.nodes[other].clusterState()
		if err == nil && s.Leader != other {
			err = fmt.Errorf("%q leads", s.Leader)
		}
		return err
	})
	if out, err := c.cluster(other, "undrain", leader); err != nil {
		c.t.Fatalf("the end of the drain of %s: %v: %s", leader, err, out)
	}
}

// untilKilled starts a node again and again until it kills itself at a place.
func (c *trio) untilKilled(node, place string) {
	c.t.Helper()
	p := c.start(node)
	eventually(c.t, 3*time.Minute, fmt.Sprintf("node %s is killed at %q", node, place), func() error {
		select {
		case <-p.exited:
		default:
			return fmt.Errorf("it runs:\n%s", p.output)
		}
		if exit, is := errors.AsType[*exec.ExitError](p.err); is && exit.Sys().(syscall.WaitStatus).Signaled() {
			return nil
		}
		last := p.output.String()
		p = c.start(node)
		return fmt.Errorf("it ended:\n%s", last)
	})
}

// hasDamagedData reports whether a node has data that were set aside, or that must be.
func (c *trio) hasDamagedData(node string) bool {
	c.t.Helper()
	for _, dir := range []string{"", "damaged-*"} {
		found, err := filepath.Glob(filepath.Join(c.dirs[node], dir, walFiles))
		if err != nil {
			c.t.Fatal(err)
		}
		if len(found) > 0 {
			return true
		}
	}
	return false
}

// A damaged node heals only if its disk has room for the old and the new data. Until then it stays as it is, and its
// log and the status say so.
func TestADamagedNodeWithoutRoomStays(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	const minFree, left = 128 << 20, 96 << 20
	c := newTrio(t)
	d := newDisk(t)
	for _, n := range nodeNames {
		c.dirs[n], c.extra[n] = dataDir(t), []string{"--cluster-heal-after", "1s", "--cluster-min-free", fmt.Sprint(minFree)}
	}
	c.dirs["c"] = d.dir
	c.found()
	c.makeBlocks("a", "c")
	w := c.startWriter("healed", breathe, "a")
	reach(time.Now().Add(2 * time.Second))
	c.nodes["c"].terminate(t)
	c.damage("c", walFiles)
	free := d.fillUpTo(left)
	p := c.start("c")
	c.nodes["c"] = p
	p.waitListening(t)
	const why = "its disk has no room for the data of another node beside its own"
	eventually(t, time.Minute, "node c says why it stays", func() error { return c.onlyDamaged("b", "c", why) })
	p.says(t, why)
	if out, err := c.cluster("b", "status"); err != nil || !strings.Contains(out, why) {
		t.Errorf("freshet cluster status says\n%s; %v", out, err)
	}
	for _, name := range []string{"damaged-*", "healing.json"} {
		if found, err := filepath.Glob(filepath.Join(c.dirs["c"], name)); err != nil || len(found) > 0 {
			t.Errorf("node c begins to heal: %s; %v", found, err)
		}
	}
	p.terminate(t)

	// A damaged log keeps the process from starting its roles. Without room, it waits.
	c.damage("c", logFiles)
	p = c.start("c")
	<-p.exited
	p = c.start("c")
	c.nodes["c"] = p
	p.says(t, why)
	eventually(t, time.Minute, "node c says why it stays", func() error { return c.onlyDamaged("b", "c", why) })
	p.terminate(t)

	free()
	if !c.heals("c", w) {
		t.Error("with room, node c does not heal")
	}
	w.stop()
	for _, n := range nodeNames {
		w.check(n)
	}
	if len(w.refused) > 0 {
		t.Errorf("writes at node a were refused: %q", w.refused)
	}
}
