package main

import (
	"maps"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/diagnose"
)

// The code behind the build tag `faults` compiles. No release and no other test contains this code.
func TestFaultsCompile(t *testing.T) {
	cmd := exec.Command("go", "build", "-C", "../..", "-tags", "faults", "-o", "/dev/null", "./internal/role/ingester")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
	cmd = exec.Command("go", "vet", "-C", "../..", "-tags", "faults", "./internal/lib/fault", "./internal/adapter/files",
		"./internal/adapter/sockets")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
}

// A row is right if its fault is named first, clearly, and in time. The row without a fault is right if no
// cause is clear.
func TestRow(t *testing.T) {
	named := func(name string, score float64) *diagnose.Diagnosis {
		return &diagnose.Diagnosis{Causes: []diagnose.Cause{{Name: name, Score: score}, {Name: "garbage", Score: .2}}}
	}
	for _, c := range []struct {
		fault string
		found *diagnose.Diagnosis
		took  time.Duration
		right bool
	}{
		{"lock", named("lock", .9), time.Second, true},
		{"lock", named("disk", .9), time.Second, false},
		{"lock", named("lock", .4), time.Second, false},
		{"lock", named("lock", .9), 61 * time.Second, false},
		{"lock", &diagnose.Diagnosis{}, time.Second, false},
		{none, &diagnose.Diagnosis{}, time.Second, true},
		{none, named("starvation", .4), time.Second, true},
		{none, named("starvation", .5), time.Second, false},
		{"cpu_quota", named("cpu_throttling", .9), time.Second, true},
		{"cpu_quota", named("kernel_drops", .9), time.Second, false},
		{"cpu_quota_unused", named("cpu_throttling", .5), time.Second, false},
		{"cpu_quota_unused", &diagnose.Diagnosis{}, time.Second, true},
		{"disk_frozen", named("disk", .9), time.Second, true},
		{"disk_frozen", named("stores", .9), time.Second, true},
		{"disk_frozen", named("lock", .9), time.Second, false},
	} {
		if right := row(c.fault, c.found, c.took); right != c.right {
			t.Errorf("%s: for %+v after %v, row returned %t, want %t", c.fault, c.found.Causes, c.took, right, c.right)
		}
	}
}

// The cause that is named for a fault from outside must also contain the expected texts.
func TestUnsaid(t *testing.T) {
	from := outside{says: []string{"tenant b", "DIR/tsdb/b", "Raise it", "10 %"}}
	found := &diagnose.Diagnosis{Causes: []diagnose.Cause{
		{Title: "of tenant b", Evidence: []diagnose.Evidence{{What: "in /d/tsdb/b"}}, Next: "Raise it"},
		{Title: "10 % of another cause"},
	}}
	if got := from.unsaid("/d", found); !slices.Equal(got, []string{"10 %"}) {
		t.Errorf("unsaid returned the texts %q, want only 10 %%", got)
	}
}

// outsideNames has exactly the faults from outside.
func TestOutsideNames(t *testing.T) {
	if names := slices.Sorted(maps.Keys(outsides)); !slices.Equal(names, slices.Sorted(slices.Values(outsideNames))) {
		t.Errorf("outsides has the rows %q, but outsideNames has %q", names, outsideNames)
	}
}
