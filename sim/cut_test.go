package sim

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A start after a power loss cuts databases back, and opening a database may rewrite its log of late samples.
// In this file, the process dies between two steps of that work. A step ends where a database syncs a file or
// a directory.

// logsOf returns the files in some directories of a store, by name.
func (n *node) logsOf(store string, dirs ...string) map[string][]byte {
	all := map[string][]byte{}
	for _, d := range dirs {
		dir := filepath.Join(store, d)
		files, _ := os.ReadDir(dir) // no error matters: a store may lack the directory
		for _, f := range files {
			path := filepath.Join(dir, f.Name())
			if b, err := os.ReadFile(path); err == nil { // a checkpoint is a directory, so it is left out
				all[strings.TrimPrefix(path, n.stores.dir)] = b
			}
		}
	}
	return all
}

// cutOrDie calls cut, which cuts the databases back. Sometimes the process dies meanwhile. Then a power loss
// may undo what was not synced, and the process starts again later.
func (s *sim) cutOrDie(n *node, cut func()) (died bool) {
	if s.Now > s.calmFrom() || !s.Chance(40) {
		cut()
		return false
	}
	before, synced, steps := map[string][]byte{}, map[string]bool{}, s.Rand.IntN(12)
	for _, tenant := range tenants {
		for _, store := range n.requestDirs(tenant) {
			maps.Copy(before, n.logsOf(store, "wal", "wbl", "chunks_head"))
		}
	}
	type death struct{}
	n.stores.atSync = func(path string) {
		if steps == 0 {
			panic(death{})
		}
		steps--
		synced[strings.TrimPrefix(path, n.stores.dir)] = true
	}
	defer func() {
		n.stores.atSync = nil
		cause := recover()
		if _, died = cause.(death); cause != nil && !died {
			panic(cause)
		}
		if died {
			s.crashInCut(n, before, synced)
		}
	}()
	cut()
	return false
}

// crashInCut crashes a process while it cuts its databases back.
func (s *sim) crashInCut(n *node, before map[string][]byte, synced map[string]bool) {
	s.covered.cutCrashes++
	power := s.Chance(50)
	s.Tell("node %d: dies while it cuts its stores back (power lost: %v)", n.n, power)
	n.disk = n.disk.Crash()
	n.crashStores(false)
	if power {
		n.disk = s.PowerLoss(n.disk)
		n.boots++
		n.undo(before, synced)
	}
	n.stores.synced = nil
	s.At(s.Between(100, second), nil, func() { s.start(n, nil) })
}

// undo restores some changed files of the databases, and so undoes changes that are not synced.
func (n *node) undo(before map[string][]byte, synced map[string]bool) {
	// A directory of chunks comes back whole or not at all, since it is renamed before it is removed.
	chunks := map[string]bool{} // whether a directory is back
	for _, name := range slices.Sorted(maps.Keys(before)) {
		dir := filepath.Dir(name)
		back, known := chunks[dir]
		if isChunks := filepath.Base(dir) == "chunks_head"; !isChunks {
			back = !synced[name] && !synced[dir] && n.sim.Chance(50)
		} else if !known {
			back = !synced[filepath.Dir(dir)] && n.sim.Chance(50)
			chunks[dir] = back
		}
		if back {
			n.putBack(name, before[name])
		}
	}
}

func (n *node) putBack(name string, b []byte) {
	path := filepath.Join(n.stores.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o777)
	if err == nil {
		err = os.WriteFile(path, b, 0o666)
	}
	if err != nil {
		n.sim.Fail("node %d: undo a change of %s: %v", n.n, name, err)
	}
}

// writeOrDie calls write, which writes to a store of requests and may open it. Sometimes the process is killed while
// the store opens, and more often if the opening rewrites the log of late samples.
func (s *sim) writeOrDie(n *node, store string, write func()) (died bool) {
	if s.Now > s.calmFrom() {
		n.noteEnds(write)
		return false
	}
	before, copied, steps, seen := n.logsOf(store, "wbl"), "", s.Rand.IntN(60), false
	n.stores.atSync = func(string) {
		if steps--; !seen && len(n.changed(store, before)) > 0 {
			if seen = true; s.Chance(70) {
				steps = -1
			}
		}
		if steps == -1 {
			copied = n.copyStores(func(_ string, b []byte) []byte { return b })
		}
	}
	n.noteEnds(write)
	n.stores.atSync = nil
	if copied == "" {
		return false
	}
	s.covered.openingKills++
	name, _ := filepath.Rel(n.stores.dir, store)
	s.Tell("node %d: killed while it opens the store %s", n.n, name)
	n.useStores(copied)
	store = filepath.Join(n.stores.dir, name) // in the copy
	n.undoSome(store, before)
	n.noteSynced(store)
	s.crashNow(n, s.Between(100, 3*second), false)
	return true
}

// changed returns the segments with late samples that an opening has rewritten.
func (n *node) changed(store string, before map[string][]byte) (names []string) {
	now := n.logsOf(store, "wbl")
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if b, there := now[name]; there && !bytes.HasPrefix(b, before[name]) {
			names = append(names, name)
		}
	}
	return names
}

// undoSome restores the last few segments that an opening has rewritten, as if the process had been
// killed before it rewrote them.
func (n *node) undoSome(store string, before map[string][]byte) {
	changed := n.changed(store, before)
	n.sim.covered.rewritten += len(changed)
	for _, name := range changed[n.sim.Rand.IntN(len(changed)+1):] {
		n.putBack(name, before[name])
	}
}

// noteEnds calls `do`, which may save the ends of a store's logs. Saved ends mean that the store is
// synced.
func (n *node) noteEnds(do func()) {
	ends := map[string]string{}
	for _, tenant := range tenants {
		for _, dir := range n.requestDirs(tenant) {
			ends[dir] = n.ends(dir)
		}
	}
	do()
	for _, dir := range slices.Sorted(maps.Keys(ends)) {
		if n.ends(dir) != ends[dir] {
			n.noteSynced(dir)
		}
	}
}

// copyStores copies the files of the databases to a new directory. For each file, keep returns the bytes
// that the copy gets, or nil to leave the file out. copyStores calls keep with the files of a directory
// from the oldest to the newest.
func (n *node) copyStores(keep func(name string, b []byte) []byte) (to string) {
	n.sim.dirs++
	to = filepath.Join(n.sim.dir, fmt.Sprint(n.sim.dirs))
	from := n.stores.dir
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, from)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o777)
		}
		if d.Name() == "lock" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if b = keep(name, b); b == nil {
			return nil
		}
		return os.WriteFile(filepath.Join(to, name), b, 0o666)
	})
	if err != nil {
		n.sim.Fail("node %d: copy the stores: %v", n.n, err)
	}
	return to
}

// useStores closes the databases and removes their directory. The next process uses the databases
// in `dir`.
func (n *node) useStores(dir string) {
	n.closeStores()
	if err := os.RemoveAll(n.stores.dir); err != nil {
		n.sim.Fail("node %d: %v", n.n, err)
	}
	n.stores.dir = dir
}
