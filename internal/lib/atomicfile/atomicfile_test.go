package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriteReplacesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, text := range []string{"a long text", "short", ""} {
		// A process that died while it wrote has left this.
		if err := os.WriteFile(path+".tmp", []byte("left by a dead process"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file has %q, error %v; want %q", got, err, text)
		}
	}
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("left are %v, error %v", left, err)
	}
	if err := Write(filepath.Join(path, "below"), nil); err == nil {
		t.Error("no error for a directory that does not exist")
	}
}
