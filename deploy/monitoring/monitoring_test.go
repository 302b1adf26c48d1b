package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The committed files match the lists: neither is edited without the other.
func TestFilesAreWritten(t *testing.T) {
	all := files()
	for name, want := range all {
		if got, err := os.ReadFile(filepath.Join("..", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("deploy/%s is not what the lists say; run: go generate ./deploy/monitoring (%v)", name, err)
		}
	}
	there, err := os.ReadDir("../grafana")
	if err != nil || len(there) != len(all)-1 {
		t.Errorf("deploy/grafana has %d files, and %d are written; %v", len(there), len(all)-1, err)
	}
}
