package tsdb

import (
	"fmt"
	"strings"
	"testing"
)

// A snapshot writes out-of-order samples into blocks, including samples of a time that is still in the
// head. tsdb merges such a block with older ones when they cover 6 h. At the next start it would treat
// the merged block as made from the head, and drop up to 2 h of the log. A nightly backup a few
// minutes after midnight UTC is enough to cause this.
func TestASnapshotLosesNothingAtTheNextStart(t *testing.T) {
	w := newWorld(t)
	const hour, step = 3600, 300
	var want []string
	for second := 0; second <= 6*hour+2*step; second += step {
		w.writeRaw(&plain, fmt.Sprintf("a@%d=%d late@%d=1", second, second, second))
		w.writeRaw(&plain, fmt.Sprintf("late@%d=2", second-step/2)) // out of order
		want = append(want, fmt.Sprintf("%d=%d", second, second))
		if second%hour == 0 {
			w.compactRaw()
		}
	}
	w.snapshot()
	w.compactRaw()
	w.close()
	w.open()
	if got := w.raw()["a"]; got != strings.Join(want, " ") {
		t.Errorf("after a snapshot and a start: %s\nwant %s", got, strings.Join(want, " "))
	}
}

// compactRaw runs the compaction that tsdb runs by itself each minute.
func (w *world) compactRaw() {
	w.t.Helper()
	if err := w.rawDatabase().Compact(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// rawDatabase returns the open raw database of the tenant default.
func (w *world) rawDatabase() *database {
	w.t.Helper()
	st, err := w.stores.forWrite("default", Raw)
	if err != nil {
		w.t.Fatal(err)
	}
	db, err := st.write(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer st.release()
	return db
}
