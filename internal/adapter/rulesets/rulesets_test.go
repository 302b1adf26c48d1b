package rulesets

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/core/ruleset"
)

var (
	promQL = parser.NewParser(parser.Options{})
	many   = ruleset.DefaultLimits()
)

// open opens the sets in a directory, and returns what is logged.
func open(t *testing.T, dir string) (*Sets, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s, err := Open(dir, promQL, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return s, &log
}

// group returns a valid group with one rule.
func group(t *testing.T, name, expr string) ruleset.Group {
	t.Helper()
	g, err := ruleset.Parse(fmt.Appendf(nil, "{name: %q, rules: [{record: r, expr: %q}]}", name, expr), "acme", promQL)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (s *Sets) put(t *testing.T, namespace string, g ruleset.Group) {
	t.Helper()
	if err := s.Put("acme", namespace, g, many); err != nil {
		t.Fatal(err)
	}
}

// has compares the groups of a tenant, as NAMESPACE/GROUP=EXPRESSION.
func (s *Sets) has(t *testing.T, tenant string, want ...string) {
	t.Helper()
	var got []string
	for namespace, groups := range s.List(tenant, "") {
		for _, g := range groups {
			got = append(got, namespace+"/"+g.Name+"="+g.Rules[0].Expr)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("tenant %s has the groups %q, want %q", tenant, got, want)
	}
}

// A change that was acknowledged is there after a restart, whatever the names are.
func TestRulesOutliveARestart(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir)
	s.has(t, "acme")
	hostile := "../../etc/passwd"
	s.put(t, "a/b", group(t, "one", "x"))
	s.put(t, "a/b", group(t, "two", "y"))
	s.put(t, "a/b", group(t, "one", "x2"))
	s.put(t, hostile, group(t, "日本; {}\"'", "z"))
	s.put(t, "..", group(t, "g", "dots"))
	s.put(t, "gone", group(t, "g", "z"))
	s.put(t, "half", group(t, "g", "z"))
	s.put(t, "half", group(t, "h", "z"))
	if err := errors.Join(s.Delete("acme", "gone"), s.DeleteGroup("acme", "half", "g")); err != nil {
		t.Fatal(err)
	}
	want := []string{hostile + "/日本; {}\"'=z", "../g=dots", "a/b/one=x2", "a/b/two=y", "half/h=z"}
	s.has(t, "acme", want...)
	s, log := open(t, dir)
	s.has(t, "acme", want...)
	s.has(t, "other")
	if log.Len() > 0 || !slices.Equal(s.Tenants(), []string{"acme"}) {
		t.Errorf("tenants %q, log %s", s.Tenants(), log)
	}
	if err := Check(dir); err != nil {
		t.Error(err)
	}
	below, err := filepath.Glob(filepath.Join(dir, "acme", "*.yaml"))
	if err != nil || len(below) != 4 {
		t.Errorf("%d files, error %v; want one for each of 4 namespaces", len(below), err)
	}
}

func TestWhatIsNotThere(t *testing.T) {
	s, _ := open(t, t.TempDir())
	check := func(when string) {
		t.Helper()
		for what, got := range map[string]error{
			ruleset.ErrNoNamespace.Error(): s.Delete("acme", "none"),
			ruleset.ErrNoGroup.Error():     s.DeleteGroup("acme", "n", "none"),
		} {
			if got == nil || got.Error() != what {
				t.Errorf("%s: error %v, want %s", when, got, what)
			}
		}
		if _, err := s.Group("acme", "n", "none"); !errors.Is(err, ruleset.ErrNoGroup) {
			t.Errorf("%s: error %v, want %v", when, err, ruleset.ErrNoGroup)
		}
	}
	check("without rules")
	s.put(t, "n", group(t, "g", "x"))
	check("with rules")
	if err := s.DeleteGroup("acme", "n", "g"); err != nil {
		t.Fatal(err)
	}
	check("without rules again")
}

// A group that breaks a limit changes nothing, and the answer names the limit. A replaced group counts once.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir)
	limits := ruleset.Limits{MaxTenants: 1, MaxGroups: 2, MaxRules: 3, MaxBytes: 1000}
	put := func(tenant, text string) error {
		g, err := ruleset.Parse([]byte(text), tenant, promQL)
		if err != nil {
			t.Fatal(err)
		}
		return s.Put(tenant, "n", g, limits)
	}
	rule := "{record: r, expr: x}"
	one, two := "{name: one, rules: ["+rule+"]}", "{name: two, rules: ["+rule+", "+rule+"]}"
	if err := errors.Join(put("acme", one), put("acme", two), put("acme", two)); err != nil {
		t.Fatal(err)
	}
	for want, text := range map[string]string{
		"per-user rule groups limit (limit: 2 actual: 3) exceeded": "{name: three, rules: [" + rule + "]}",
		"rules.api.max_groups": "{name: three, rules: [" + rule + "]}",
		"rules.api.max_rules":  "{name: one, rules: [" + rule + ", " + rule + "]}",
		"rules.api.max_bytes":  "{name: one, rules: [{record: r, expr: " + strings.Repeat("x", 1000) + "}]}",
	} {
		var mistakes ruleset.Mistakes
		if err := put("acme", text); !errors.As(err, &mistakes) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if err := put("other", one); err == nil || !strings.Contains(err.Error(), "rules.api.max_tenants") {
		t.Errorf("a second tenant: error %v, want the limit", err)
	}
	s.has(t, "acme", "n/one=x", "n/two=x")
	s, _ = open(t, dir)
	s.has(t, "acme", "n/one=x", "n/two=x")
}

// A file that a disk has damaged is moved aside. The other rules go on.
func TestADamagedFileIsMovedAside(t *testing.T) {
	for why, text := range map[string]string{
		"no YAML":             "groups: [",
		"of another name":     "{namespace: other, groups: []}",
		"a group twice":       "{namespace: n, groups: [{name: g, rules: []}, {name: g, rules: []}]}",
		"an unknown key":      "{namespace: n, groups: [{name: g, rulez: []}]}",
		"nothing was written": "",
	} {
		dir := t.TempDir()
		s, _ := open(t, dir)
		s.put(t, "n", group(t, "g", "x"))
		s.put(t, "whole", group(t, "g", "x"))
		path := filepath.Join(dir, "acme", fileOf("n"))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Check(dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: Check returns %v, want an error with the path", why, err)
		}
		s, log := open(t, dir)
		s.has(t, "acme", "whole/g=x")
		kept, err := os.ReadFile(path + ".damaged")
		if err != nil || string(kept) != text || !strings.Contains(log.String(), "damaged") {
			t.Errorf("%s: the damaged file is %q, error %v, log %s", why, kept, err, log)
		}
	}
}

// A cluster takes over the files that can be read. A damaged one has the only copy of its groups.
func TestRemoveLeavesDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir)
	s.put(t, "n", group(t, "g", "x"))
	s.put(t, "whole", group(t, "g", "x"))
	path := filepath.Join(dir, "acme", fileOf("n"))
	if err := os.WriteFile(path, []byte("groups: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if want := []string{path + ".damaged"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("Remove leaves %q, error %v, want %q", left, err, want)
	}
	if err := Remove(filepath.Join(dir, "none")); err != nil {
		t.Errorf("Remove of a directory that does not exist: %v", err)
	}
}

// An upgrade may refuse a group that was valid. Its tenant still sees it, and the other groups go on.
func TestAGroupThatIsNoLongerValidIsKept(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir)
	s.put(t, "n", group(t, "good", "x"))
	bad := group(t, "bad", "x")
	bad.Rules[0].Expr = "sum("
	s.put(t, "n", bad)
	s, log := open(t, dir)
	s.has(t, "acme", "n/bad=sum(", "n/good=x")
	evaluated := func(wantInvalid int, want ...string) {
		t.Helper()
		set, invalid := s.Rules("acme")
		var names []string
		for _, g := range set["n"].Groups {
			names = append(names, g.Name)
		}
		if !slices.Equal(names, want) || invalid != wantInvalid {
			t.Errorf("the groups %q are evaluated and %d are left out; want %q and %d", names, invalid, want, wantInvalid)
		}
	}
	evaluated(1, "good")
	if !strings.Contains(log.String(), "group=bad") {
		t.Errorf("the log does not name the group: %s", log)
	}
	s.put(t, "n", group(t, "third", "z")) // another group of the file changes nothing
	evaluated(1, "good", "third")
	s.put(t, "n", group(t, "bad", "y"))
	evaluated(0, "good", "bad", "third")
}

