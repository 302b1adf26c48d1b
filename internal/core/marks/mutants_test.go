//go:build sim

package marks

import (
	"testing"

	"github.com/freshet-io/freshet/internal/core/mutant"
)

// A leader folds wrongly, and two nodes agree with each other. The leader is outvoted, unless it trusts its own digest.
func TestMistakesAreFound(t *testing.T) {
	outvoted := func() bool {
		var all Compared
		for node, hash := range map[string]uint64{"leader": 9, "b": 1, "c": 1} {
			all.Add(node, marksOf(64, hash))
		}
		return all.Verdict("leader").Outvoted > 0
	}
	if !outvoted() {
		t.Error("the leader is not outvoted")
	}
	mutant.OwnDigest = true
	defer func() { mutant.OwnDigest = false }()
	if outvoted() {
		t.Error("the leader trusts its own digest, and is outvoted all the same: the mistake does nothing")
	}
}
