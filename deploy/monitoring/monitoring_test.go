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
	err := filepath.WalkDir("../grafana", func(path string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel("..", path)
		if _, written := all[filepath.ToSlash(name)]; err == nil && !d.IsDir() && !written {
			t.Errorf("deploy/%s is not written by go generate", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
