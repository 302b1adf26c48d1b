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
