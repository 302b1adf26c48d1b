package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/identity"
)

// nodeB makes a directory of node b, which founded its cluster.
func nodeB(t *testing.T) (path string, i *identity.Identity) {
	t.Helper()
	path = t.TempDir()
	dir, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	log, err := files.Open(filepath.Join(path, answer.GroupPath))
	if err != nil {
		t.Fatal(err)
	}
	if i, err = identity.Found(dir, log, "b", identity.BaseIndex); err != nil {
		t.Fatal(err)
	}
	return path, i
}

// The state of a node was outvoted. The command names the damage, and goes on only if the user accepts it.
func TestRecoverNamesTheDamage(t *testing.T) {
	path, i := nodeB(t)
	text := `{"what":"its state is not that of most nodes since entry 64","since":"2026-11-28T04:05:06Z"}`
	if err := os.WriteFile(filepath.Join(path, answer.DamageFile), []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	r := recovery{dataDir: path, node: "b", cluster: i.Cluster, in: strings.NewReader(""), out: &out}
	err := r.run()
	for _, want := range []string{"2026-11-28 04:05:06", "since entry 64", "from another node", "--accept-damage"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want it to have %q", err, want)
		}
	}
	r.doubtful = true
	if err := r.run(); err == nil || !strings.Contains(err.Error(), "the only one of its cluster already") {
		t.Errorf("with --accept-damage, the error is %v, want it to be about another check", err)
	}
	if !strings.Contains(out.String(), "since entry 64") {
		t.Errorf("it printed %s, want the damage", &out)
	}
}

// A node has set its damaged data aside to heal, and the nodes that it could get data from are lost. The command says
// where the old data are and how to go on with them. It takes a node that is done with moving, and has joined again.
func TestRecoverNamesTheDataThatAreSetAside(t *testing.T) {
	path, old := nodeB(t)
	dir, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	aside := filepath.Join(path, "damaged-20261128T040506Z")
	heals := func(member uint64) {
		t.Helper()
		text := fmt.Sprintf(`{"voters":["a","c"],"member":"%d","aside":%q}`, member, filepath.Base(aside))
		if err := os.WriteFile(filepath.Join(path, answer.HealFile), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	says := func(what string, wants ...string) {
		t.Helper()
		r := recovery{dataDir: path, node: "b", cluster: old.Cluster, in: strings.NewReader(""), out: io.Discard}
		err := r.run()
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error is %v, want it to have %q", what, err, want)
			}
		}
	}
	heals(old.Member)
	says("half of the data are moved", "moved into "+aside, "start the node")
	heals(old.Member + 1)
	says("the node has joined as a new member", "the only one of its cluster already")
	heals(old.Member)
	if _, err := identity.Prepare(dir, "b"); err != nil {
		t.Fatal(err)
	}
	says("all data are moved", aside, "move that directory out of "+path, "--data-dir", "start the node with it")
}
