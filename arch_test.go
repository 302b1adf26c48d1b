// Package freshet_test checks the rules of this repository that no compiler checks: which packages may
// import each other, which functions core may not call, and which dependencies have a reason.
// CONTRIBUTING.md explains the rules.
package freshet_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/freshet-io/freshet"

// layers lists the layers from the top. A package imports from its own layer or from lower layers. The
// parts of an isolated layer never import each other.
var layers = []struct {
	dir      string
	isolated bool
}{
	{dir: "e2e"},
	{dir: "lab"},
	{dir: "release"},     // builds binaries, packages and images
	{dir: "deploy/helm"}, // checks the chart
	{dir: "sim"},         // a group of whole members on a virtual clock; tests only
	{dir: "examples"},    // example services for users to copy
	{dir: "cmd"},
	{dir: "deploy"},          // writes alerts and dashboards for Freshet
	{dir: "internal/server"}, // a process with roles
	{dir: "internal/cli"},    // commands that run with or without a server
	{dir: "internal/bench"},  // the command bench
	{dir: "internal/role", isolated: true},
	{dir: "internal/tiling"},  // code shared by the two roles that make tiles
	{dir: "internal/explain"}, // predicts the series of a datagram, for the server and the command
	{dir: "internal/settings"},
	{dir: "internal/adapter", isolated: true},
	{dir: "internal/answer"}, // the forms of a server's answers, for the server and the commands
	{dir: "internal/core"},
	{dir: "internal/lib"},
	{dir: "client"},   // imported by services of users: imports none of our packages
	{dir: "slogring"}, // imported by services of users, like client
	{dir: "ui"},       // the web page's files
}

// strangers lists pairs of directories that must not import each other, although the layers would allow
// it. A command, say, knows a server only by its HTTP API.
var strangers = [][2]string{
	{"internal/server", "internal/cli"}, {"internal/server", "internal/bench"},
	{"internal/cli", "internal/bench"}, {"internal/cli", "internal/role"},
	{"internal/bench", "internal/role"},
}

const core = "internal/core"

// outside lists the packages that reach files, sockets or the kernel. The packages in their
// subdirectories count too, except for those in harmless. Only direct imports are checked.
var (
	outside  = []string{"os", "net", "syscall", "golang.org/x/sys"}
	harmless = []string{"net/netip", "net/url"} // these only parse values
)

// forCore lists the packages of lib that core may import. Other packages of lib could import packages
// that core must avoid. conf is allowed although it can read files, since core only passes text to it, and fault
// since it is empty in releases.
var forCore = []string{
	"internal/lib/arena", "internal/lib/buf", "internal/lib/conf", "internal/lib/fault", "internal/lib/fields",
	"internal/lib/fulldisk", "internal/lib/index", "internal/lib/prefetch", "internal/lib/xorchunk",
}

