package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/settings"
)

// A file that says what of a node is damaged cannot be read. The node does not start, and says what to do.
func TestUnreadableNotes(t *testing.T) {
	for _, name := range []string{"damaged.json", "events.lost.json", "healing.json", "fill/again"} {
		s := &server{config: settings.Default()}
		s.config.DataDir, s.config.Cluster.Node = t.TempDir(), "b"
		if err := s.checkNotes(); err != nil {
			t.Errorf("without files: %v", err)
		}
		path := filepath.Join(s.config.DataDir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{\x00"), 0o640); err != nil {
			t.Fatal(err)
		}
		err := s.checkNotes()
		for _, want := range []string{path, "empty the data directory", "freshet cluster replace b", "--cluster-join"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s is damaged: error %v, want it to have %q", name, err, want)
			}
		}
	}
}
