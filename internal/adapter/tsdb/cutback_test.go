package tsdb

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/write"
)

// startInGroup restarts the process as a member of a group, whose checkpoint has the first `requests`
// requests.
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

// A power loss tears the two logs of a store at different requests. The next start removes what was
// written after the last sync, and the group's log brings those requests again.
func TestAStoreIsCutBackToItsLastSync(t *testing.T) {
	const synced, all = "900=2 1000=1", "900=2 950=4 1000=1 2000=3"
	for _, c := range []struct {
		name, boot string
		requests   uint64 // how many requests the checkpoint has
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
					t.Errorf("a request that was written again is refused: %s", o.Text())
				}
			}
			if got := w.raw()["a"]; got != all {
				t.Errorf("stored after the requests were written again: %s, want %s", got, all)
			}
		})
	}
}

// Results of rules come from the log of the group, too, so their store is cut back like that of the senders' samples.
// The numbers of requests of the two are not the same.
func TestResultsAreCutBack(t *testing.T) {
	w := newWorld(t)
	var state write.State
	results := func(text string) {
		t.Helper()
		r := requestOf(t, true, &plain, parseRaw(t, text))
		r.Results = true
		if err := w.stores.WriteRequests(t.Context(), "default", &state, []*write.Request{r}); err != nil {
			t.Fatal(err)
		}
		if r.Outcome.Written.Samples != 1 {
			t.Errorf("the result %s is refused: %s", text, r.Outcome.Text())
		}
	}
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1")
	w.writeRaw(&plain, "a@1010=1")
	results("r@9000=1")
	w.sync()
	results("r@9010=2")
	w.close()
	w.open()
	w.stores.CutBack("second", map[string]uint64{"default": 2, "default/rules": 1})
	if got := w.has(Rules)["r"]; got != "9000=1" {
		t.Errorf("after a power loss the results are %s, want those of before the sync", got)
	}
	state.Requests = 1
	results("r@9010=2")
	if raw, results := w.raw()["a"], w.has(Rules)["r"]; raw != "1000=1 1010=1" || results != "9000=1 9010=2" {
		t.Errorf("the stores have %s and %s", raw, results)
	}
}

// If no boot has a name, each start may follow a power loss.
func TestAStoreIsCutBackIfNoBootIsKnown(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("", 0)
	w.writeRaw(&plain, "a@1000=1")
	w.sync()
	w.writeRaw(&plain, "a@2000=2")
	w.startInGroup("", 1)
	if got := w.raw()["a"]; got != "1000=1" {
		t.Errorf("stored: %s", got)
	}
}

// A store is cut back only once in each boot of the machine. A later cut could remove what the group
// has noted as stored.
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
					t.Errorf("with %d requests in the checkpoint, the store has %s, want 1000=1 3000=3", requests, got)
				}
			}
		})
	}
}

// Before a store's first sync, nothing is certain to be on the disk.
func TestAStoreWithoutASyncIsCutBackToNothing(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1", "a@900=2")
	w.startInGroup("second", 0)
	if got := w.raw(); len(got) > 0 {
		t.Errorf("stored: %v", got)
	}
}

