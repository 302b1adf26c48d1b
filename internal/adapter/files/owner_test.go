package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A command of root left files that the server may not read. The error says whose they are, and what to do.
func TestExplainDenied(t *testing.T) {
	dir := t.TempDir()
	foreign, own := filepath.Join(dir, "foreign"), filepath.Join(dir, "own")
	for _, path := range []string{foreign, own} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const nobody = 65534
	if os.Geteuid() != 0 {
		dir, foreign = "/", "/etc" // which belongs to root
	} else if err := os.Chown(foreign, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	denied := func(path string) error {
		return fmt.Errorf("open the stores: %w", &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES})
	}
	for _, tt := range []struct {
		name    string
		err     error
		explain bool
	}{
		{"a file of another user", denied(foreign), true},
		{"a file that a directory of another user hides", denied(filepath.Join(foreign, "of", "it")), true},
		{"the text names the path already", fmt.Errorf("use %s: %w", foreign, cause(denied(foreign))), true},
		{"a chown does not help if the file belongs to this user", denied(own), false},
		{"nor with files of others, such as certificates", denied(dir + "-beside/key.pem"), false},
		{"nor if the disk is broken", &fs.PathError{Op: "open", Path: foreign, Err: syscall.EIO}, false},
	} {
		got := ExplainDenied(dir, tt.err)
		if !errors.Is(got, tt.err) || !strings.HasPrefix(got.Error(), tt.err.Error()) {
			t.Errorf("%s: the cause is lost: %v", tt.name, got)
		}
		text := got.Error()
		if explained := text != tt.err.Error(); explained != tt.explain {
			t.Errorf("%s: explained %v, want %v: %s", tt.name, explained, tt.explain, text)
		}
		names := strings.Contains(text, "; "+foreign+" belongs to user ") && strings.HasSuffix(text, " "+dir)
		if tt.explain && !names {
			t.Errorf("%s: %s; want the owner of %s, and a command for %s", tt.name, text, foreign, dir)
		}
	}
	if err := ExplainDenied(dir, nil); err != nil {
		t.Errorf("without an error: %v", err)
	}
}
