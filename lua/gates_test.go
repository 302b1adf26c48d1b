// Package lua has the tests of the library for nginx that need no server: what busted and
// luacheck say, and what depends on no clock of how requests are counted in a real nginx.
// lua/install puts all of it there; e2e/edge_test.go has the rest.
package lua

import (
	"math"
	"os"
	"os/exec"
	"regexp"
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

// handlers are those of bench/instructions.sh, and how many instructions they may take over
// the empty handler; 0 for those that are shown with their price and have no bound.
var handlers = map[string]int{
	"noop": 0, "read": 0, "handle": bound, "chosen": bound, "route": bound, "classic": bound, "http": bound, "api": bound,
	"variable": 0, "block": 0, "loop": 0, "ipairs": 0,
	"example/": bound, "example/checkout": bound, "example/login": bound, // all that README.md recommends
	"example_upstream": 0, "example_bytes": 0, "example_cache": 0, "example_tls": 0, "example_trace": 0,
}

const (
	bound = 550
	drift = .15 // of a figure in a document: other releases of nginx and glibc take a little more or less
)

// Counting a request, once in a counter and once in a histogram, by route, method and status,
// takes no more than it may, in the nginx.conf of README.md as well. What documents say that
// it takes is what is counted here; of what has no bound in `make soak`.
func TestInstructions(t *testing.T) {
	names, want := []string{"example"}, 0
	for name, limit := range handlers {
		if limit == 0 && os.Getenv("FRESHET_SOAK") == "" { // half a minute more of processor time
			continue
		}
		want++
		if !strings.HasPrefix(name, "example/") {
			names = append(names, name)
		}
	}
	t.Setenv("N", "1000")
	t.Setenv("WARM", "1000")
	told := figures(t, "README.md", "../docs/edge.md")
	counted := 0
	for row := range strings.Lines(run(t, "bench/instructions.sh", names...)) {
		handler, count, _ := strings.Cut(strings.TrimSpace(row), " ")
		n, err := strconv.Atoi(count)
		limit, known := handlers[handler]
		if err != nil || n <= 0 || !known {
			t.Fatalf("bench/instructions.sh printed %q", row)
		}
		counted++
		if limit > 0 && n > limit {
			t.Errorf("%s: %d instructions, at most %d", handler, n, limit)
		}
		if len(told[handler]) == 0 {
			t.Errorf("%s: no document says that it takes %d instructions", handler, n)
		}
		for _, figure := range told[handler] {
			if math.Abs(float64(figure-n)) > drift*float64(n) {
				t.Errorf("%s: %d instructions, and a document says %d", handler, n, figure)
			}
		}
	}
	if counted != want {
		t.Errorf("%d of %d handlers were counted", counted, want)
	}
}

// | `route` | what | 1,360 | 550 |
var figure = regexp.MustCompile("(?m)^\\| `([a-z_/]+)` \\|.*?\\| ([\\d,]+) \\|")

// figures are the instructions that tables of documents have for a handler, or for an option
// of resty.freshet.http.
func figures(t *testing.T, documents ...string) map[string][]int {
	t.Helper()
	all := map[string][]int{}
	for _, name := range documents {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range figure.FindAllStringSubmatch(string(text), -1) {
			n, err := strconv.Atoi(strings.ReplaceAll(row[2], ",", ""))
			if err != nil {
				t.Fatal(err)
			}
			handler := row[1]
			if _, option := handlers["example_"+handler]; option {
				handler = "example_" + handler
			}
			all[handler] = append(all[handler], n)
		}
	}
	return all
}

// README.md shows the example whole, which is what is measured.
func TestExampleInREADME(t *testing.T) {
	example, err := os.ReadFile("examples/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```nginx\n"+string(example)+"```\n") {
		t.Error("README.md does not show examples/nginx.conf as it is: copy it between ```nginx and ```")
	}
}