// clock lists, by package, the functions that read the time, wait, or schedule a call.
var clock = map[string][]string{
	"time":    {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"},
	"context": {"WithDeadline", "WithDeadlineCause", "WithTimeout", "WithTimeoutCause", "AfterFunc"},
}

func TestImports(t *testing.T) {
	for _, v := range violations(t, ".") {
		t.Error(v)
	}
}

// The tree under testdata breaks each rule at least once. Its other code breaks no rule.
func TestImportRulesCatch(t *testing.T) {
	want := []string{
		"internal/adapter/sideways/sideways.go: imports internal/adapter/files: parts of internal/adapter do not " +
			"import each other",
		"internal/adapter/sideways/sideways.go: imports internal/role/second: imports point down, never up",
		"internal/cli/asks.go: imports internal/role/second: internal/cli knows nothing of it",
		"internal/cli/asks.go: imports internal/server: imports point down, never up",
		"internal/core/clock/clock.go: uses context.AfterFunc: core is handed the time",
		"internal/core/clock/clock.go: uses context.WithDeadline: core is handed the time",
		"internal/core/clock/clock.go: uses context.WithDeadlineCause: core is handed the time",
		"internal/core/clock/clock.go: uses context.WithTimeout: core is handed the time",
		"internal/core/clock/clock.go: uses context.WithTimeoutCause: core is handed the time",
		"internal/core/clock/clock.go: uses time.After: core is handed the time",
		"internal/core/clock/clock.go: uses time.AfterFunc: core is handed the time",
		"internal/core/clock/clock.go: uses time.NewTicker: core is handed the time",
		"internal/core/clock/clock.go: uses time.NewTimer: core is handed the time",
		"internal/core/clock/clock.go: uses time.Now: core is handed the time",
		"internal/core/clock/clock.go: uses time.Since: core is handed the time",
		"internal/core/clock/clock.go: uses time.Sleep: core is handed the time",
		"internal/core/clock/clock.go: uses time.Tick: core is handed the time",
		"internal/core/clock/clock.go: uses time.Until: core is handed the time",
		"internal/core/clock/hidden.go: imports context by a dot: the rules cannot see what it uses",
		"internal/core/clock/hidden.go: imports time by a dot: the rules cannot see what it uses",
		"internal/core/outside/outside.go: imports golang.org/x/sys/unix: core opens no files and no sockets",
		"internal/core/outside/outside.go: imports internal/adapter/files: imports point down, never up",
		"internal/core/outside/outside.go: imports internal/lib/plain: not among the packages that core may import",
		"internal/core/outside/outside.go: imports net/http: core opens no files and no sockets",
		"internal/core/outside/outside.go: imports net: core opens no files and no sockets",
		"internal/core/outside/outside.go: imports os/exec: core opens no files and no sockets",
		"internal/core/outside/outside.go: imports os: core opens no files and no sockets",
		"internal/core/outside/outside.go: imports syscall: core opens no files and no sockets",
		"internal/elsewhere/elsewhere.go: lies in no layer: move it, or add its layer to arch_test.go",
		"internal/lib/knowing/knowing.go: imports internal/core/pure: imports point down, never up",
		"internal/role/first/first.go: imports cmd/freshet: imports point down, never up",
		"internal/role/first/first.go: imports internal/role/second: parts of internal/role do not import each other",
		"internal/server/serves.go: imports internal/cli: internal/server knows nothing of it",
	}
	got := violations(t, "testdata/arch")
	for _, v := range got {
		if !slices.Contains(want, v) {
			t.Errorf("violations reports %s, which breaks no rule", v)
		}
	}
	for _, v := range want {
		if !slices.Contains(got, v) {
			t.Errorf("violations does not report %s", v)
		}
	}
}

// violations parses every Go file under root, whatever its build constraints, and returns a sorted list
// of the violations of the rules. Test files are exempt, because tests use real neighbours.
func violations(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		for _, v := range check(path.Dir(rel), file) {
			found = append(found, rel+": "+v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// check returns the rules that one file of the package in dir breaks.
func check(dir string, file *ast.File) (broken []string) {
	from := layerOf(dir)
	if from < 0 {
		return []string{"lies in no layer: move it, or add its layer to arch_test.go"}
	}
	for _, spec := range file.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		if own, ok := strings.CutPrefix(name, module+"/"); ok {
			switch to := layerOf(own); {
			case to < 0: // the check of the imported package reports this
			case to < from:
				broken = append(broken, "imports "+own+": imports point down, never up")
			case to == from && layers[from].isolated && part(own, to) != part(dir, from):
				broken = append(broken, fmt.Sprintf("imports %s: parts of %s do not import each other", own, layers[to].dir))
			case slices.ContainsFunc(strangers, func(s [2]string) bool { return within(dir, s[0]) && within(own, s[1]) }):
				broken = append(broken, fmt.Sprintf("imports %s: %s knows nothing of it", own, layers[from].dir))
			case within(dir, core) && to > from && !slices.Contains(forCore, own):
				broken = append(broken, "imports "+own+": not among the packages that core may import")
			}
		} else if within(dir, core) && slices.ContainsFunc(outside, func(o string) bool { return within(name, o) }) &&
			!slices.Contains(harmless, name) {
			broken = append(broken, "imports "+name+": core opens no files and no sockets")
		}
	}
	if within(dir, core) {
		broken = append(broken, clockUses(file)...)
	}
	return broken
}

// clockUses finds the functions of clock that a file calls or uses as values. The file may import their
// packages under any name.
func clockUses(file *ast.File) (broken []string) {
	names := map[string]string{} // import paths of the packages in clock, by the file's names for them
	for _, spec := range file.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		if clock[name] == nil {
			continue
		}
		switch {
		case spec.Name == nil:
			names[name] = name
		case spec.Name.Name == ".":
			broken = append(broken, "imports "+name+" by a dot: the rules cannot see what it uses")
		default:
			names[spec.Name.Name] = name
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(clock[names[x.Name]], sel.Sel.Name) {
			broken = append(broken, "uses "+names[x.Name]+"."+sel.Sel.Name+": core is handed the time")
		}
		return true
	})
	return broken
}

func layerOf(dir string) int {
	for i, l := range layers {
		if within(dir, l.dir) {
			return i
		}
	}
	return -1
}

// part returns the name of the directory directly below the layer's directory: collector for
// internal/role/collector/x.
func part(dir string, layer int) string {
	rest := strings.TrimPrefix(dir, layers[layer].dir+"/")
	first, _, _ := strings.Cut(rest, "/")
	return first
}

func within(dir, of string) bool { return dir == of || strings.HasPrefix(dir, of+"/") }

// requirement is a line of a go.mod.
type requirement struct {
	Path, Version string
	Indirect      bool
}

// own reports whether the requirement is a module of this repository.
func (r requirement) own() bool { return within(r.Path, module) }

// requirements returns the requirements of each module of the repository, by the module's directory. It
// leaves out programs that tests and the lab run beside Freshet.
func requirements(t *testing.T) map[string][]requirement {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "go.mod",
		"*/go.mod").Output()
	if err != nil {
		t.Fatalf("list the modules: %v", err)
	}
	all := map[string][]requirement{}
	for file := range strings.Lines(string(out)) {
		dir := path.Dir(strings.TrimSpace(file))
		if within(dir, "lab/peers") || within(dir, "lab/peers-tsdb") || dir == "e2e/kubernetes" {
			continue
		}
		out, err := exec.Command("go", "mod", "edit", "-json", path.Join(dir, "go.mod")).Output()
		if err != nil {
			t.Fatalf("read %s/go.mod: %v", dir, err)
		}
		var mod struct{ Require []requirement }
		if err := json.Unmarshal(out, &mod); err != nil {
			t.Fatalf("read %s/go.mod: %v", dir, err)
		}
		all[dir] = mod.Require
	}
	return all
}

// All modules require the same versions of a dependency. So the tests run the code that is shipped, and
// each dependency is compiled only once.
func TestModulesAgreeOnVersions(t *testing.T) {
	all := requirements(t)
	root := map[string]string{}
	for _, r := range all["."] {
		root[r.Path] = r.Version
	}
	for dir, required := range all {
		for _, r := range required {
			if version, shared := root[r.Path]; shared && version != r.Version {
				t.Errorf("%s/go.mod requires %s %s, but the binary has %s", dir, r.Path, r.Version, version)
			}
		}
	}
}

// mostLinked bounds the number of third-party packages that the binary links. docs/dependencies.md says
// where they come from. The bound is useful because a single import can bring a hundred packages.
const mostLinked = 810

func TestTheBinaryLinksNoMore(t *testing.T) {
	const format = "{{if not .Standard}}{{.ImportPath}}{{end}}"
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, "./cmd/freshet")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	others := 0
	for name := range strings.FieldsSeq(string(out)) {
		if !within(name, module) {
			others++
		}
	}
	if others > mostLinked {
		t.Errorf("the binary links %d third-party packages, but %d are allowed: see docs/dependencies.md", others, mostLinked)
	}
	t.Logf("%d packages of others", others)
}

