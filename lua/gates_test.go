// Package lua has the tests of the library for nginx that need no server: what busted and
// luacheck say, and what depends on no clock of how requests are counted in a real nginx.
// lua/install puts all of it there; e2e/edge_test.go has the rest.
package lua

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func run(t *testing.T, name string, arg ...string) string {
	t.Helper()
	var problems strings.Builder
	cmd := exec.CommandContext(t.Context(), name, arg...)
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, problems.String())
	}
	return string(out)
}

func TestSpecs(t *testing.T) { run(t, "busted", "--lua=luajit", "spec") }

func TestLuacheck(t *testing.T) { run(t, "luacheck", "--quiet", ".") }

// What requests call is compiled by LuaJIT, all of it and for good.
func TestNothingIsGivenUp(t *testing.T) { run(t, "bench/aborts.sh") }

// Counting a request, once in a counter and once in a histogram, by route, method and status.
func TestInstructions(t *testing.T) {
	const limit = 550 // over the empty handler
	rows := strings.Split(strings.TrimSpace(run(t, "bench/instructions.sh", "api", "http", "route", "classic", "handle")), "\n")
	if len(rows) != 5 {
		t.Fatalf("%d rows: %q", len(rows), rows)
	}
	for _, row := range rows {
		handler, count, _ := strings.Cut(row, " ")
		n, err := strconv.Atoi(count)
		if err != nil || n <= 0 || n > limit {
			t.Errorf("%s: %q instructions, at most %d", handler, count, limit)
		}
	}
}
