package filler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/lib/fulldisk"
)

// block returns the name of a file of a block.
func block(number int, file string) string {
	return fmt.Sprintf("tsdb/default/raw/01HV0000000000000000000%03d/%s", number, file)
}

// node is another node, with the data that it gives.
type node struct {
	fixed, rest map[string]string
	calls       int
	fail        func(call int) error // called before each call, and before each piece of a file
	damaged     bool                 // Check finds damage in its data
}

func newNode() *node {
	return &node{
		fixed: map[string]string{
			block(1, "index"): "index", block(1, "chunks/000001"): "chunks", block(2, "index"): "second",
		},
		rest: map[string]string{
			"tsdb/default/raw/wal/00000000": "log", "tsdb/default/raw/ends": "", "events.db": "events",
			"groups/0/00000000000000000007.checkpoint": "state", "groups/0/00000000000000000001.segment": "entries",
		},
		fail: func(int) error { return nil },
	}
}

func (n *node) next() error {
	n.calls++
	return n.fail(n.calls)
}

func (n *node) all() map[string]string {
	all := maps.Clone(n.fixed)
	maps.Copy(all, n.rest)
	return all
}

// cluster implements Nodes.
type cluster struct {
	names []string
	nodes map[string]*node
}

func (c *cluster) Sources(context.Context) []string { return c.names }

func (c *cluster) Life(context.Context, string) (string, error) { return "first", nil }

func (c *cluster) Copy(_ context.Context, from string, whole bool) (files []File, err error) {
	n := c.nodes[from]
	if err := n.next(); err != nil {
		return nil, err
	}
	all := n.fixed
	if whole {
		all = n.all()
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		files = append(files, File{name, int64(len(all[name]))})
	}
	return files, nil
}

func (c *cluster) Fetch(ctx context.Context, from string, f File, take func([]byte) error) error {
	n := c.nodes[from]
	for _, b := range []byte(n.all()[f.Name]) {
		if err := errors.Join(n.next(), ctx.Err()); err != nil {
			return err
		}
		if err := take([]byte{b}); err != nil {
			return err
		}
	}
	return n.next()
}

var errDamaged = errors.New("a block is damaged")

func fillerOf(dir string, c *cluster) *Filler {
	return New(Options{DataDir: dir, Nodes: c, Logger: slog.New(slog.DiscardHandler),
		Room: func(int64) error { return nil },
		Check: func(_ context.Context, dir string) (uint64, error) {
			for _, n := range c.nodes {
				if n.damaged && equal(filesIn(dir), n.all()) {
					return 0, errDamaged
				}
			}
			return 9, nil
		}})
}

// filesIn returns the contents of the files below a directory.
func filesIn(dir string) map[string]string {
	all := map[string]string{}
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			b, _ := os.ReadFile(path)
			name, _ := filepath.Rel(dir, path)
			all[filepath.ToSlash(name)] = string(b)
		}
		return nil
	})
	return all
}

func equal(a, b map[string]string) bool { return maps.Equal(a, b) }

// Nothing is fetched that the disk has no room for. Files of an earlier try count.
func TestAFillThatDoesNotFit(t *testing.T) {
	dir, n := t.TempDir(), newNode()
	f := fillerOf(dir, &cluster{[]string{"a"}, map[string]*node{"a": n}})
	free := int64(18) // the blocks fit, and the rest does not
	ctx, cancel := context.WithCancel(t.Context())
	var asked []int64
	f.Room = func(bytes int64) error {
		asked = append(asked, bytes)
		if bytes > free {
			cancel()
			return fulldisk.Err
		}
		return nil
	}
	if err := f.Fill(ctx); !fulldisk.Is(err) {
		t.Errorf("the fill ends with %v", err)
	}
	if want := []int64{17, 21}; !slices.Equal(asked, want) {
		t.Errorf("it asked for room for %v bytes, want %v", asked, want)
	}
	if left := filesIn(filepath.Join(dir, "fill", "data")); !equal(left, n.fixed) {
		t.Errorf("the node has %v, want the blocks", left)
	}
}