func TestASnapshotHasAllRules(t *testing.T) {
	s, _ := open(t, t.TempDir())
	to := filepath.Join(t.TempDir(), "rules")
	if err := s.Snapshot(to); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("without rules there is a directory")
	}
	s.put(t, "a", group(t, "g", "x"))
	s.put(t, "b", group(t, "g", "y"))
	if err := s.Snapshot(to); err != nil {
		t.Fatal(err)
	}
	copied, _ := open(t, to)
	copied.has(t, "acme", "a/g=x", "b/g=y")
}

// A group without rules, which only an edited file has, is left out of a cluster: no checkpoint could have it.
func TestFoldLeavesOutGroupsWithoutRules(t *testing.T) {
	kept := ruleset.NewKept()
	empty := group(t, "empty", "1")
	empty.Rules = nil
	left, err := Fold(kept, "acme", "n", []ruleset.Group{empty, group(t, "full", "1")})
	if err != nil || !slices.Equal(left, []string{"empty"}) {
		t.Errorf("the groups %q are left out, error %v, want only the group empty", left, err)
	}
	restored := ruleset.NewKept()
	if err := restored.Parse(kept.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if all := restored.Of("acme"); len(all) != 1 || all[0].Name != "full" {
		t.Errorf("a checkpoint has the groups %v, want only the group full", all)
	}
}
