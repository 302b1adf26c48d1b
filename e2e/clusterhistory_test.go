package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
)

// imports runs `freshet import` at a node, and returns what it printed.
func (c *trio) imports(at string, args ...string) (text string, err error) {
	server := []string{"--server", "unix:" + filepath.Join(c.dirs[at], "operator.sock")}
	args = slices.Concat([]string{"import"}, args, server)
	out, err := exec.Command(freshet, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}

// answersOlds waits until a node answers so many old samples.
func (c *trio) answersOlds(node string, want float64) {
	c.t.Helper()
	eventually(c.t, 2*time.Minute, fmt.Sprintf("node %s answers %v old samples", node, want), func() error {
		n, err := c.node(node).olds(48)
		if err == nil && n != want {
			err = fmt.Errorf("%v", n)
		}
		return err
	})
}

// history returns the imported blocks, as a node lists them.
func (c *trio) history(at string) (all answer.History) {
	c.t.Helper()
	text, err := c.imports(at, "list", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &all)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return all
}

// An import into a cluster is at every node: at one that was down meanwhile, after the leader was killed in the middle
// of it, and at a node that was replaced. So is a removal.
func TestImportIntoACluster(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	const series, each = 300, 300 * 120
	c := startTrio(t)
	c.caughtUp()
	source := t.TempDir()
	block := func(n int) { oldBlock(t, source, 2*n, series) }

	// One node is down.
	down := nodeNames[(slices.Index(nodeNames, c.leader())+1)%3]
	at := nodeNames[(slices.Index(nodeNames, c.leader())+2)%3]
	c.kill(down)
	block(0)
	block(1)
	if told, err := c.imports(at, "tsdb", source); err != nil {
		t.Fatalf("an import while node %s is down: %v", down, err)
	} else if n, err := c.node(at).olds(48); err != nil || n != 2*each {
		t.Errorf("node %s has %v samples, want %d; %v\n%s", at, n, 2*each, err, told)
	}
	c.begin(down)
	for _, n := range nodeNames {
		c.answersOlds(n, 2*each)
	}

	// The leader is killed while blocks come in. Its client goes on at another try.
	for n := range 4 {
		block(2 + n)
	}
	leader := c.leader()
	ended := make(chan error, 1)
	go func() {
		_, err := c.imports(at, "tsdb", source)
		ended <- err
	}()
	eventually(t, time.Minute, "a third block is there", func() error {
		n, err := c.node(at).olds(48)
		if err == nil && n < 3*each {
			err = fmt.Errorf("%v samples", n)
		}
		return err
	})
	c.kill(leader)
	first := <-ended
	c.begin(leader)
	eventually(t, 2*time.Minute, "the import is whole", func() error {
		_, err := c.imports(at, "tsdb", source)
		return err
	})
	t.Logf("the import whose leader was killed ended with %v", first)
	for _, n := range nodeNames {
		c.answersOlds(n, 6*each)
	}
	eventually(t, time.Minute, "every node lists every block at every node", func() error {
		for _, n := range nodeNames {
			all := c.history(n)
			if len(all.Blocks) != 6 || len(all.Importing) > 0 {
				return fmt.Errorf("node %s lists %+v", n, all)
			}
			for _, b := range all.Blocks {
				if !slices.Equal(b.Nodes, nodeNames) || b.Samples != each {
					return fmt.Errorf("node %s lists %+v", n, b)
				}
			}
		}
		return nil
	})

	// A removal is at every node, too. Then the block may come again.
	one := c.history("a").Blocks[0].Block
	if _, err := c.imports("b", "remove", one); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodeNames {
		c.answersOlds(n, 5*each)
	}
	if _, err := c.imports("c", "tsdb", source); err != nil {
		t.Errorf("the import of a removed block: %v", err)
	}

	// A node loses its directory.
	c.kill("b")
	c.dirs["b"] = dataDir(t)
	c.rejoin("a", "b")
	c.vote("a", "a", "b", "c")
	for _, n := range nodeNames {
		c.answersOlds(n, 6*each)
	}
	for _, n := range nodeNames {
		eventually(t, time.Minute, "no block is left over at node "+n, func() error {
			left, err := filepath.Glob(filepath.Join(c.dirs[n], "tsdb", "*", "history.*", "*"))
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("%q", left)
			}
			return err
		})
	}
}

// With an operator's token, a gateway passes on imports, listings and removals. Without it, a node refuses them.
func TestImportThroughAGateway(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	const series, each, token = 300, 300 * 120, "an operator's token"
	dir := t.TempDir()
	operators, tokenFile, source := filepath.Join(dir, "operators"), filepath.Join(dir, "token"), t.TempDir()
	for name, text := range map[string]string{tokenFile: token,
		operators: fmt.Sprintf("operators: [{name: ann, tokens: [{sha256: %x}]}]\n", sha256.Sum256([]byte(token)))} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := startTrioWith(t, []string{"--http-operators-file", operators}, "d")
	gateway := c.startGateway()
	oldBlock(t, source, 0, series)
	oldBlock(t, source, 2, series)
	mustFail(t, "operator", "import", "tsdb", source, "--server", "http://"+gateway.HTTP)
	through := []string{"--server", "http://" + gateway.HTTP, "--token-file", tokenFile}
	runFreshet(t, append([]string{"import", "tsdb", source}, through...)...)
	for _, n := range nodeNames {
		c.answersOlds(n, 2*each)
	}
	var all answer.History
	listed := runFreshet(t, append([]string{"import", "list", "--json"}, through...)...)
	if err := json.Unmarshal([]byte(listed), &all); err != nil || len(all.Blocks) != 2 {
		t.Fatalf("the gateway lists %+v, error %v; want 2 blocks", all.Blocks, err)
	}
	runFreshet(t, append([]string{"import", "remove", all.Blocks[0].Block}, through...)...)
	for _, n := range nodeNames {
		c.answersOlds(n, each)
	}
}
