package tsdb

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/write"
)

// Members of a group may be configured with different windows. A request has the window of the member
// that proposed it. tsdb used to refuse samples that were older than the window of the member that
// stored them, so members stored different samples.
func TestTheWindowOfARequestDecides(t *testing.T) {
	for _, store := range []string{"open", "closed"} {
		t.Run(store, func(t *testing.T) {
			w := newWorld(t)
			w.writeRaw(&plain, "a@80000=1")
			late := func(at int) string {
				r := requestOf(t, true, &plain, parseRaw(t, fmt.Sprintf("a@%d=2", at)))
				r.Window = 20 * time.Hour
				if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
					t.Fatal(err)
				}
				return r.Outcome.Text()
			}
			if store == "closed" {
				w.now = w.now.Add(2 * time.Hour)
				if err := w.stores.closeIdle(); err != nil {
					t.Fatal(err)
				}
			}
			if refused := late(20_000); refused != "" {
				t.Errorf("a sample that is 16 h late was refused: %s", refused)
			}
			if refused := late(19_000); refused != "" {
				t.Errorf("a sample that is a little older than 16 h was refused: %s", refused)
			}
			if refused := late(1_000); refused == "" {
				t.Error("a sample that is 22 h late was not refused")
			}
			if got, want := w.raw()["a"], "19000=2 20000=2 80000=1"; got != want {
				t.Errorf("stored: %s, want %s", got, want)
			}
		})
	}
}

// The first exemplar makes room for exemplars. The window of a request stays as wide as it was.
func TestTheFirstExemplarKeepsTheWindow(t *testing.T) {
	w := newWorld(t)
	for _, text := range []string{"a@80000=1", "a@20000=2"} {
		r := requestOf(t, true, &plain, parseRaw(t, text))
		r.Window = 20 * time.Hour
		if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
			t.Fatal(err)
		}
		if refused := r.Outcome.Text(); refused != "" {
			t.Errorf("%s was refused: %s", text, refused)
		}
		w.pushExemplar("b", "ab", base+80_001_000)
	}
}

// The zero at which counting began is stored if its time is at most the window before its sample, and not
// too old for the tenant. Samples, too, are taken up to the millisecond of the limit.
func TestTheOldestZero(t *testing.T) {
	const minute, newest = 60_000, 1_795_228_020_000
	for _, c := range []struct {
		why              string
		window, start, t int64
		zero             bool
	}{
		{"unknown", 30 * minute, 0, newest, false},
		{"at the sample", 30 * minute, newest, newest, false},
		{"just before the sample", 30 * minute, newest - 1, newest, true},
		{"as long ago as the window", 30 * minute, newest - 30*minute, newest, true},
		{"longer ago than the window", 30 * minute, newest - 30*minute - 1, newest, false},
		{"without a window", 0, newest - 1, newest, false},
		{"at the tenant's limit", 2 * 60 * minute, newest - 2*60*minute, newest - 60*minute, true},
		{"beyond the tenant's limit", 2 * 60 * minute, newest - 2*60*minute - 1, newest - 60*minute, false},
		{"at the limit of a small window, which is an hour", 50 * minute, newest - 60*minute, newest - 20*minute, true},
		{"beyond this limit", 50 * minute, newest - 60*minute - 1, newest - 20*minute, false},
	} {
		b := rawBounds{newest: newest, window: c.window}
		if got := b.startsAt(c.start, c.t); got != c.zero {
			t.Errorf("%s: a zero %v, want %v", c.why, got, c.zero)
		}
	}
}
