package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// part waits until the status at a node says what part a node has.
func (c *trio) part(at, node, want string) {
	c.t.Helper()
	eventually(c.t, time.Minute, "node "+node+" is a "+want, func() error {
		s, err := c.nodes[at].clusterState()
		for _, n := range s.Nodes {
			if n.Name == node && n.Part != want {
				err = fmt.Errorf("it is a %s: %+v", n.Part, s)
			}
		}
		return err
	})
}

// startFour starts a cluster with a fourth node d, which is a spare.
func startFour(t *testing.T, flags ...string) *trio {
	t.Helper()
	c := newTrio(t, "d")
	c.more = []string{"d"}
	for _, n := range c.names() {
		c.dirs[n], c.extra[n] = dataDir(t), flags
	}
	c.found()
	c.begin("d")
	c.part("a", "d", "spare")
	return c
}

// Four nodes, of which one is a spare, get writes. A voter is lost, and after a minute the spare votes in its place.
// Then another voter is lost, and the former spare is needed for every write. The first lost node comes back, and the
// others refuse it. With an empty directory it is the next spare. No acknowledged write is missing anywhere.
func TestASpareTakesThePlaceOfALostNode(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startFour(t, "--cluster-replace-after", "1m")
	w := c.startWriter("spared", breathe, "d", "a", "c")
	if out, err := c.cluster("d", "status"); err != nil || !strings.Contains(out, "spare") {
		t.Errorf("the status is %v\n%s", err, out)
	}
	if v, err := c.nodes["a"].ownMetric("freshet_group_spares"); err != nil || v != 1 {
		t.Errorf("freshet_group_spares is %v; %v", v, err)
	}
	c.kill("b")
	eventually(t, 5*time.Minute, "the spare votes in the place of the lost node", func() error {
		got, err := c.voters("a")
		if err == nil && !slices.Equal(got, []string{"a", "c", "d"}) {
			err = fmt.Errorf("%v vote", got)
		}
		return err
	})
	c.part("a", "b", "removed")
	c.nodes["d"].says(t, "a node has left the cluster")

	c.kill("c")
	sent := w.count()
	eventually(t, time.Minute, "writes go on without nodes b and c", func() error {
		if w.count() < sent+10 {
			return fmt.Errorf("%d writes are acknowledged, %d before", w.count(), sent)
		}
		return nil
	})
	old := c.start("b")
	old.says(t, "the node was replaced or removed; to join again, it needs an empty directory")
	old.terminate(t)
	c.dirs["b"] = dataDir(t)
	c.begin("c", "b")
	c.part("d", "b", "spare")
	c.caughtUp()
	w.stop()
	for _, node := range c.names() {
		w.check(node)
	}
	c.statesAgree("d")
	c.equal()
}
