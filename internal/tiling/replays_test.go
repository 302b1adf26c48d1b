package tiling

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/freshet-io/freshet/internal/core/write"
)

// A waiting query ends when the requests are stored, or when the store first fails. Later queries get
// the last failure at once, until the requests are stored.
func TestReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOpen(nil)
		wait := func(tenant string) chan error {
			done := make(chan error, 1)
			go func() { done <- o.Replayed(t.Context(), tenant) }()
			synctest.Wait()
			return done
		}
		ended := func(done chan error) bool { return len(done) > 0 }
		o.BeginReplay("a")
		o.BeginReplay("b")
		a, b, other := wait("a"), wait("b"), wait("c")
		if ended(a) || ended(b) || !ended(other) || <-other != nil {
			t.Error("a query did not wait for its own tenant's requests, or waited for those of another tenant")
		}
		o.EndReplay("a")
		full, broken := errors.New("full"), errors.New("broken")
		o.FailReplay("b", full)
		synctest.Wait()
		if !ended(a) || <-a != nil || !ended(b) || !errors.Is(<-b, full) {
			t.Error("the waiting query of tenant a did not end without an error, or the one of tenant b did not end " +
				"with the failure")
		}
		o.FailReplay("b", broken)
		o.FailReplay("c", broken)
		if again := wait("b"); !ended(again) || !errors.Is(<-again, broken) || !slices.Equal(o.Replaying(), []string{"b"}) {
			t.Error("a later query did not get the last failure")
		}
		o.EndReplay("b")
		o.EndReplay("b")
		if again := wait("b"); !ended(again) || <-again != nil || len(o.Replaying()) > 0 {
			t.Error("a query still waits although the requests are stored")
		}
		o.BeginReplay("a")
		gone, leave := context.WithCancelCause(t.Context())
		leave(full)
		if err := o.Replayed(gone, "a"); !errors.Is(err, full) {
			t.Error(err)
		}
	})
}

// A query waits for the store of senders' samples and for that of results. The failure of one ends it at once, whatever
// the other one does.
func TestReplaysOfBothStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("full")
		results := write.QueueOf("a", true)
		for _, queues := range [][2]string{{"a", results}, {results, "a"}} {
			o := NewOpen(nil)
			o.BeginReplay(queues[0])
			o.BeginReplay(queues[1])
			done := make(chan error, 1)
			go func() { done <- o.Replayed(t.Context(), "a") }()
			o.FailReplay(queues[0], full)
			synctest.Wait()
			if len(done) != 1 || !errors.Is(<-done, full) {
				t.Errorf("the failure of %s did not end the query, which waits for %s, too", queues[0], queues[1])
			}
			o.EndReplay(queues[0])
			o.EndReplay(queues[1])
			if err := o.Replayed(t.Context(), "a"); err != nil {
				t.Errorf("once both stores have their requests: %v", err)
			}
		}
	})
}
