package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// The disks of the nodes fill up. One that is nearly full stops nothing. With two of them, the cluster answers writes
// with 503 and says which nodes need space, while queries are answered and a killed node recovers on what is left.
// With space on one of the two, the cluster goes on by itself, and what waited in outboxes counts.
func TestNearlyFullDisksStopWrites(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	const minFree, left = 128 << 20, 96 << 20
	c := newTrio(t)
	disks := map[string]*disk{}
	for _, n := range nodeNames {
		disks[n] = newDisk(t)
		c.dirs[n], c.extra[n] = disks[n].dir, []string{"--cluster-min-free", fmt.Sprint(minFree)}
	}
	c.found()
	begun := time.Now()
	written := 0
	write := func(node string) (status int, text string) {
		at := begun.Add(time.Duration(written) * time.Millisecond).UnixMilli()
		status, text, _, err := c.node(node).write(remoteWriteV2, pack(t, requestV2(at, 1, "filling")))
		if err != nil {
			return 0, err.Error()
		}
		if status == http.StatusNoContent {
			written++
		}
		return status, text
	}
	accepts := func() {
		t.Helper()
		eventually(t, 30*time.Second, "writes are taken", func() error {
			if status, text := write("b"); status != http.StatusNoContent {
				return fmt.Errorf("%d %s", status, text)
			}
			return nil
		})
	}
	accepts()
	disks["b"].fillUpTo(left)
	c.saysShort("b")
	accepts()

	freeC := disks["c"].fillUpTo(left)
	c.saysShort("b", "c")
	for _, node := range nodeNames {
		eventually(t, 30*time.Second, "node "+node+" refuses writes", func() error {
			status, text := write(node)
			if status != http.StatusServiceUnavailable || !strings.Contains(text, "less than cluster.min_free is left at "+
				"node b and node c") {
				return fmt.Errorf("it answers %d %s", status, text)
			}
			return nil
		})
	}
	waiting := c.startIncrements("unixgram", c.node("a").Unixgram, "waits", 1)
	c.node("b").kill(t)
	c.begin("b")
	for _, node := range nodeNames {
		eventually(t, 30*time.Second, "node "+node+" answers queries", func() error {
			v, err := c.node(node).value("count_over_time(filling[1h])")
			if err == nil && v != float64(written) {
				err = fmt.Errorf("it has %v of %d samples", v, written)
			}
			return err
		})
	}
	if status, text := write("b"); status != http.StatusServiceUnavailable {
		t.Errorf("after the restart of a node without space, a write is answered %d %s", status, text)
	}
	eventually(t, 30*time.Second, "freshet cluster status says what is nearly full, and of whom", func() error {
		out, err := c.cluster("a", "status")
		if err == nil && (!strings.Contains(out, "node c: its disk has ") || !strings.Contains(out, "\ndefault ")) {
			err = errors.New(out)
		}
		return err
	})

	freeC()
	c.saysShort("b")
	accepts()
	c.counted("waits", waiting)
	c.statesAgree("a")
	c.equal()
}

// saysShort waits until each node says that the disks of some nodes are nearly full, and no others.
func (c *trio) saysShort(nodes ...string) {
	c.t.Helper()
	for _, at := range nodeNames {
		eventually(c.t, 30*time.Second, fmt.Sprintf("node %s knows that %v have little space", at, nodes), func() error {
			s, err := c.node(at).clusterState()
			var short []string
			for _, n := range s.Nodes {
				if n.Disk == nil {
					return fmt.Errorf("the disk of node %s is not known; %v", n.Name, err)
				}
				if n.Disk.Short {
					short = append(short, n.Name)
				}
			}
			if err == nil && !slices.Equal(short, nodes) {
				err = fmt.Errorf("%v have little space", short)
			}
			return err
		})
	}
}
