package tsdb

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
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

// The head of an idle store is saved before the close locks the store. Reads and writes of the store, and all that ask
// each store, once waited for seconds.
func TestAnIdleStoreAnswersWhileItsHeadIsSaved(t *testing.T) {
	w := newWorld(t)
	w.savesHeads()
	w.stores.heads.least = 1 // so that a head is saved only if something came into the log
	w.writeRaw(&plain, "a@10=1")
	st := w.stores.tenants["default"][Raw]
	answers := 0
	st.logger = slog.New(whenSaved{slog.DiscardHandler, func() {
		if !st.mu.TryLock() {
			t.Error("the store is locked")
			return
		}
		st.mu.Unlock()
		answers++
		w.writeRaw(&plain, "a@20=1")
	}})
	w.passes(2*w.cfg.Idle, 1, "it was written to while its head was saved")
	w.passes(2*w.cfg.Idle, 0, "nobody used it")
	if answers != 1 {
		t.Errorf("its head was saved %d times, want 1: little came into its log afterwards", answers)
	}
	st.logger = w.stores.logger
	if got := w.raw()["a"]; got != "10=1 20=1" {
		t.Errorf("stored: %s", got)
	}
}

// whenSaved calls a function when a head was saved.
type whenSaved struct {
	slog.Handler
	saved func()
}

func (whenSaved) Enabled(context.Context, slog.Level) bool { return true }

func (h whenSaved) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "the head of a store is saved" {
		h.saved()
	}
	return nil
}

// A store that is locked answers late how many series it has in memory. Other stores do not wait for that.
func TestALockedStoreHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@10=1")
	st := w.stores.tenants["default"][Raw]
	st.mu.Lock()
	answer := make(chan map[string]int)
	go func() { answer <- w.stores.InMemory(Raw) }()
	for range 1000 { // more than InMemory needs until it waits
		if _, err := w.stores.forWrite("other", Raw); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	st.mu.Unlock()
	if got := (<-answer)["default"]; got != 1 {
		t.Errorf("%d series are in memory, want 1", got)
	}
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
