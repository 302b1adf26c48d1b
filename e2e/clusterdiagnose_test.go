package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/diagnose"
)

// One node is cut off. The record of another node names the cut-off node in the first cause. The record, the
// lists of top and the lines of tail say which node they come from. Once the cut-off node is back, the record
// names no such cause.
func TestDiagnoseNamesAPartedNode(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	c.caughtUp()
	if leader := c.leader(); leader == "c" {
		c.lead("a", leader)
	}
	restore := c.machines["c"].cut()
	p := c.node("a")
	operator := "unix:" + filepath.Join(p.dataDir, "operator.sock")
	unreachable := func() error {
		s, err := p.clusterState()
		if err == nil && s.Nodes[2].Ready {
			err = fmt.Errorf("node a still reaches node c: %+v", s)
		}
		return err
	}
	eventually(t, 30*time.Second, "node a notices the cut", unreachable)
	found := diagnosis(t, "--server", operator)
	if found.Record.Node != "a" {
		t.Errorf("the record comes from node %q, want node a", found.Record.Node)
	}
	if len(found.Causes) == 0 || found.Causes[0].Name != diagnose.Parted || found.Causes[0].Score < diagnose.Clear ||
		!strings.Contains(found.Causes[0].Title, "Nodes that cannot be reached: c; the others go on, and node") {
		t.Errorf(
			"while node c is cut off, the causes are %+v, want a clear first cause that names node c", found.Causes)
	}
	restore()
	c.caughtUp()
	found = diagnosis(t, "--server", operator)
	parted := func(x diagnose.Cause) bool { return x.Name == diagnose.Parted }
	if slices.ContainsFunc(found.Causes, parted) || len(found.Missing) > 0 {
		t.Errorf("after the cut, the causes are %+v, want none about a cut-off node; the record lacks %v, want "+
			"nothing missing",
			found.Causes, found.Missing)
	}
	var page struct {
		Node string `json:"node"`
	}
	if err := p.ask("/api/v1/status/top", nil, &page); err != nil || page.Node != "a" {
		t.Errorf("status/top names node %q, want node a: %v", page.Node, err)
	}
	c.tailNamesItsNode(operator)
}

// tailNamesItsNode checks that freshet tail says which node's lines it shows.
func (c *trio) tailNamesItsNode(server string) {
	c.t.Helper()
	ctx, stop := context.WithTimeout(c.t.Context(), time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, freshet, "tail", "--server", server)
	notes, err := cmd.StderrPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	defer func() { stop(); _ = cmd.Wait() }()
	for lines := bufio.NewScanner(notes); ; {
		if !lines.Scan() {
			c.t.Fatalf("%s did not say within a minute that the lines are of node a: %v", cmd, lines.Err())
		}
		if lines.Text() == "the lines are of node a, and of no other one" {
			return
		}
	}
}
