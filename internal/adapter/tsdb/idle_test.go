package tsdb

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// passes lets time pass, tends the stores, and checks how many databases are open.
func (w *world) passes(after time.Duration, want float64, what string) {
	w.t.Helper()
	w.now = w.now.Add(after)
	if err := w.stores.Tend(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if open := testutil.ToFloat64(w.stores.metrics.open); open != want {
		w.t.Fatalf("%v databases are open, want %v: %s", open, want, what)
	}
}

// An unused store is closed. The next write or query opens it again, with all its samples and
// an empty cache, because references begin anew.
func TestIdleStoresAreClosed(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@10=1 b@10=1")
	w.passes(smallIdle-time.Second, 1, "the store was used a moment ago")
	q, err := w.stores.Querier("default", Raw, 0, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	w.passes(2*w.cfg.Idle, 1, "a reader uses the store")
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	w.passes(smallIdle+time.Second, 0, "nobody uses the store")
	w.passes(smallIdle, 0, "the store is closed already")
	w.writeRaw(&plain, "b@20=2 a@20=2 a@10=1")
	if got := w.raw(); got["a"] != "10=1 20=2" || got["b"] != "10=1 20=2" {
		t.Errorf("%v", got)
	}
	w.passes(0, 1, "the write has opened the store")
}

// A small store that is used every six minutes once opened each time, and each opening left two files.
func TestAStoreThatCameBackStaysOpen(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@10=1")
	w.passes(smallIdle+time.Second, 0, "the store is small")
	w.writeRaw(&plain, "a@20=1")
	w.passes(w.cfg.Idle, 1, "the store came back within store.idle")
	w.passes(time.Second, 0, "store.idle is over")
	w.now = w.now.Add(2 * w.cfg.Idle)
	w.writeRaw(&plain, "a@30=1")
	w.passes(smallIdle+time.Second, 0, "the store came back late, so it is like any small store")
}

// The log of a large store takes long to read, so the store stays open for store.idle. A smaller store.idle holds for
// small stores, too.
func TestALargeStoreIsClosedLater(t *testing.T) {
	w := newWorld(t)
	var text strings.Builder
	for i := range 40 {
		name := make([]byte, 64<<10)
		for j := range name {
			name[j] = byte('a' + rand.IntN(26))
		}
		fmt.Fprintf(&text, "%s@%d=1 ", name, 10+i)
	}
	w.writeRaw(&plain, text.String())
	w.passes(w.cfg.Idle, 1, "store.idle is not over")
	w.passes(time.Second, 0, "store.idle is over")

	w = newWorld(t)
	w.stores.cfg.Idle = time.Minute
	w.writeRaw(&plain, "a@10=1")
	w.passes(time.Minute+time.Second, 0, "store.idle is a minute")
}
