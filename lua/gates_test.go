// Package lua tests the library for nginx without a server: it runs busted and luacheck, and counts
// in a real nginx how many instructions a request takes. lua/install installs the tools. The tests
// with a server are in e2e/edge_test.go.
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

// LuaJIT compiles all functions that requests call. It aborts no trace of these functions, except during
// the first request.
func TestNoTraceIsAborted(t *testing.T) { run(t, "bench/aborts.sh") }

// handlers are the handlers of bench/instructions.sh. Each number is how many more instructions the
// handler may take than the empty handler. 0 means no bound: documents only state the cost.
var handlers = map[string]int{
	"noop": 0, "read": 0, "handle": bound, "chosen": bound, "route": bound, "classic": bound, "http": bound, "api": bound,
	"variable": 0, "block": 0, "loop": 0, "ipairs": 0,
	"example/": bound, "example/checkout": bound, "example/login": bound, // everything that README.md recommends
	"example_upstream": 0, "example_bytes": 0, "example_cache": 0, "example_tls": 0, "example_trace": 0,
}

const (
	bound = 550
	drift = .15 // allowed error of a documented figure, which varies between releases of nginx and glibc
)

// Counting a request by route, method and status, in a counter and in a histogram, takes no more
// instructions than its bound allows, even in the nginx.conf of README.md. The figures in documents
// agree with the measured numbers. Handlers without a bound are counted only in `make soak`.
func TestInstructions(t *testing.T) {
	names, want := []string{"example"}, 0
	for name, limit := range handlers {
		if limit == 0 && os.Getenv("FRESHET_SOAK") == "" { // these handlers take another half minute of processor time
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
			t.Fatalf("bench/instructions.sh printed %q, want a known handler and its instructions", row)
		}
		counted++
		if limit > 0 && n > limit {
			t.Errorf("%s takes %d instructions, at most %d are allowed", handler, n, limit)
		}
		if len(told[handler]) == 0 {
			t.Errorf("%s takes %d instructions, but no document has that figure", handler, n)
		}
		for _, figure := range told[handler] {
			if math.Abs(float64(figure-n)) > drift*float64(n) {
				t.Errorf("%s takes %d instructions, but a document says %d", handler, n, figure)
			}
		}
	}
	if counted != want {
		t.Errorf("%d of %d handlers were counted", counted, want)
	}
}

// figure matches a row such as: | `route` | what | 1,360 | 550 |
var figure = regexp.MustCompile("(?m)^\\| `([a-z_/]+)` \\|.*?\\| ([\\d,]+) \\|")

// figures returns how many instructions the tables of documents state for each handler and for each
// option of resty.freshet.http.
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

// README.md shows the whole example that is measured.
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
		t.Error("README.md differs from examples/nginx.conf: copy the file between ```nginx and ```")
	}
}
