package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/ruleset"
)

// A group that does not fit into an entry of the log is refused before the log has it, with the way out.
func TestAGroupThatNoEntryCanHave(t *testing.T) {
	g := ruleset.Group{RuleGroup: rulefmt.RuleGroup{Name: "g", Rules: []rulefmt.Rule{
		{Record: "r", Expr: "x", Labels: map[string]string{"l": strings.Repeat("x", entry.MaxRuleSet)}}}}}
	err := clusterSets{}.Put(t.Context(), "acme", "n", g, ruleset.DefaultLimits())
	if !errors.Is(err, ruleset.ErrMistakes) || !strings.Contains(err.Error(), "split it") {
		t.Errorf("error %v, want one that says to split the group", err)
	}
}

// Names that no group can have are not there, and need no entry.
func TestNamesThatNoGroupCanHave(t *testing.T) {
	long := strings.Repeat("n", 2000)
	c := clusterSets{}
	if err := c.Delete(t.Context(), "acme", long); !errors.Is(err, ruleset.ErrNoNamespace) {
		t.Errorf("a long namespace: %v", err)
	}
	for _, name := range []string{"", long, "a\x00"} {
		if err := c.DeleteGroup(t.Context(), "acme", "n", name); !errors.Is(err, ruleset.ErrNoGroup) {
			t.Errorf("group %.20q: %v", name, err)
		}
	}
}
