package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xeipuuv/gojsonschema"
)

// real is a release with Freshet's binary for this machine. Every other binary in these tests is a stand-in, since
// compiling Freshet for another architecture takes minutes.
var real release

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir := os.Getenv(insideVariable)
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "freshet-release"); err != nil { // t.TempDir may be too long for a socket
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
	}
	source, err := filepath.Abs("..")
	if err == nil {
		real, err = describe(context.Background(), source, dir)
	}
	if _, missing := os.Stat(real.binary(runtime.GOARCH)); err == nil && missing != nil {
		// As in a release, but for -trimpath: with it, nothing that other tests compile could be used again.
		cmd := exec.Command("go", "build", "-C", source, "-ldflags", "-s -w -X main.version=v"+real.version,
			"-o", real.binary(runtime.GOARCH), "./cmd/freshet")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		err = run(cmd)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// run runs a program. Its error has what the program said.
func run(cmd *exec.Cmd) error {
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, said)
	}
	return nil
}

// check is a helper that ends the test with an error.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// standIn makes a repository with the source of a program that stands in for Freshet. Each has the same commit.
func standIn(t *testing.T) (source string) {
	t.Helper()
	source = t.TempDir()
	check(t, os.WriteFile(filepath.Join(source, "go.mod"), []byte("module standin\n\ngo 1.26.0\n"), 0o644))
	check(t, os.WriteFile(filepath.Join(source, "main.go"), []byte("package main\n\nvar version string\n\n"+
		"func main() { println(version) }\n"), 0o644))
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}, {"commit", "--quiet", "--message", "stand-in"}} {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", source, "-c", "user.name=Nobody", "-c",
			"user.email=nobody@example.org"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE=1767322800 +0000", "GIT_COMMITTER_DATE=1767322800 +0000")
		check(t, run(cmd))
	}
	return source
}

// built makes a release whose binaries are stand-ins.
func built(t *testing.T) release {
	t.Helper()
	source := standIn(t)
	r := real
	r.out = t.TempDir()
	for _, arch := range architectures {
		check(t, r.build(t.Context(), source, ".", arch))
	}
	return r
}