// A power loss during a cut undoes some of its removals: one segment is back, but the segment in front
// of it is not. The next start cuts the store back again, even if the segment that is back is empty.
func TestACutIsUndoneInPart(t *testing.T) {
	for _, log := range logDirs {
		w := newWorld(t)
		w.startInGroup("first", 0)
		w.writeRaw(&plain, "a@1000=1", "a@900=2")
		w.sync()
		w.close()
		if err := os.WriteFile(filepath.Join(w.storeRaw(), log, "00000002"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		w.startInGroup("second", 2)
		if got := w.raw()["a"]; got != "900=2 1000=1" {
			t.Errorf("%s: stored: %s", log, got)
		}
	}
}

// An opening moves late samples into chunk files. A cut must also remove late samples from these files
// if the last sync does not cover them.
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

// A power loss may remove everything that was written to both logs since the last sync, and leave the
// chunk files. A store that kept the late samples of these files would decide differently from the other
// members: it would write no zero at 900.
func TestChunksAreCutBackIfTheLogsAreLost(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@850=1")
	w.sync()
	synced := listLogs(w.storeRaw())
	requests := []string{"a@1000=2/900", ""}
	for at := range 40 {
		requests[1] += fmt.Sprintf("a@%d=1 ", 901+at)
	}
	w.writeRaw(&plain, requests...)
	want := w.raw()["a"]
	w.close()
	for path := range listLogs(w.storeRaw()) {
		if err := os.Truncate(path, synced[path].Size()); err != nil {
			t.Fatal(err)
		}
	}
	w.startInGroup("second", 1)
	if got := w.raw()["a"]; got != "850=1" {
		t.Errorf("stored: %s, want 850=1", got)
	}
	w.writeRaw(&plain, requests...)
	if got := w.raw()["a"]; got != want {
		t.Errorf("stored after the requests were written again: %s, want %s", got, want)
	}
}

// A block cannot be cut. So before tsdb puts a block into place, the ends of the logs are saved again,
// now behind all samples of the block.
func TestABlockIsInFrontOfTheEnds(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1", "a@900=2", "b@1000=3")
	if err := w.rawDatabase().CompactOOOHead(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(w.rawDatabase().Blocks()); n != 1 {
		t.Fatalf("the store has %d blocks", n)
	}
	w.writeRaw(&plain, "b@2000=4")
	w.startInGroup("second", 0)
	if got := fmt.Sprint(w.raw()); got != "map[a:900=2 1000=1 b:1000=3]" {
		t.Errorf("stored: %s", got)
	}
}

// Outside of a group, no other log has the requests of a store, even if the server was in a group
// before. So the store is not cut back.
func TestAStoreThatWasInNoGroupIsNotCutBack(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@1000=1")
	w.startInGroup("first", 0)
	if got := w.raw()["a"]; got != "1000=1" {
		t.Errorf("stored after the server entered a group: %s, want 1000=1", got)
	}
	w.sync()
	w.close()
	w.open()
	w.writeRaw(&plain, "a@2000=2")
	w.startInGroup("second", 0)
	if got := w.raw()["a"]; got != "1000=1 2000=2" {
		t.Errorf("stored after the server entered a group again: %s, want 1000=1 2000=2", got)
	}
}

// A sync during an opening saves no ends. Formerly, the next sync saved none either if nothing was
// written between the two. After a power loss, the store then lacked requests of the checkpoint.
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
		t.Errorf("the saved ends have %d requests, want 2; error %v", e.requests, err)
	}
}

// A member starts from a checkpoint that has fewer requests than the store. The saved ends still count
// all requests in front of them. If they counted fewer, a checkpoint could have more requests than the
// ends, and the store would not be cut back.
func TestEndsCountTheRequestsOfEarlierProcesses(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1", "a@1001=2", "a@1002=3")
	w.sync()
	w.startInGroup("first", 1)
	w.writeRaw(&plain, "a@1001=2")
	w.sync()
	if e, _, err := readEnds(w.storeRaw()); e.requests != 3 || err != nil {
		t.Errorf("the saved ends have %d requests, want 3; error %v", e.requests, err)
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

// syncedAppender saves the ends of a store as soon as no commit holds the store's lock.
type syncedAppender struct {
	storage.Appender
	store *store
	saved chan error
}

func (a syncedAppender) Commit() error {
	go func() { a.saved <- a.store.saveEnds() }()
	return a.Appender.Commit()
}

// A sync right after a commit saves ends behind the commit's requests, and must count these requests,
// because they are not written again.
func TestEndsHaveTheRequestsInFrontOfThem(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1")
	st := w.rawStore()
	for requests := range uint64(50) {
		a := syncedAppender{w.rawDatabase().Appender(t.Context()), st, make(chan error, 1)}
		if err := st.commit(a, 0, requests); err != nil {
			t.Fatal(err)
		}
		if err := <-a.saved; err != nil {
			t.Fatal(err)
		}
		if e, _, err := readEnds(st.dir); e.requests != max(requests, 1) || err != nil {
			t.Errorf("the saved ends have %d requests, want %d; error %v", e.requests, max(requests, 1), err)
		}
	}
}
