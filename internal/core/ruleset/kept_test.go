package ruleset

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/entry"
)

// setOf returns an entry that sets a group of one rule, with limits that nothing reaches; without a text it deletes.
func setOf(tenant, namespace, group, text string) *entry.RuleSet {
	const many = 1 << 30
	e := &entry.RuleSet{Tenant: tenant, Namespace: namespace, Group: group, MaxTenants: many, MaxGroups: many,
		MaxRules: many, MaxBytes: many, Text: []byte(text)}
	if text != "" {
		e.Rules = 1
	}
	return e
}

func fold(t *testing.T, k *Kept, all ...*entry.RuleSet) {
	t.Helper()
	for _, e := range all {
		if err := k.Fold(e); err != nil {
			t.Fatalf("%s/%s of tenant %s: %v", e.Namespace, e.Group, e.Tenant, err)
		}
	}
}

// has compares the groups of a tenant, as NAMESPACE/GROUP=TEXT.
func (k *Kept) has(t *testing.T, tenant string, want ...string) {
	t.Helper()
	var got []string
	for _, x := range k.Of(tenant) {
		got = append(got, fmt.Sprintf("%s/%s=%s", x.Namespace, x.Name, x.YAML))
	}
	if !slices.Equal(got, want) {
		t.Errorf("tenant %s has %q, want %q", tenant, got, want)
	}
}

// All members that apply the same entries have the same groups, in the order in which they came, also after a restart.
func TestTheLastTextOfAGroupIsKept(t *testing.T) {
	k := NewKept()
	fold(t, k, setOf("a", "n", "two", "old"), setOf("a", "n", "one", "1"), setOf("a", "m", "two", "2"),
		setOf("a", "n", "two", "new"), setOf("a", "gone", "x", "x"), setOf("a", "gone", "y", "y"),
		setOf("b", "n", "x", "x"), setOf("a", "gone", "", ""), setOf("b", "n", "x", ""))
	restored := NewKept()
	if err := restored.Parse(k.Append(nil)); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*Kept{k, restored} {
		x.has(t, "a", "n/two=new", "n/one=1", "m/two=2")
		x.has(t, "b")
		if tenants := x.Tenants(); !slices.Equal(tenants, []string{"a", "b"}) {
			t.Errorf("tenants %q", tenants)
		}
	}
	if !bytes.Equal(restored.Append(nil), k.Append(nil)) || restored.Hash() != k.Hash() || restored.bytes != k.bytes {
		t.Error("the restored groups are others")
	}
	for want, e := range map[error]*entry.RuleSet{
		ErrNoNamespace: setOf("a", "gone", "", ""), ErrNoGroup: setOf("a", "m", "one", ""),
	} {
		if err := k.Fold(e); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
}

// Nodes that differ in any part of a group have different hashes.
func TestTheHashCoversEverything(t *testing.T) {
	seen := map[uint64]bool{NewKept().Hash(): true}
	for _, e := range []*entry.RuleSet{
		setOf("a", "n", "g", "x"), setOf("b", "n", "g", "x"), setOf("a", "m", "g", "x"), setOf("a", "n", "h", "x"),
		setOf("a", "n", "g", "y"), setOf("a", "ng", "x", "x"),
	} {
		k := NewKept()
		fold(t, k, e)
		if seen[k.Hash()] {
			t.Errorf("%s/%s=%s of tenant %s has a hash that another group has", e.Namespace, e.Group, e.Text, e.Tenant)
		}
		seen[k.Hash()] = true
	}
}

// The leader learns which managers need other rules.
func TestChangesAreTold(t *testing.T) {
	k := NewKept()
	fold(t, k, setOf("a", "n", "g", "x"), setOf("b", "n", "g", "x"))
	tenants, now := k.Changed(0)
	if !slices.Equal(tenants, []string{"a", "b"}) {
		t.Errorf("%q changed, want both", tenants)
	}
	if tenants, _ := k.Changed(now); len(tenants) > 0 {
		t.Errorf("%q changed since", tenants)
	}
	fold(t, k, setOf("b", "n", "", ""))
	if tenants, _ := k.Changed(now); !slices.Equal(tenants, []string{"b"}) {
		t.Errorf("%q changed since, want b", tenants)
	}
}

// A group that breaks a limit changes nothing, and the answer names the limit.
func TestKeptIsBounded(t *testing.T) {
	k := NewKept()
	fold(t, k, setOf("a", "n", "g", "x"), setOf("a", "n", "h", "x"))
	before := k.Append(nil)
	for want, change := range map[string]func(e *entry.RuleSet){
		"rules.api.max_groups":  func(e *entry.RuleSet) { e.MaxGroups = 2 },
		"rules.api.max_rules":   func(e *entry.RuleSet) { e.MaxRules = 2 },
		"rules.api.max_bytes":   func(e *entry.RuleSet) { e.MaxBytes = 8 },
		"rules.api.max_tenants": func(e *entry.RuleSet) { e.Tenant, e.MaxTenants = "b", 1 },
		"a cluster keeps at most": func(e *entry.RuleSet) {
			e.Text = []byte(strings.Repeat("x", MaxKept))
		},
	} {
		e := setOf("a", "n", "new", "x")
		change(e)
		if err := k.Fold(e); !errors.Is(err, ErrMistakes) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
	}
	if !bytes.Equal(k.Append(nil), before) {
		t.Error("a refused group has changed something")
	}
	replaced := setOf("a", "n", "g", "y")
	replaced.MaxGroups, replaced.MaxRules, replaced.MaxTenants = 2, 2, 1
	fold(t, k, replaced)
}

// A damaged disk may return any bytes.
func FuzzKept(f *testing.F) {
	k := NewKept()
	f.Add(k.Append(nil))
	for _, e := range []*entry.RuleSet{setOf("b", "n", "g", "x"), setOf("a", "n", "g", "x"), setOf("b", "n", "", "")} {
		if err := k.Fold(e); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(k.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		k := NewKept()
		if k.Parse(b) == nil && !bytes.Equal(k.Append(nil), b) {
			t.Errorf("% x is encoded as % x", b, k.Append(nil))
		}
	})
}