// One commit makes the same bytes on every machine and in every directory: whoever doubts a release can build it
// again and compare.
func TestTheSameCommitMakesTheSameBytes(t *testing.T) {
	first := built(t)
	habits := filepath.Join(t.TempDir(), "env") // of another machine, set there by go env -w
	check(t, os.WriteFile(habits, []byte("GOFLAGS=-buildvcs=false\nGOAMD64=v3\nGOARM64=v8.1\n"), 0o644))
	t.Setenv("GOENV", habits)
	second := built(t)
	check(t, first.pack())
	here := time.Local
	t.Cleanup(func() { time.Local = here })
	time.Local = time.FixedZone("elsewhere", 3600)
	t.Setenv("FRESHET_SERVER", "10.0.0.1:7125")
	check(t, second.pack())
	sums, err := os.ReadFile(filepath.Join(first.out, sumsFile))
	check(t, err)
	again, err := os.ReadFile(filepath.Join(second.out, sumsFile))
	check(t, err)
	if !bytes.Equal(sums, again) {
		t.Errorf("the first time the checksums are\n%sand the second time\n%s", sums, again)
	}
	check(t, run(inDirectory(exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", sumsFile), first.out)))
	files, err := os.ReadDir(first.out)
	check(t, err)
	if lines, want := bytes.Count(sums, []byte("\n")), len(files)-1; lines != want || want != 2*5+1 {
		t.Errorf("%d checksums for %d files, want 11: a binary, an SBOM, two packages and an image for each of two "+
			"architectures, and one layout", lines, want)
	}
}

func inDirectory(cmd *exec.Cmd, dir string) *exec.Cmd {
	cmd.Dir = dir
	return cmd
}

// A binary that would not run in an image without a C library is refused.
func TestBinariesAreChecked(t *testing.T) {
	if err := checkBinary(real.binary(runtime.GOARCH), runtime.GOARCH); err != nil {
		t.Error(err)
	}
	other := architectures[1-slices.Index(architectures, runtime.GOARCH)]
	if err := checkBinary(real.binary(runtime.GOARCH), other); err == nil {
		t.Error("a binary for another architecture is accepted")
	}
	shell, err := filepath.EvalSymlinks("/bin/sh")
	check(t, err)
	if err := checkBinary(shell, runtime.GOARCH); err == nil || !strings.HasSuffix(err.Error(), "is not static") {
		t.Errorf("a dynamic binary: %v", err)
	}
	unstripped := filepath.Join(t.TempDir(), "standin")
	cmd := exec.Command("go", "build", "-C", standIn(t), "-o", unstripped, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	check(t, run(cmd))
	if err := checkBinary(unstripped, runtime.GOARCH); err == nil || !strings.HasSuffix(err.Error(), "is not stripped") {
		t.Errorf("a binary with symbols: %v", err)
	}
}

func TestVersions(t *testing.T) {
	for described, want := range map[string]string{
		"v0.1.0":                  "0.1.0",
		"v0.1.0-rc.1":             "0.1.0-rc.1",
		"v0.1.0-3-g58c90316":      "0.1.0+3.g58c90316", // newer than v0.1.0
		"v0.1.0-rc.1-3-g58c90316": "0.1.0-rc.1+3.g58c90316",
		"v0.2.0-dev-3-gabc":       "0.2.0-dev+3.gabc", // of a clone without tags: older than v0.2.0
		"v0.1.0-dirty":            "0.1.0+dirty",
		"v0.1.0-3-gabc-dirty":     "0.1.0+3.gabc.dirty",
	} {
		if got := semantic(described); got != want {
			t.Errorf("%s is %s, want %s", described, got, want)
		}
	}
}

// A clone without tags takes the version from the changelog, so that its packages are newer than those of the releases
// before, and than the newest once that has changes.
func TestVersionWithoutTags(t *testing.T) {
	source := standIn(t)
	if _, err := describe(t.Context(), source, t.TempDir()); err == nil || !strings.Contains(err.Error(), "CHANGELOG.md") {
		t.Errorf("a source without a changelog: %v", err)
	}
	for unreleased, want := range map[string]string{"": "0.3.0-dev+1.g", "### Fixed\n\n- A mistake.\n\n": "0.3.0+1.g"} {
		changes := "# Changelog\n\n## Unreleased\n\n" + unreleased + "## 0.3.0 - 2026-12-24\n\n## 0.2.0 - 2026-11-29\n"
		check(t, os.WriteFile(filepath.Join(source, "CHANGELOG.md"), []byte(changes), 0o644))
		r, err := describe(t.Context(), source, t.TempDir())
		check(t, err)
		if !strings.HasPrefix(r.version, want) {
			t.Errorf("with %q after the newest release the version is %s, want %s and a commit", unreleased, r.version, want)
		}
	}
}

// An SBOM is valid CycloneDX, and has every module that the linker noted in the binary, the standard library, and
// the packages of the page.
func TestSBOM(t *testing.T) {
	check(t, real.writeSBOM(runtime.GOARCH))
	text, err := os.ReadFile(real.sbom(runtime.GOARCH))
	check(t, err)
	schemas, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}/schema", "github.com/CycloneDX/cyclonedx-go").Output()
	check(t, err)
	dir := strings.TrimSpace(string(schemas))
	loader := gojsonschema.NewSchemaLoader()
	for _, name := range []string{"spdx.schema.json", "jsf-0.82.schemax.json"} {
		schema, err := os.ReadFile(filepath.Join(dir, name))
		check(t, err)
		check(t, loader.AddSchemas(gojsonschema.NewBytesLoader(schema)))
	}
	schema, err := os.ReadFile(filepath.Join(dir, "bom-"+sbomVersion.String()+".schema.json"))
	check(t, err)
	valid, err := loader.Compile(gojsonschema.NewBytesLoader(schema))
	check(t, err)
	result, err := valid.Validate(gojsonschema.NewBytesLoader(text))
	check(t, err)
	for _, wrong := range result.Errors() {
		t.Error(wrong)
	}

	var bom struct{ Components []struct{ Purl string } }
	check(t, json.Unmarshal(text, &bom))
	named := map[string]bool{}
	for _, c := range bom.Components {
		named[c.Purl] = true
	}
	info, err := buildinfo.ReadFile(real.binary(runtime.GOARCH))
	check(t, err)
	want := []string{"pkg:golang/stdlib@" + strings.TrimPrefix(runtime.Version(), "go")}
	for _, m := range info.Deps {
		if m.Replace == nil {
			want = append(want, "pkg:golang/"+m.Path+"@"+m.Version)
		}
	}
	var page struct{ Dependencies map[string]string }
	packages, err := os.ReadFile(filepath.Join("..", "ui", "package.json"))
	check(t, err)
	check(t, json.Unmarshal(packages, &page))
	for name, version := range page.Dependencies {
		want = append(want, "pkg:npm/"+strings.Replace(name, "@", "%40", 1)+"@"+version)
	}
	for _, purl := range want {
		if !named[purl] {
			t.Errorf("the SBOM lacks %s", purl)
		}
	}
	if len(want) < 100 || len(bom.Components) < len(want) {
		t.Errorf("%d components, and %d are known", len(bom.Components), len(want))
	}
}

// There is a man page for each command, and each page has a name line, which whatis and apropos read.
func TestManPages(t *testing.T) {
	m, err := generate(real.source, real.time)
	check(t, err)
	for _, want := range []string{"freshet.1", "freshet-serve.1", "freshet-health.1", "freshet-cluster-replace.1",
		"freshet.7", "freshet-configuration.5"} {
		if m.pages[want] == nil {
			t.Errorf("no page %s among %v", want, slices.Sorted(maps.Keys(m.pages)))
		}
	}
	for name, text := range m.pages {
		command := strings.TrimSuffix(name, filepath.Ext(name))
		if !bytes.Contains(text, []byte(".SH NAME\n"+strings.ReplaceAll(command, "-", `\-`)+` \- `)) &&
			!bytes.Contains(text, []byte(".SH NAME\n"+command+" - ")) {
			t.Errorf("%s has no line with its name:\n%.300s", name, text)
		}
	}
}

// paths returns the paths below a directory, each with a leading slash, except for those below a path in but.
func paths(t *testing.T, dir string, but ...string) (all []string) {
	t.Helper()
	check(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		path = strings.TrimPrefix(path, dir)
		if slices.Contains(but, path) {
			return fs.SkipDir
		}
		if path != "" {
			all = append(all, path)
		}
		return err
	}))
	return all
}
