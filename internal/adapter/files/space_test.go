package files

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSpaceOf(t *testing.T) {
	s, err := SpaceOf(t.TempDir())
	if err != nil || s.Free == 0 || s.Size < s.Free {
		t.Errorf("the space is %+v, %v", s, err)
	}
	if _, err := SpaceOf(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("the error for a missing directory is %v", err)
	}
}

// A sparse file counts with what it takes, not with its size.
func TestDiskBytes(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	empty, err := DiskBytes(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "b", "full"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	sparse := filepath.Join(dir, "a", "sparse")
	if err := os.WriteFile(sparse, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 1<<30); err != nil {
		t.Fatal(err)
	}
	bytes, err := DiskBytes(dir)
	if took := bytes - empty; err != nil || took < 1<<20 || took > 2<<20 {
		t.Errorf("1 MiB takes %d bytes, %v", took, err)
	}
	if bytes, err := DiskBytes(filepath.Join(dir, "none")); bytes != 0 || err != nil {
		t.Errorf("a missing directory takes %d bytes, %v", bytes, err)
	}
}
