package world

import (
	"fmt"
	"strings"
	"testing"
)

// Count counts events of one sort, such as elections: runs without an election show nothing about
// elections.
type Count struct {
	What string
	N    *int
}

// Counted returns a count.
func Counted(what string, n *int) Count { return Count{what, n} }

// Sum adds the counts of one run to those of all runs.
func Sum(all, one []Count) {
	for i := range all {
		*all[i].N += *one[i].N
	}
}

// Text lists counts.
func Text(all []Count) string {
	var list []string
	for _, c := range all {
		list = append(list, fmt.Sprintf("%s %d", c.What, *c.N))
	}
	return strings.Join(list, ", ")
}

// Enough fails a test if its runs had, in total, too few events of some sort.
func Enough(t testing.TB, all, least []Count) {
	t.Helper()
	t.Log(Text(all))
	for i, got := range all {
		if *got.N < *least[i].N {
			t.Errorf("%s: %d, want at least %d: fewer show nothing", got.What, *got.N, *least[i].N)
		}
	}
}
