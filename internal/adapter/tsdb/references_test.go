package tsdb

import (
	"fmt"
	"testing"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// References of series that ended are forgotten, and nothing else: what was written to a
// series before is known when it comes again.
func TestReferencesOfSeriesThatEndedAreForgotten(t *testing.T) {
	w := newWorld(t)
	for round := range 4 {
		text := fmt.Sprintf("lives@%d=1", 4000*round)
		for i := range fewReferences {
			text += fmt.Sprintf(" s%d_%d@%d=1", round, i, 4000*round)
		}
		w.write(text)
	}
	refs := w.stores.tenants[tenant.Default]["10s"].db.references
	if n := len(refs.of); n != 2*fewReferences+1 || refs.of[w.series["lives"]] == nil || refs.of[w.series["s3_7"]] == nil || refs.of[w.series["s0_7"]] != nil {
		t.Errorf("%d references of %d series, half of which ended over an hour before the last sweep", n, 4*fewReferences+1)
	}
	for _, step := range []struct{ write, want string }{
		{"s0_7@0=1 s0_7@10=2", "repeated 1, too_old 1"},
		{"s0_7@0=2", "conflicts 1"},
		{"s0_7@12010=3 lives@12010=1", "stored 2"},
	} {
		if got := w.write(step.write); got != step.want {
			t.Errorf("write %s: %s; want %s", step.write, got, step.want)
		}
	}
}
