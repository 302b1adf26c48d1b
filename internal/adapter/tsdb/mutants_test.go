//go:build sim

package tsdb

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/partial"
)

// A byte of a chunk flips, and the scrub finds it. No series is answered from the store, unless the damage is ignored:
// then those that the byte does not belong to are.
func TestMistakesAreFound(t *testing.T) {
	w := newWorld(t)
	w.startWithOthers("first")
	w.blocks()
	w.flip(rand.New(rand.NewPCG(1, 2)), w.dir, "*/chunks/*")
	w.stores.scrubAll(t.Context(), time.Second)
	if damaged := w.stores.Damaged(); len(damaged) != 1 {
		t.Fatalf("damaged are %v, want one store", damaged)
	}
	answered := func() (n int) {
		for _, name := range []string{"a", "b"} {
			_, err := w.selected(labels.MustNewMatcher(labels.MatchEqual, "__name__", name))
			switch {
			case err == nil:
				n++
			case !errors.Is(err, partial.ErrElsewhere):
				t.Errorf("series %s: %v", name, err)
			}
		}
		return n
	}
	if n := answered(); n > 0 {
		t.Errorf("a damaged store answers %d of 2 queries, want none", n)
	}
	mutant.DamageRead = true
	defer func() { mutant.DamageRead = false }()
	if answered() == 0 {
		t.Error("the damage is ignored, and yet the store answers nothing: the mistake does nothing")
	}
}
