package journal

import (
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// A copy has no notes: the stores in a backup are from another moment, and the notes would be wrong
// about them.
func TestACopyHasNoNotes(t *testing.T) {
	from, to := memfs.New(), memfs.New()
	l, _, err := Open(from, Options{Mark: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append([]Frame{{Shard: 1, Type: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := l.BeginNotes([][]byte{[]byte("x")}); err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(from, to); err != nil {
		t.Fatal(err)
	}
	copied, _, err := Open(to, Options{Mark: 1})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := copied.Notes(); err != nil || len(got) > 0 {
		t.Errorf("the copy has notes: %q, error %v", got, err)
	}
}
