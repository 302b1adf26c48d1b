package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// changing is a cluster under load whose nodes are drained, replaced, removed and joined, while nodes are killed.
type changing struct {
	*loaded
	random *rand.Rand
	story  []string
}

// Under load, a random node is drained, another one loses its directory, and another one is removed and joins again;
// in the middle of each of these, a random other node is killed, and comes back. That happens again and again. Nothing
// is lost or counted twice on any node, and three nodes vote whenever no change is under way.
func TestNodesChangeAgainAndAgain(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := &changing{loaded: newLoaded(t, freshet, "f"), random: rand.New(rand.NewPCG(seed, 1))}
	c.foundLoaded()
	turns := 2
	if soak {
		turns = 20
	}
	defer func() { t.Log(c.story) }()
	c.start("changes")
	stop := c.watchVoters()
	for i := range turns {
		c.say("turn %d", i+1)
		c.drains()
		c.replaces()
		c.removesAndJoins()
	}
	stop()
	c.finish(false)
	if all := append(c.failures, c.writer.unavailable...); soak && len(all) > 0 { // in CI, an election may take long
		t.Errorf("answers of 5xx: %d, the first one: %s", len(all), all[0])
	}
}

func (c *changing) say(format string, args ...any) {
	c.story = append(c.story, fmt.Sprintf(format, args...)+"; ")
}

// any returns a random node that is not one of these.
func (c *changing) any(but ...string) string {
	all := slices.DeleteFunc(c.names(), func(n string) bool { return slices.Contains(but, n) })
	return all[c.random.IntN(len(all))]
}

// asks runs a command of `freshet cluster` about a node at another node that is up, until it succeeds: right after a
// change, too few nodes may answer yet.
func (c *changing) asks(at, command, node string, flags ...string) {
	c.t.Helper()
	eventually(c.t, 2*time.Minute, command+" "+node, func() error {
		_, err := c.cluster(at, append([]string{command, node}, flags...)...)
		return err
	})
}

// votes returns the nodes that vote, once there are three.
func (c *changing) votes(at string) (voters []string) {
	c.t.Helper()
	eventually(c.t, 2*time.Minute, "three nodes vote", func() (err error) {
		if voters, err = c.voters(at); err == nil && len(voters) != 3 {
			err = fmt.Errorf("%v vote", voters)
		}
		return err
	})
	return voters
}

// leaves waits until a node no longer votes, and three others do.
func (c *changing) leaves(node string) {
	c.t.Helper()
	at := c.any(node)
	eventually(c.t, 2*time.Minute, "three other nodes than "+node+" vote", func() error {
		voters, err := c.voters(at)
		if err == nil && (len(voters) != 3 || slices.Contains(voters, node)) {
			err = fmt.Errorf("%v vote", voters)
		}
		return err
	})
}

// allReady waits until all nodes are ready.
func (c *changing) allReady() {
	c.t.Helper()
	for _, at := range c.names() {
		eventually(c.t, 2*time.Minute, "node "+at+" sees that all nodes are ready", func() error {
			s, err := c.node(at).clusterState()
			for _, n := range s.Nodes {
				if !n.Ready {
					err = fmt.Errorf("node %s is not: %+v", n.Name, s)
				}
			}
			return err
		})
	}
}

// strike kills a random node that is not one of these, and starts it again.
func (c *changing) strike(but ...string) {
	c.t.Helper()
	node := c.any(but...)
	c.say("%s is killed", node)
	c.setParted(node, true)
	c.kill(node)
	reach(time.Now().Add(time.Duration(c.random.IntN(2000)) * time.Millisecond))
	c.begin(node)
	c.setParted(node, false)
}

func (c *changing) drains() {
	c.t.Helper()
	c.allReady()
	node := c.any()
	c.say("%s is drained", node)
	c.asks(c.any(node), "drain", node, "--for", "1h")
	c.strike(node)
	c.asks(c.any(), "undrain", node)
}

// replaces takes the directory of a voter. The spare takes its place, and a node is killed while the new directory
// gets the data.
func (c *changing) replaces() {
	c.t.Helper()
	c.allReady()
	voters := c.votes(c.any())
	node := voters[c.random.IntN(len(voters))]
	c.say("%s is emptied", node)
	c.setParted(node, true)
	c.kill(node)
	c.asks(c.any(node), "replace", node)
	c.dirs[node] = dataDir(c.t)
	p := c.trio.start(node)
	c.leaves(node)
	c.strike(node)
	c.becomesReady(node, p)
	c.setParted(node, false)
}

// removesAndJoins lets a voter leave for the spare. A node is killed, and then the one that left joins with an empty
// directory.
func (c *changing) removesAndJoins() {
	c.t.Helper()
	c.allReady()
	voters := c.votes(c.any())
	node := voters[c.random.IntN(len(voters))]
	c.say("%s is removed", node)
	c.setParted(node, true)
	c.asks(c.any(node), "remove", node, "--yes")
	c.leaves(node)
	c.kill(node)
	c.strike(node)
	c.dirs[node] = dataDir(c.t)
	c.begin(node)
	c.setParted(node, false)
	c.say("it joins")
}

// watchVoters fails the test if more than three nodes ever vote, or if fewer than two do.
func (c *changing) watchVoters() (stop func()) {
	quit := make(chan struct{})
	var watching sync.WaitGroup
	for _, node := range c.names() {
		watching.Go(func() {
			for {
				select {
				case <-quit:
					return
				case <-time.After(200 * time.Millisecond):
				}
				voters, err := c.voters(node)
				if n := len(voters); err == nil && n > 0 && (n > 3 || n < 2) { // 0 while the node starts
					c.t.Errorf("node %s says that %v vote", node, voters)
				}
			}
		})
	}
	return func() {
		close(quit)
		watching.Wait()
	}
}