// The data directory gets everything that the other node has, and nothing else is left.
func TestFill(t *testing.T) {
	dir, n := t.TempDir(), newNode()
	f := fillerOf(dir, &cluster{[]string{"a"}, map[string]*node{"a": n}})
	if last, err := f.Last(); last != 0 || err != nil || f.Progress() != nil {
		t.Errorf("before the fill, the node has the entries up to %d; error %v", last, err)
	}
	if err := f.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last, err := f.Last(); last != 9 || err != nil || f.Base() != 7 {
		t.Errorf("after the fill, the node has the entries %d to %d, want 8 to 9; error %v", f.Base()+1, last, err)
	}
	if p := f.Progress(); p.Has != p.Of || p.Of != 38 || p.From != "a" {
		t.Errorf("the progress is %+v", p)
	}
	if fits, err := f.Fits("first"); !fits || err != nil {
		t.Errorf("the data do not fit; error %v", err)
	}
	if err := f.Install(); err != nil {
		t.Fatal(err)
	}
	if err := f.End(); err != nil {
		t.Fatal(err)
	}
	if got := filesIn(dir); !equal(got, n.all()) || f.Progress() != nil {
		t.Errorf("the data directory has %v, want %v", got, n.all())
	}
}

// watched calls `copies` before each copy.
type watched struct {
	*cluster
	copies func(whole bool)
}

func (w watched) Copy(ctx context.Context, from string, whole bool) ([]File, error) {
	w.copies(whole)
	return w.cluster.Copy(ctx, from, whole)
}

// While another node copies everything, the whole log must be kept: only the copy says which entries the node will
// lack. Blocks, which may take hours, need no log.
func TestTheLogIsKeptWhileEverythingIsCopied(t *testing.T) {
	f := fillerOf(t.TempDir(), nil)
	var bases []uint64
	c := &cluster{[]string{"a"}, map[string]*node{"a": newNode()}}
	f.Nodes = watched{c, func(bool) { bases = append(bases, f.Base()) }}
	f.Check = func(context.Context, string) (uint64, error) { return 9, nil }
	if err := f.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if bases = append(bases, f.Base()); !slices.Equal(bases, []uint64{0, wholeLog, 7}) {
		t.Errorf("the log must be kept behind the entries %d, want 0, %d and 7", bases, wholeLog)
	}
}

// Wherever the process of the node is killed, the next one goes on, and fetches no file of a block again. Nothing is
// whole before everything is there. Then the data may be installed, and a kill of that is made good, too.
func TestAFillIsInterrupted(t *testing.T) {
	for kill := 1; ; kill++ {
		dir, n := t.TempDir(), newNode()
		c := &cluster{[]string{"a"}, map[string]*node{"a": n}}
		killed, stop := context.WithCancel(t.Context())
		n.fail = func(call int) error {
			if call == kill {
				stop()
				return context.Canceled
			}
			return nil
		}
		err := fillerOf(dir, c).Fill(killed)
		if err == nil {
			if kill < 40 {
				t.Errorf("a fill has only %d calls", kill)
			}
			return
		}
		has := 0
		for name := range filesIn(filepath.Join(dir, dirName, dataName)) {
			if isFixed(name) {
				has += len(n.fixed[name]) + 1
			}
		}
		n.calls, n.fail = 0, func(int) error { return nil }
		n.rest["tsdb/default/raw/wal/00000000"] = "LOG" // of the same size, but it changes
		f := fillerOf(dir, c)
		if last, err := f.Last(); last != 0 || err != nil {
			t.Fatalf("killed at call %d: the fill is whole, error %v", kill, err)
		}
		if err := f.Fill(t.Context()); err != nil {
			t.Fatalf("killed at call %d: %v", kill, err)
		}
		all := 2
		for _, content := range n.all() {
			all += len(content) + 1
		}
		if n.calls != all-has {
			t.Errorf("killed at call %d: then %d calls, want %d of %d", kill, n.calls, all-has, all)
		}
		installInterrupted(t, dir, c)
		if got := filesIn(dir); !equal(got, n.all()) {
			t.Errorf("killed at call %d: the data directory has %v", kill, got)
		}
	}
}

