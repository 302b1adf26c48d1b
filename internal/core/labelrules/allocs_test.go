//go:build !race

package labelrules

import "testing"

// A new series costs one allocation, for its labels. The test does not run under the race detector,
// which makes sync.Pool drop items at random.
func TestResolveAllocates(t *testing.T) {
	r := requests(t, []string{"__name__", "up", "job", "a"})[0]
	if n := testing.AllocsPerRun(100, func() { (&Rules{}).Resolve(r, &r.Series[0]) }); n != 1 {
		t.Errorf("%v allocations", n)
	}
}