// `make test` uses one workspace for all modules, in which each module sees what the others require. Each
// module must also find all of its packages without the workspace, for single tests that are run by hand.
func TestModulesAreComplete(t *testing.T) {
	for dir := range requirements(t) {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", "./...")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
		var wrong strings.Builder
		cmd.Stderr = &wrong
		if err := cmd.Run(); err != nil {
			t.Errorf("%s in %s: %v\n%s", cmd, dir, err, &wrong)
		}
	}
}

// A service that imports the client or slogring gets nothing else with it: it needs neither our
// dependencies nor our version of Go.
func TestPublicModulesBringNothing(t *testing.T) {
	for name, oldest := range map[string]string{"client": "1.22", "slogring": "1.25"} {
		public := module + "/" + name
		source, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		service := t.TempDir()
		for file, text := range map[string]string{
			"go.mod": "module service\n\ngo " + oldest + "\n\nrequire " + public + " v0.0.0\n\nreplace " + public + " => " +
				source + "\n",
			"main.go": "package main\n\nimport _ \"" + public + "\"\n\nfunc main() {}\n",
		} {
			if err := os.WriteFile(filepath.Join(service, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		command := func(args ...string) string {
			cmd := exec.CommandContext(t.Context(), "go", args...)
			cmd.Dir, cmd.Env = service, append(os.Environ(), "GOWORK=off", "GOPROXY=off")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", cmd, err, out)
			}
			return string(out)
		}
		if all, want := command("list", "-m", "all"), "service\n"+public+" v0.0.0 => "+source+"\n"; all != want {
			t.Errorf("the modules of a service that imports %s are\n%swant\n%s", name, all, want)
		}
		command("build", "-o", os.DevNull, ".")
	}
}

// docs/dependencies.md gives the reason for each dependency. A dependency
// without a reason should go.
func TestDependenciesHaveReasons(t *testing.T) {
	doc, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^- `([^`]+)`: \\S").FindAllSubmatch(doc, -1) {
		reasons[string(m[1])] = true
	}
	required := map[string]bool{}
	for dir, all := range requirements(t) {
		for _, r := range all {
			if r.Indirect || r.own() {
				continue
			}
			required[r.Path] = true
			if !reasons[r.Path] {
				t.Errorf("docs/dependencies.md gives no reason for %s, which %s/go.mod requires directly", r.Path, dir)
			}
		}
	}
	for p := range reasons {
		if !required[p] {
			t.Errorf("docs/dependencies.md gives a reason for %s, which no go.mod requires directly", p)
		}
	}
}
