package tsdb

import (
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/changes"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// A query that keeps results asks up to which time the samples are still the same: until the oldest one that was
// written since, in whatever way; and none if the store was opened.
func TestChanges(t *testing.T) {
	w := newWorld(t)
	if w.stores.Changes("default") != nil {
		t.Error("a tenant without stores has changes")
	}
	w.writeRaw(&plain, "a@36000=1")
	if _, err := w.stores.WriteTiles(t.Context(), "default", tile.Width1m, nil); err != nil { // opens the store
		t.Fatal(err)
	}
	log := w.stores.Changes("default")
	for _, c := range []struct {
		why  string
		do   func()
		want int64 // seconds; 0 for none
	}{
		{"nothing was written", func() {}, 0},
		{"a sample in time", func() { w.writeRaw(&plain, "a@36010=2") }, 36010},
		{"a late one", func() { w.writeRaw(&plain, "a@36020=3 a@35000=4") }, 35000},
		{"a repeat", func() { w.writeRaw(&plain, "a@35000=4") }, 0},
		{"a late one of a series that is new", func() { w.writeRaw(&plain, "a@36030=3 b@35100=4") }, 35100},
		{"a tile", func() {
			s := tile.Sample{Series: &tile.Series{Labels: labels.FromStrings("__name__", "c")}, T: base + 36_000_000, V: 1}
			if _, err := w.stores.WriteTiles(t.Context(), "default", tile.Width1m, []tile.Sample{s}); err != nil {
				t.Fatal(err)
			}
		}, 36000},
	} {
		want := int64(math.MaxInt64)
		if c.want != 0 {
			want = base + 1000*c.want
		}
		mark := log.Mark()
		c.do()
		if got := log.Since(mark); got != want {
			t.Errorf("%s: the oldest change is at %d, want %d", c.why, got, want)
		}
	}
	mark := log.Mark()
	if err := w.rawStore().closeIdle(-1); err != nil {
		t.Fatal(err)
	}
	w.raw()
	if got := log.Since(mark); got != changes.All {
		t.Errorf("the store was opened again, and the oldest change is at %d", got)
	}
}

// Blocks that are too old vanish from the disk, and queries must notice it.
func TestFiles(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@0=1", "a@36000=1")
	before := w.stores.Files("default")
	w.writeRaw(&plain, "a@36001=1")
	if w.stores.Files("default") != before {
		t.Error("a write has changed the files")
	}
	if err := w.rawDatabase().Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.stores.Files("default") == before {
		t.Error("a compaction has not changed the files")
	}
}
