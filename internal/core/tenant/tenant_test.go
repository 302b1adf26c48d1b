package tenant

import (
	"context"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		why, name string
		ok        bool
	}{
		{"the default tenant", Default, true},
		{"all that is allowed", "Team-7_eu.west", true},
		{"as long as can be", strings.Repeat("x", 64), true},
		{"one byte too long", strings.Repeat("x", 65), false},
		{"no name", "", false},
		{"the directory itself", ".", false},
		{"the directory above", "..", false},
		{"a path", "a/b", false},
		{"a path upwards", "../a", false},
		{"a path elsewhere", `a\b`, false},
		{"ends a C string", "a\x00b", false},
		{"not ASCII, so not the same bytes on every file system", "ä", false},
		{"a line of a log", "a\nb", false},
	} {
		if err := Check(c.name); (err == nil) != c.ok {
			t.Errorf("%s: Check(%q) = %v", c.why, c.name, err)
		}
	}
}

func TestContext(t *testing.T) {
	if name, ok := FromContext(context.Background()); ok {
		t.Errorf("a context without a tenant has the tenant %q", name)
	}
	if name, ok := FromContext(NewContext(context.Background(), "a")); !ok || name != "a" {
		t.Errorf("got %q, %v; want a", name, ok)
	}
}
