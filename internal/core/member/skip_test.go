package member

import (
	"errors"
	"testing"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/skip"
)

// An entry that cannot be applied stops the member, and the error names it. Once an operator has said so, the member
// leaves out this entry and no other: not even another one at the same index.
func TestAnEntryIsLeftOut(t *testing.T) {
	of := func(group uint64) []byte {
		e := entry.Entry{Kind: entry.KindNode, Group: group, Shape: shape, Node: entry.Node{Name: "a", Member: 1}}
		return e.Append(nil)
	}
	foreign, other := of(99), of(98)
	for _, c := range []struct {
		name  string
		skips skip.List
		stops bool
	}{
		{"no entry is to be left out", nil, true},
		{"this entry", skip.List{skip.Of(1, foreign)}, false},
		{"another index", skip.List{skip.Of(2, foreign)}, true},
		{"another entry at this index", skip.List{skip.Of(1, other)}, true},
	} {
		m := New(1, &config)
		m.Skip(c.skips)
		done, err := m.Apply(1, foreign)
		var at *EntryError
		if stops := errors.As(err, &at); stops != c.stops || stops && (at.Index != 1 || !errors.Is(err, ErrEntry)) {
			t.Errorf("%s: the error is %v", c.name, err)
		}
		if (done.Skipped != nil) == c.stops || m.Index() == 1 == c.stops {
			t.Errorf("%s: left out: %v; the last entry is %d", c.name, done.Skipped, m.Index())
		}
	}
}
