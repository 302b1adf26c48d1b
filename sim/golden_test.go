package sim

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/marks"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/world"
)

// newGolden names a golden log that TestNewGoldenLog writes.
var newGolden = flag.String("new-golden", "", "write a golden log with this name")

// goldenDir has golden logs, each as NAME.log.gz with what it must lead to in NAME.txt. A golden log has the
// entries of a simulated run, in order: the index and the length of each as uvarints, and its bytes.
const goldenDir = "testdata/golden"

// Every later program makes the same of the entries of an earlier one: nodes of two versions apply the same log
// while a cluster is upgraded.
func TestGoldenLogs(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(goldenDir, "*.log.gz"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("there are no golden logs: %v", err)
	}
	for _, path := range logs {
		name := strings.TrimSuffix(path, ".log.gz")
		want, err := os.ReadFile(name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(3) { // of how requests are grouped in commits
			if got := replayGolden(t, path, seed); got != string(want) {
				t.Errorf("%s, seed %d: the log leads to\n%s, and led to\n%s", path, seed, got, want)
			}
		}
	}
}

// With the flag -new-golden, TestNewGoldenLog records a golden log. Without it, it checks that a recorded log has
// every kind of entry.
func TestNewGoldenLog(t *testing.T) {
	name := *newGolden
	if name == "" {
		name = filepath.Join(t.TempDir(), "log")
	} else {
		name = filepath.Join(goldenDir, name)
	}
	const seed, seconds = 3, 120
	entries := record(t, seed, seconds)
	path := name + ".log.gz"
	if err := os.WriteFile(path, entries, 0o666); err != nil {
		t.Fatal(err)
	}
	text := replayGolden(t, path, 0)
	if err := os.WriteFile(name+".txt", []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kindNames {
		if !strings.Contains(text, "\n"+kind+" ") || strings.Contains(text, "\n"+kind+" 0\n") {
			t.Errorf("the log of seed %d has no entry of the kind %s:\n%s", seed, kind, text)
		}
	}
}

// record returns the entries of a run, compressed. Entries of the kinds that no run has follow them.
func record(t *testing.T, seed uint64, seconds int64) []byte {
	s := simulate(t, seed, seconds, mistakes{rules: true})
	if s.Failed != nil {
		t.Fatal(s.Failed)
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	add := func(index uint64, data []byte) {
		head := binary.AppendUvarint(binary.AppendUvarint(nil, index), uint64(len(data)))
		if _, err := w.Write(append(head, data...)); err != nil {
			t.Fatal(err)
		}
	}
	n := s.nodes[0]
	end := n.node.State().Index()
	for index := uint64(2); index <= end; index++ {
		found, err := n.entries.Entries(index, index+1, 1<<30)
		if err != nil {
			t.Fatalf("entry %d of %d: %v", index, end, err)
		}
		if found[0].GetType() == raftpb.EntryConfChangeV2 {
			found[0].Data = nil // as members get it
		}
		add(index, found[0].GetData())
	}
	for _, e := range []entry.Entry{
		{Kind: entry.KindVersion, Version: entry.Version{Format: member.Format, Semantics: member.Semantics}},
		{Kind: entry.KindNode, Node: entry.Node{Name: "d", Member: 4}},
		{Kind: entry.KindForwarded, Forwarded: entry.AppendForwarded(nil, "mimir", end)},
		{Kind: entry.KindDrain, Drain: entry.Drain{Name: "d", Until: entry.Forever}},
	} {
		end++
		e.Group, e.Shape = group, 1
		add(end, e.Append(nil))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// golden is a member that replays a golden log, with its stores.
type golden struct {
	*node
	state *member.Member
	kinds map[entry.Kind]int
	mark  marks.Mark // the last one
}

// replayGolden applies the entries of a log, and returns what they lead to.
func replayGolden(t *testing.T, path string, seed uint64) string {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	s := &sim{World: world.New(seed), dir: directory(t)}
	defer os.RemoveAll(s.dir)
	g := &golden{node: newNode(s, 0), kinds: map[entry.Kind]int{}}
	g.openStores()
	defer g.closeStores()
	settings := g.settings()
	g.state = member.New(group, &settings.Tiles)
	for r := bufio.NewReader(zipped); ; {
		index, err := binary.ReadUvarint(r)
		if err == io.EOF {
			break
		}
		size, err2 := binary.ReadUvarint(r)
		data := make([]byte, size)
		_, err3 := io.ReadFull(r, data)
		if err := cmp.Or(err, err2, err3); err != nil {
			t.Fatal(err)
		}
		if err := g.apply(index, data); err != nil {
			t.Fatal(err)
		}
	}
	text := g.text()
	if s.Failed != nil {
		t.Fatal(s.Failed)
	}
	return text
}

// apply applies an entry, and gives the stores what it brings.
func (g *golden) apply(index uint64, data []byte) error {
	done, err := g.state.Apply(index, data)
	if err != nil {
		return err
	}
	g.kinds[done.Kind]++
	for work := g.state.Work(); len(work) > 0; work = g.state.Work() {
		for _, w := range work {
			for width := range tile.NumWidths {
				g.writeTiles(w, tile.Width(width))
			}
			for _, r := range w.Requests {
				if err := r.Decode(); err != nil {
					return err
				}
			}
			g.writeRequests(w)
			g.sim.writeEvents(g.node, w)
			g.state.Done(w)
		}
	}
	if all := g.state.Marks(); len(all) > 0 {
		g.mark = all[len(all)-1]
	}
	return nil
}

// text returns what the entries have led to, as lines of text. It does not depend on how the state is encoded.
func (g *golden) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "entry %d is the last\n", g.state.Index())
	for kind, name := range kindNames {
		if n := g.kinds[entry.Kind(kind)]; n > 0 || kind <= int(entry.KindRules) { // older logs have no later kinds
			fmt.Fprintf(&b, "%s %d\n", name, n)
		}
	}
	fmt.Fprintf(&b, "mark %d %016x\n", g.mark.Index, g.mark.Hash)
	fmt.Fprintf(&b, "nodes %v, forwarded %d\n", g.state.Nodes(), g.state.Forwarded("mimir"))
	states := g.state.Rules(ruled)
	slices.SortFunc(states, bytes.Compare)
	fmt.Fprintf(&b, "drained %v, rules %x\n", g.state.Drained(), states)
	if sets := g.state.RuleSets(); !sets.Empty() {
		fmt.Fprintf(&b, "rules set by the API %016x\n", sets.Hash())
	}
	if imports := g.state.Imports(); !imports.Empty() {
		fmt.Fprintf(&b, "imports %016x\n", imports.Hash())
	}
	fmt.Fprintf(&b, "events %d %s\n", len(g.eventLog.events), hashOf(g.eventLog.events))
	for _, tenant := range tenants {
		var names []string
		for _, m := range g.state.Names().Metadata(tenant) {
			names = append(names, fmt.Sprint(m.Kind, " ", m.Name, " ", m.Base))
		}
		slices.Sort(names)
		fmt.Fprintf(&b, "tenant %s has %d names %s\n", tenant, len(names), hashOf(names))
		for _, store := range append(slices.Clone(stored), tsdb.Rules) {
			var series []string
			for ls, samples := range g.all(tenant, store) {
				series = append(series, ls+samples)
			}
			if store == tsdb.Rules && len(series) == 0 { // older logs have no results
				continue
			}
			slices.Sort(series)
			fmt.Fprintf(&b, "store %s of tenant %s has %d series %s\n", store, tenant, len(series), hashOf(series))
		}
	}
	return b.String()
}

// kindNames has the kinds of entries in golden logs, and "other" for entries of the order alone.
var kindNames = []string{"other", "windows", "request", "deltas", "boundary", "events", "names", "version", "node",
	"forwarded", "drain", "rules", "ruleset", "import"}

func hashOf(lines []string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(lines, "\n"))))[:16]
}