// installInterrupted is a helper that installs a fill, of which a killed process has installed one part.
func installInterrupted(t *testing.T, dir string, c *cluster) {
	t.Helper()
	if err := os.Rename(filepath.Join(dir, dirName, dataName, "groups"), filepath.Join(dir, "groups")); err != nil {
		t.Fatal(err)
	}
	f := fillerOf(dir, c)
	if last, err := f.Last(); last != 9 || err != nil {
		t.Errorf("a fill of which a part is installed ends with entry %d; error %v", last, err)
	}
	for range 2 {
		if err := f.Install(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.End(); err != nil {
		t.Fatal(err)
	}
}

// A node that joins too late after a fill is filled again. Nothing of the first fill is left, installed or not.
func TestASecondFill(t *testing.T) {
	dir, n := t.TempDir(), newNode()
	c := &cluster{[]string{"a"}, map[string]*node{"a": n}}
	f := fillerOf(dir, c)
	if err := errors.Join(f.Fill(t.Context()), f.Install()); err != nil {
		t.Fatal(err)
	}
	delete(n.fixed, block(2, "index"))
	n.rest["groups/0/00000000000000000008.checkpoint"] = "later"
	if err := errors.Join(f.Fill(t.Context()), f.Install(), f.End()); err != nil {
		t.Fatal(err)
	}
	if got := filesIn(dir); !equal(got, n.all()) {
		t.Errorf("the data directory has %v, want %v", got, n.all())
	}
}

// If the cluster was recovered from a loss while a node was filled, the data are of no use.
func TestDataOfAnotherLife(t *testing.T) {
	f := fillerOf(t.TempDir(), &cluster{[]string{"a"}, map[string]*node{"a": newNode()}})
	if err := f.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fits, err := f.Fits("second"); fits || err != nil {
		t.Errorf("the data fit another life; error %v", err)
	}
	if last, err := f.Last(); last != 0 || err != nil {
		t.Errorf("the data still count, up to entry %d; error %v", last, err)
	}
}

// A node that has joined and is filled again keeps its own data, and what its member must not forget, until all of the
// other node's data are there.
func TestANodeIsFilledAgain(t *testing.T) {
	dir, n := t.TempDir(), newNode()
	own := filepath.Join(dir, "groups", "0", "own")
	err := os.MkdirAll(filepath.Dir(own), 0o700)
	if err = errors.Join(err, os.WriteFile(own, []byte("own"), 0o600)); err != nil {
		t.Fatal(err)
	}
	f := fillerOf(dir, &cluster{[]string{"a"}, map[string]*node{"a": n}})
	if old, err := f.Again(); old != nil || err != nil {
		t.Errorf("a node that need not be filled again has %v, error %v", old, err)
	}
	if err := f.FillAgain(); err != nil {
		t.Fatal(err)
	}
	if old, err := f.Again(); old == nil || *old != (Old{}) || err != nil {
		t.Errorf("a node that must be filled again has %v, error %v", old, err)
	}
	want := Old{Last: 7, Term: 1 << 63, Vote: 3}
	if err := errors.Join(f.KeepOld(want), f.Fill(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(own); err != nil {
		t.Error("its own data are gone too early")
	}
	if old, err := f.Again(); old == nil || *old != want || err != nil {
		t.Errorf("after the fill, the node has %v, error %v", old, err)
	}
	if err := errors.Join(f.Install(), f.End()); err != nil {
		t.Fatal(err)
	}
	if got := filesIn(dir); !equal(got, n.all()) {
		t.Errorf("the data directory has %v, want %v", got, n.all())
	}
}

// If a node dies, or its data are damaged, the next node is asked. Nothing of the first one's data is left. If no
// node can give its data, all are asked again later.
func TestTheNextNodeIsAsked(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			dir, a, b := t.TempDir(), newNode(), newNode()
			a.damaged = damaged
			tries := 0
			if !damaged {
				a.fail = func(call int) error {
					if call > 12 {
						return errors.New("it is gone")
					}
					return nil
				}
			}
			b.fail = func(call int) error {
				if tries++; tries == 1 {
					return errors.New("it is not ready")
				}
				return nil
			}
			b.fixed = map[string]string{block(3, "index"): "other"}
			f := fillerOf(dir, &cluster{[]string{"a", "b"}, map[string]*node{"a": a, "b": b}})
			begun := time.Now()
			if err := errors.Join(f.Fill(t.Context()), f.Install()); err != nil {
				t.Fatal(err)
			}
			if p := f.Progress(); p.From != "b" || p.Failures != 3 || p.Error == "" || time.Since(begun) < pause {
				t.Errorf("the progress is %+v", p)
			}
			if err := f.End(); err != nil {
				t.Fatal(err)
			}
			if got := filesIn(dir); !equal(got, b.all()) {
				t.Errorf("the data directory has %v, want %v", got, b.all())
			}
		})
	}
}

// A node that gives names which lead out of the copy is refused, and so is a file that changes among the blocks.
func TestNamesAreChecked(t *testing.T) {
	for _, name := range []string{"../x", "/etc/passwd", "tsdb/../../x", "cluster.json", "tsdb", "groups", "events.db/x",
		"tsdb//x", "tsdb/\x00", `tsdb\x`, "", "tsdb/" + strings.Repeat("x", maxName)} {
		if err := checkName(name); !errors.Is(err, errName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	dir, n := t.TempDir(), newNode()
	n.fixed["tsdb/default/raw/wal/00000000"] = "log"
	f := fillerOf(dir, &cluster{[]string{"a"}, map[string]*node{"a": n}})
	ctx, stop := context.WithCancel(t.Context())
	n.fail = func(call int) error {
		if call > 1 {
			stop()
		}
		return nil
	}
	if err := f.Fill(ctx); err == nil || !strings.Contains(f.Progress().Error, "came too early") {
		t.Errorf("%v, %+v", err, f.Progress())
	}
}

// Whatever a name is, a file with it lies below the copy, in one of its parts.
func FuzzName(f *testing.F) {
	for name := range newNode().all() {
		f.Add(name)
	}
	f.Add("tsdb/../../x")
	f.Add("groups/.")
	f.Fuzz(func(t *testing.T, name string) {
		if checkName(name) != nil {
			return
		}
		within, err := filepath.Rel("/copy", filepath.Join("/copy", filepath.FromSlash(name)))
		if err != nil || within != name || !slices.Contains(roots, strings.Split(name, "/")[0]) {
			t.Errorf("%q lies at %q, %v", name, within, err)
		}
	})
}

// A rate bounds the bytes in any longer time.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, begun := pace{rate: 1000}, time.Now()
		for range 50 {
			if err := p.wait(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("5,000 bytes at 1,000 bytes a second took %v", took)
		}
		none := pace{}
		if err := none.wait(t.Context(), 1<<40); err != nil || time.Since(begun) != 5*time.Second {
			t.Errorf("without a rate, there is a wait; error %v", err)
		}
	})
}

// A copy lives until the node asks for another one, or does not use it any more. A restart removes it.
func TestCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "copies")
		failed := error(nil)
		copyTo := func(text string) CopyTo {
			return func(_ context.Context, dir string) ([]File, error) {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					return nil, err
				}
				err := os.WriteFile(filepath.Join(dir, text), []byte(text+" grown"), 0o600)
				return []File{{text, int64(len(text))}}, errors.Join(err, failed)
			}
		}
		c, err := NewCopies(dir, copyTo("blocks"), copyTo("whole"))
		if err != nil {
			t.Fatal(err)
		}
		read := func(node, name string) string {
			r, err := c.Open(node, name)
			if err != nil {
				return ""
			}
			defer r.Close()
			b, err := io.ReadAll(r)
			if err != nil {
				t.Error(err)
			}
			return string(b)
		}
		_, err = c.Make(t.Context(), "b", false)
		if err != nil || read("b", "blocks") != "blocks" || read("c", "blocks") != "" {
			t.Errorf("the blocks are not there, or for another node; error %v", err)
		}
		_, err = c.Make(t.Context(), "b", true)
		if err != nil || read("b", "whole") != "whole" || read("b", "blocks") != "" {
			t.Errorf("the second copy is not in the place of the first; error %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(unusedTime - time.Second)
		if read("b", "whole") == "" {
			t.Error("a copy is gone too early")
		}
		time.Sleep(unusedTime + 2*time.Minute)
		if read("b", "whole") != "" || len(filesIn(dir)) > 0 {
			t.Errorf("a copy that is not used is still there: %v", filesIn(dir))
		}
		failed = errors.New("the disk is full")
		if _, err := c.Make(t.Context(), "b", true); !errors.Is(err, failed) || len(filesIn(dir)) > 0 {
			t.Errorf("a copy that failed has left %v; error %v", filesIn(dir), err)
		}
		failed = nil
		if _, err := c.Make(t.Context(), "b", true); err != nil {
			t.Error(err)
		}
		if _, err := NewCopies(dir, nil, nil); err != nil || len(filesIn(dir)) > 0 {
			t.Errorf("the copies of an earlier process are still there; error %v", err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
