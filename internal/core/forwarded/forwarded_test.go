package forwarded

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/freshet-io/freshet/internal/core/entry"
)

func of(backend string, index uint64) entry.List { return entry.AppendForwarded(nil, backend, index) }

// An index rises, and an entry of an earlier leader does not lower it.
func TestAnIndexNeverFalls(t *testing.T) {
	var x Indexes
	for _, c := range []struct{ says, want uint64 }{{7, 7}, {9, 9}, {8, 9}} {
		if x.Raise(of("a", c.says)); x.Of("a") != c.want || x.Of("b") != 0 {
			t.Errorf("after %d: the backend a is at %d, b at %d", c.says, x.Of("a"), x.Of("b"))
		}
	}
}

// Names of backends come and go with configurations. The state keeps the ones that get samples.
func TestBackendsAreBounded(t *testing.T) {
	var x Indexes
	x.Raise(of("old", 1))
	for i := range 3 * Max {
		x.Raise(of(fmt.Sprintf("b%03d", i), uint64(10+i)))
		x.Raise(of("in-use", uint64(10+i)))
	}
	if n := len(x.of); n != Max || x.Of("old") != 0 || x.Of("in-use") != 10+3*Max-1 {
		t.Errorf("%d backends; backend old is at %d, in-use is at %d", n, x.Of("old"), x.Of("in-use"))
	}
	var same Indexes
	if same.Raise(x.List()); !bytes.Equal(same.List(), x.List()) || !x.List().Forwarded() {
		t.Errorf("%x is restored as %x", x.List(), same.List())
	}
}
