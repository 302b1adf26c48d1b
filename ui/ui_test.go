package ui

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// What is served is what stands in src, to the byte.
func TestTheBundleIsFresh(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dist")
	run(t, "node", "build.mjs", dir)
	built, kept := read(t, os.DirFS(dir)), read(t, Files())
	for name, text := range built {
		if !bytes.Equal(text, kept[name]) {
			t.Errorf("dist/%s is not what ui/src makes: run make ui", name)
		}
		delete(kept, name)
	}
	for name := range kept {
		t.Errorf("ui/src does not make dist/%s: run make ui", name)
	}
}

func TestTypes(t *testing.T) { run(t, "node_modules/.bin/tsc", "--noEmit", "-p", ".") }

// run needs what ui/install brings.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if _, err := os.Stat("node_modules"); err != nil {
		t.Fatalf("what the page is built with is not installed; run `make test`, which does it: %v", err)
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
