package tsdb

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/storage"
)

// startInGroup starts a process of a member of a group, whose checkpoint has so many requests.
func (w *world) startInGroup(boot string, requests uint64) {
	w.t.Helper()
	w.close()
	w.open()
	w.state.Requests = requests
	w.stores.CutBack(boot, map[string]uint64{"default": requests})
}

func (w *world) sync() {
	w.t.Helper()
	if err := w.stores.Sync(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// A power loss tears both logs of a store at different requests. A start removes what came after the last
// sync, and the log of the group brings it again.
func TestAStoreIsCutBackToItsLastSync(t *testing.T) {
	const synced, all = "900=2 1000=1", "900=2 950=4 1000=1 2000=3"
	for _, c := range []struct {
		name, boot string
		requests   uint64 // of the checkpoint
		want       string
	}{
		{"after a power loss", "second", 2, synced},
		{"an older checkpoint has fewer requests", "second", 0, synced},
		{"if the boot is unknown", "", 2, synced},
		{"not after a kill", "first", 2, all},
		{"not if the last sync failed, and the checkpoint has more", "second", 3, all},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.startInGroup("first", 0)
			w.writeRaw(&plain, "a@1000=1", "a@900=2")
			w.sync()
			late := []string{"a@2000=3", "a@950=4"}
			w.writeRaw(&plain, late...)
			w.startInGroup(c.boot, c.requests)
			if got := w.raw()["a"]; got != c.want {
				t.Errorf("stored: %s, want %s", got, c.want)
			}
			for _, o := range w.writeRaw(&plain, late...) {
				if o.Written.Samples != 1 {
					t.Errorf("written again: %s", o.Text())
				}
			}
			if got := w.raw()["a"]; got != all {
				t.Errorf("written again: %s, want %s", got, all)
			}
		})
	}
}

// A store is cut back once in a boot of the machine. What it takes then, notes of the group may count as
// stored.
func TestAStoreIsCutBackOnce(t *testing.T) {
	for name, lost := range map[string]string{"something is lost": "a@2000=2", "nothing is lost": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.startInGroup("first", 0)
			w.writeRaw(&plain, "a@1000=1")
			w.sync()
			if lost != "" {
				w.writeRaw(&plain, lost)
			}
			w.startInGroup("second", 1)
			w.writeRaw(&plain, "a@3000=3")
			for _, requests := range []uint64{1, 2} {
				w.startInGroup("second", requests)
				if got := w.raw()["a"]; got != "1000=1 3000=3" {
					t.Errorf("stored, if the notes have %d requests: %s", requests, got)
				}
			}
		})
	}
}

// Nothing is certain of a store before its first sync.
func TestAStoreWithoutASyncIsCutBackToNothing(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1", "a@900=2")
	w.startInGroup("second", 0)
	if got := w.raw(); len(got) > 0 {
		t.Errorf("stored: %v", got)
	}
}

// TSDB moves late samples into files of chunks, from which an opening takes them again.
func TestChunksAreCutBack(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1")
	w.sync()
	var late strings.Builder
	for at := range 40 {
		fmt.Fprintf(&late, "a@%d=%d ", 900+at, at)
	}
	w.writeRaw(&plain, late.String())
	w.startInGroup("second", 1)
	if got := w.raw()["a"]; got != "1000=1" {
		t.Errorf("stored: %s", got)
	}
}

// A block cannot be cut. So before TSDB puts a block into place, all of its samples are in front of the
// ends of the logs.
func TestABlockIsInFrontOfTheEnds(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1", "a@900=2", "b@1000=3")
	if err := w.rawDatabase().CompactOOOHead(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(w.rawDatabase().Blocks()); n != 1 {
		t.Fatalf("%d blocks", n)
	}
	w.writeRaw(&plain, "b@2000=4")
	w.startInGroup("second", 0)
	if got := fmt.Sprint(w.raw()); got != "map[a:900=2 1000=1 b:1000=3]" {
		t.Errorf("stored: %s", got)
	}
}

// One machine alone takes requests that are in no other log, also after it has left a group.
func TestAStoreThatWasInNoGroupIsNotCutBack(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@1000=1")
	w.startInGroup("first", 0)
	if got := w.raw()["a"]; got != "1000=1" {
		t.Errorf("stored when it enters a group: %s", got)
	}
	w.sync()
	w.close()
	w.open()
	w.writeRaw(&plain, "a@2000=2")
	w.startInGroup("second", 0)
	if got := w.raw()["a"]; got != "1000=1 2000=2" {
		t.Errorf("stored when it enters a group again: %s", got)
	}
}

// A sync during an opening saves no ends. The next sync used to save none either, if nothing was written in
// between: after a power loss, the store lacked requests of the checkpoint.
func TestEndsAreSavedAfterAnOpening(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1", "a@900=2")
	st := w.rawStore()
	st.ends.opening.Lock()
	w.sync()
	st.ends.opening.Unlock()
	w.sync()
	if e, _, err := readEnds(st.dir); e.requests != 2 || err != nil {
		t.Errorf("the saved ends have %d requests, %v", e.requests, err)
	}
}

// rawStore returns the store of raw samples.
func (w *world) rawStore() *store {
	w.t.Helper()
	st, err := w.stores.forWrite("default", Raw)
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}

// syncedAppender saves the ends of a store as soon as nobody commits to it.
type syncedAppender struct {
	storage.Appender
	store *store
	saved chan error
}

func (a syncedAppender) Commit() error {
	go func() { a.saved <- a.store.saveEnds() }()
	return a.Appender.Commit()
}

// A sync right behind a commit saves ends behind its requests, and must count them: nobody writes them again.
func TestEndsHaveTheRequestsInFrontOfThem(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1")
	st := w.rawStore()
	for requests := range uint64(50) {
		a := syncedAppender{w.rawDatabase().Appender(t.Context()), st, make(chan error, 1)}
		if err := st.commit(a, requests); err != nil {
			t.Fatal(err)
		}
		if err := <-a.saved; err != nil {
			t.Fatal(err)
		}
		if e, _, err := readEnds(st.dir); e.requests != max(requests, 1) || err != nil {
			t.Errorf("%d requests are committed, and the saved ends have %d, %v", requests, e.requests, err)
		}
	}
}
