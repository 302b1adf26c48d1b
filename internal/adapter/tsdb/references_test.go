package tsdb

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// Only the references of ended series are forgotten. If such a series returns, the store still finds
// its earlier samples.
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
	if n := len(refs.of); n != 2*fewReferences+1 || refs.of[w.series["lives"]] == nil ||
		refs.of[w.series["s3_7"]] == nil || refs.of[w.series["s0_7"]] != nil {
		t.Errorf("the store has %d references, want %d: half of the series ended over an hour before the last sweep",
			n, 2*fewReferences+1)
	}
	for _, step := range []struct{ write, want string }{
		{"s0_7@0=1 s0_7@10=2", "stored 1, repeated 1"},
		{"s0_7@0=2", "conflicts 1"},
		{"s0_7@12010=3 lives@12010=1", "stored 2"},
	} {
		if got := w.write(step.write); got != step.want {
			t.Errorf("write %s: %s; want %s", step.write, got, step.want)
		}
	}
}

// References expect the series of a write in the order of the last write. If a write has another order,
// find still returns the same references.
func TestReferencesFollowTheOrderOfWrites(t *testing.T) {
	w := newWorld(t)
	for _, step := range []struct{ write, next string }{
		{"a@0=1 b@0=1 c@0=1", ""},
		{"a@10=2 b@10=2 c@10=2", "b"},
		{"c@20=3 a@20=3 b@20=3", "b"},
		{"b@30=4 a@30=4 c@30=4", "c"},
	} {
		if got := w.write(step.write); got != "stored 3" {
			t.Fatalf("write %s: %s", step.write, got)
		}
		refs := w.stores.tenants[tenant.Default]["10s"].db.references
		var want *reference
		if step.next != "" {
			want = refs.of[w.series[step.next]]
		}
		if refs.of[w.series["a"]].next != want {
			t.Errorf("after the write %s, the reference of a does not expect %q next", step.write, step.next)
		}
	}
	if got, want := w.stored(tenant.Default, "10s"), "a@0=1 a@10=2 a@20=3 a@30=4 b@0=1 b@10=2 b@20=3 b@30=4 c@0=1 "+
		"c@10=2 c@20=3 c@30=4"; strings.Join(strings.Fields(got), " ") != want {
		t.Errorf("stored %s; want %s", got, want)
	}
}
