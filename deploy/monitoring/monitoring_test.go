package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The committed files match this package's lists, from which go generate writes them.
func TestFilesAreWritten(t *testing.T) {
	all := files()
	for name, want := range all {
		if got, err := os.ReadFile(filepath.Join("..", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("deploy/%s differs from the lists; run: go generate ./deploy/monitoring (%v)", name, err)
		}
	}
	there, err := os.ReadDir("../grafana")
	if err != nil || len(there) != len(all)-2 {
		t.Errorf("deploy/grafana has %d files, but go generate writes %d; %v", len(there), len(all)-2, err)
	}
}
