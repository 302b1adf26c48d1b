package ui

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// The files in dist are equal, byte for byte, to a new build of src, so that no server
// has an old page.
func TestTheBundleIsFresh(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dist")
	run(t, "node", "build.mjs", dir)
	built, kept := read(t, os.DirFS(dir)), read(t, Files())
	for name, text := range built {
		if !bytes.Equal(text, kept[name]) {
			t.Errorf("dist/%s differs from what ui/src makes: run make ui", name)
		}
		delete(kept, name)
	}
	for name := range kept {
		t.Errorf("ui/src does not make dist/%s: run make ui", name)
	}
}

// An axis and a legend write values in their unit.
func TestFormats(t *testing.T) {
	bundle := filepath.Join(t.TempDir(), "units.mjs")
	run(t, "go", "tool", "esbuild", "src/units.ts", "--bundle", "--format=esm", "--log-level=warning", "--outfile="+bundle)
	run(t, "node", "test/formats.mjs", bundle)
}

// No file of src imports itself, directly or through other files, so that a reader can read each
// file before the files that import it.
func TestImportsMakeNoCycle(t *testing.T) {
	imports := importsOf(t, os.DirFS("src"))
	if len(imports["main.tsx"]) == 0 || !slices.Contains(imports["query.tsx"], "editor.ts") {
		t.Fatalf("importsOf finds too few imports: main.tsx has %v, query.tsx has %v",
			imports["main.tsx"], imports["query.tsx"])
	}
	if cycle := cycleIn(imports); cycle != nil {
		t.Errorf("%s: move the code that these files share into a file of its own", strings.Join(cycle, " imports "))
	}
}

// cycleIn also finds cycles through types and through imports at run time.
func TestCyclesAreFound(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"none",
			map[string]string{"a.ts": "import { b } from './b'\nimport { c } from './c'", "b.ts": "import { c } from './c'",
				"c.ts": "import { x } from 'a'"}, ""},
		{"two files", map[string]string{"a.ts": "import {\n  b,\n} from './b'", "b.tsx": "import { a } from './a'"},
			"a.ts b.tsx a.ts"},
		{"a type", map[string]string{"a.ts": "import { b } from './b'", "b.ts": "import type { A } from './a'"},
			"a.ts b.ts a.ts"},
		{"an import at run time", map[string]string{"a.ts": "void import('./b')", "b.ts": "export { a } from './a'"},
			"a.ts b.ts a.ts"},
		{"three files", map[string]string{"a.ts": "import './b'", "b.ts": "import './c'", "c.ts": "import './a'"},
			"a.ts b.ts c.ts a.ts"},
	} {
		src := fstest.MapFS{}
		for name, text := range c.files {
			src[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := strings.Join(cycleIn(importsOf(t, src)), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

var importFrom = regexp.MustCompile(`(?:\bfrom|\bimport)\s*\(?\s*'\./([^']+)'`)

// importsOf returns, for each file, the files that it imports, including imports of types and
// imports at run time.
func importsOf(t *testing.T, src fs.FS) map[string][]string {
	t.Helper()
	texts := read(t, src)
	imports := map[string][]string{}
	for name, text := range texts {
		for _, found := range importFrom.FindAllSubmatch(text, -1) {
			for _, extension := range []string{".ts", ".tsx"} {
				if to := string(found[1]) + extension; texts[to] != nil {
					imports[name] = append(imports[name], to)
				}
			}
		}
	}
	return imports
}

// cycleIn returns a path of imports from a file back to itself, or nil if there is none.
func cycleIn(imports map[string][]string) []string {
	passed := map[string]bool{} // files from which no cycle was found
	var way []string
	var follow func(file string) []string
	follow = func(file string) []string {
		if i := slices.Index(way, file); i >= 0 {
			return append(slices.Clone(way[i:]), file)
		}
		if passed[file] {
			return nil
		}
		way = append(way, file)
		for _, to := range imports[file] {
			if cycle := follow(to); cycle != nil {
				return cycle
			}
		}
		way = way[:len(way)-1]
		passed[file] = true
		return nil
	}
	for _, file := range slices.Sorted(maps.Keys(imports)) {
		if cycle := follow(file); cycle != nil {
			return cycle
		}
	}
	return nil
}

func TestTypes(t *testing.T) { run(t, "node_modules/.bin/tsc", "--noEmit", "-p", ".") }

// run runs a tool that ui/install has installed.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if _, err := os.Stat("node_modules"); err != nil {
		t.Fatalf("node_modules is not installed; `make test` installs it: %v", err)
	}
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func read(t *testing.T, files fs.FS) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		all[name], err = fs.ReadFile(files, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
