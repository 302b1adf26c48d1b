package apiclient

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/freshet-io/freshet/internal/answer"
)

// A command sends its token to a socket in ./data only if the directory and the socket belong
// to this user or root: another user may own the working directory.
func TestCommandsTrustNoSocketOfOthers(t *testing.T) {
	t.Setenv("FRESHET_DATA_DIR", "")
	dir := t.TempDir()
	t.Chdir(dir)
	path := filepath.Join("data", answer.OperatorSocket)
	if err := os.Mkdir("data", 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := operatorSocketHere(); got != path {
		t.Fatalf("commands find the socket %q, want %q", got, path)
	}
	user, other := os.Getuid(), os.Getuid()+1
	if user == 0 { // every user trusts root's files
		for _, file := range []string{path, "data"} {
			if err := os.Chown(file, other, -1); err != nil {
				t.Fatal(err)
			}
			if got := operatorSocketHere(); got == path {
				t.Errorf("commands trust the socket although another user owns %s", file)
			}
			if err := os.Chown(file, user, -1); err != nil {
				t.Fatal(err)
			}
		}
		if !trusted(other, path) {
			t.Error("a user does not trust root's files")
		}
	} else if trusted(other, path) || !trusted(user, path) {
		t.Error("a user trusts another user's files, or does not trust their own")
	}
	if trusted(user, path, "nothing") {
		t.Error("a missing file is trusted")
	}
	t.Setenv("FRESHET_DATA_DIR", "data")
	if got := operatorSocketHere(); got != path {
		t.Errorf("with FRESHET_DATA_DIR, commands find the socket %q, want %q", got, path)
	}
}
