package files

import (
	"os"
	"path/filepath"
	"testing"
)

// Files cannot be renamed or linked from one file system to another one. A symbolic link hides where a directory is.
func TestElsewhere(t *testing.T) {
	dir := t.TempDir()
	inside, link, missing := filepath.Join(dir, "inside"), filepath.Join(dir, "link"), filepath.Join(dir, "missing")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self", link); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		paths []string
		want  string
	}{
		{"a directory below the other one is on the same file system", []string{dir, inside}, ""},
		{"a directory that does not exist yet will be", []string{missing}, ""},
		{"proc is a file system of its own", []string{inside, link}, link},
	} {
		if path, err := Elsewhere(dir, tt.paths); err != nil || path != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.name, path, err, tt.want)
		}
	}
}
