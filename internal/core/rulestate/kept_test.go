package rulestate

import (
	"bytes"
	"testing"

	"github.com/freshet-io/freshet/internal/core/entry"
)

// rules returns an entry with one state.
func rules(tenant string, key byte, state []byte) *entry.Rules {
	return &entry.Rules{Tenant: tenant,
		Groups: entry.AppendRuleGroup(nil, &entry.RuleGroup{Key: [32]byte{key}, State: state})}
}

func TestTheLastStateOfAGroupIsKept(t *testing.T) {
	var k Kept
	k.Fold(rules("b", 2, []byte("old")))
	k.Fold(rules("b", 2, []byte("new")))
	k.Fold(rules("a", 1, []byte("one")))
	k.Fold(rules("a", 3, []byte("gone")))
	k.Fold(rules("a", 3, nil))
	k.Fold(rules("c", 3, nil))
	if a, b := k.Of("a"), k.Of("b"); len(a) != 1 || string(a[0]) != "one" || len(b) != 1 || string(b[0]) != "new" {
		t.Errorf("a has %q, b has %q", a, b)
	}
	var same Kept
	want := k.Append(nil)
	if err := same.Parse(want); err != nil || !bytes.Equal(same.Append(nil), want) || same.bytes != k.bytes {
		t.Errorf("restored as %x of %d bytes, error %v; want %x of %d bytes", same.Append(nil), same.bytes, err, want,
			k.bytes)
	}
}

// Every member has these bytes in memory, and in each checkpoint.
func TestStatesAreBounded(t *testing.T) {
	var k Kept
	large := make([]byte, 15<<20)
	for key := range byte(10) {
		k.Fold(rules("a", key, large))
	}
	if n := len(k.Of("a")); n != 4 || k.bytes > MaxKept {
		t.Errorf("%d states of 15 MiB in %d bytes, want 4", n, k.bytes)
	}
	k.Fold(rules("a", 0, []byte("small")))
	k.Fold(rules("a", 9, large))
	if n := len(k.Of("a")); n != 5 {
		t.Errorf("%d states, want another one in the place that became free", n)
	}
}

// A damaged disk may return any bytes.
func FuzzKept(f *testing.F) {
	var k Kept
	f.Add(k.Append(nil))
	k.Fold(rules("b", 2, []byte("old")))
	k.Fold(rules("a", 2, []byte("new")))
	f.Add(k.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var k Kept
		if k.Parse(b) == nil && !bytes.Equal(k.Append(nil), b) {
			t.Errorf("% x is encoded as % x", b, k.Append(nil))
		}
	})
}
