package promapi

import (
	"errors"
	"testing"

	"github.com/prometheus/prometheus/promql/parser/posrange"
	"github.com/prometheus/prometheus/util/annotations"
)

// A name without _total is no mistake here, because applications choose names. All other hints
// still reach the user.
func TestOnlyHintsAboutSuffixesAreDropped(t *testing.T) {
	notes := annotations.New()
	notes.Add(annotations.NewPossibleNonCounterInfo("page_views", posrange.PositionRange{}))
	notes.Add(annotations.NewInvalidQuantileWarning(2, posrange.PositionRange{}))
	dropSuffixHints(*notes)
	if left := notes.AsErrors(); len(left) != 1 || !errors.Is(left[0], annotations.InvalidQuantileWarning) {
		t.Errorf("left: %v", left)
	}
}
