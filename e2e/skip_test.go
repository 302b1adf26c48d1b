package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var atEntry = regexp.MustCompile("freshet cluster skip --index ([0-9]+) ")

// No node can apply an entry. A node stops at it, and says which entry it is, and the command that leaves it out. After
// the command on all nodes they go on, equal, without the data of this entry, and each node counts them.
func TestAnEntryThatNoNodeCanApplyIsSkipped(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := newTrio(t)
	for _, n := range nodeNames {
		c.dirs[n] = dataDir(t)
		c.faults[n] = []string{"FRESHET_FAULT=entry", "FRESHET_FAULT_ENTRY=poisonous_metric"}
	}
	c.found()
	now := time.Now().UnixMilli()
	c.node("a").mustWrite(t, requestV2(now, 1, "before"))
	for _, n := range nodeNames {
		if _, err := c.node(n).query("before"); err != nil { // so that each has it
			t.Fatal(err)
		}
	}
	poison := pack(t, requestV2(now, 1, "poisonous_metric", "its_neighbour"))
	if status, text, _, err := c.node("a").writeWithin(senderWaits, remoteWriteV2, poison); err == nil &&
		status != http.StatusServiceUnavailable {
		t.Errorf("the write that no node can apply is answered %d %s", status, text)
	}
	skipped := map[string]int{}                                          // by node
	for rounds := 0; !c.goesOn(skipped) || len(skipped) == 0; rounds++ { // before they stop, they may be ready
		if rounds == 200 {
			t.Fatal("the nodes still stop")
		}
	}
	p := requestV2(now+1, 1, "after")
	eventually(t, time.Minute, "writes are taken", func() error {
		status, text, _, err := c.node("b").write(remoteWriteV2, pack(t, p))
		if err == nil && status != http.StatusNoContent {
			err = fmt.Errorf("%d %s", status, text)
		}
		return err
	})
	for _, n := range nodeNames {
		for _, name := range []string{"before", "after"} {
			if v, err := c.node(n).value("last_over_time(" + name + "[1h])"); err != nil || v != 1 {
				t.Errorf("node %s has %v of %s; %v", n, v, name, err)
			}
		}
		if all, err := c.node(n).query("last_over_time(its_neighbour[1h])"); err != nil || len(all) > 0 {
			t.Errorf("node %s has what was skipped: %v, %v", n, all, err)
		}
		entries, err := c.node(n).ownMetric("freshet_group_skipped_entries_total")
		samples, err2 := c.node(n).ownMetric("freshet_group_skipped_samples_total")
		if err != nil || err2 != nil || entries != float64(skipped[n]) || samples != 2*entries || entries == 0 {
			t.Errorf("node %s has skipped %v entries with %v samples; it was told to skip %d; %v, %v", n, entries, samples,
				skipped[n], err, err2)
		}
		c.node(n).says(t, "an entry of the log is left out")
	}
	c.statesAgree("a")
	c.equal()
}

// goesOn waits until all nodes are ready, and returns true. If a node stops at an entry, goesOn stops the others, too,
// tells all to skip this entry, and starts them. A sender's request may be in several entries, since a node hands it
// to the next leader when the one before dies.
func (c *trio) goesOn(skipped map[string]int) bool {
	t := c.t
	t.Helper()
	var index string
	eventually(t, 2*time.Minute, "a node stops at an entry, or all are ready", func() error {
		ready := 0
		for _, n := range nodeNames {
			switch p := c.node(n); {
			case p.ended():
				if at := atEntry.FindStringSubmatch(p.output.String()); at != nil && index == "" {
					index = at[1]
				}
			case p.isReady():
				ready++
			}
		}
		if index == "" && ready < len(nodeNames) {
			return fmt.Errorf("%d nodes are ready", ready)
		}
		return nil
	})
	if index == "" {
		reach(time.Now().Add(time.Second))
		return true
	}
	for _, n := range nodeNames {
		if p := c.node(n); !p.ended() {
			p.kill(t)
		}
		skip := func(flags ...string) (string, error) {
			args := append([]string{"cluster", "skip", "--index", index, "--data-dir", c.dirs[n]}, flags...)
			out, err := exec.Command(freshet, args...).CombinedOutput()
			return string(out), err
		}
		out, err := skip()
		if err == nil || !strings.Contains(out, "add --yes") && !strings.Contains(out, "has the entries") {
			t.Errorf("without --yes: %v\n%s", err, out)
		}
		switch out, err = skip("--yes"); {
		case err == nil && strings.Contains(out, "2 samples"):
			skipped[n]++
		case !strings.Contains(out, "run the command then"): // the node does not have the entry yet
			t.Fatalf("node %s: %v\n%s", n, err, out)
		}
	}
	for _, n := range nodeNames {
		p := c.start(n)
		c.mu.Lock()
		c.nodes[n] = p
		c.mu.Unlock()
	}
	return false
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// isReady reports whether the process is ready, and reads its addresses.
func (p *process) isReady() bool {
	b, err := os.ReadFile(filepath.Join(p.dataDir, "listening.json"))
	if err != nil || json.Unmarshal(b, &p.listening) != nil {
		return false
	}
	status, _, err := p.ready()
	return err == nil && status == http.StatusOK
}
