package journal

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

func openIn(t testing.TB, fs *memfs.FS) *Log {
	t.Helper()
	l, _, err := Open(fs, Options{Mark: 1})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// notesIn returns the notes that the next process finds.
func notesIn(t testing.TB, fs *memfs.FS) string {
	t.Helper()
	all, err := openIn(t, fs).Notes()
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.Join(all, []byte(" ")))
}

// begin replaces all notes by the given words.
func begin(t testing.TB, l *Log, words string) {
	t.Helper()
	var all [][]byte
	for _, w := range strings.Fields(words) {
		all = append(all, []byte(w))
	}
	if err := l.BeginNotes(all); err != nil {
		t.Fatal(err)
	}
}

func TestNotesSurviveTheProcess(t *testing.T) {
	fs := memfs.New()
	l := openIn(t, fs)
	if got := notesIn(t, fs); got != "" {
		t.Errorf("notes %q in a new journal", got)
	}
	begin(t, l, "a b")
	for i := range 3 {
		if err := l.Note(fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := notesIn(t, fs.Crash()); got != "a b 0 1 2" {
		t.Errorf("notes %q", got)
	}
	begin(t, l, "c")
	if err := l.Note([]byte("d")); err != nil {
		t.Fatal(err)
	}
	if got := notesIn(t, fs.Crash()); got != "c d" {
		t.Errorf("notes %q", got)
	}
	if err := l.Close(); err != nil || fs.Handles != 0 {
		t.Errorf("%v, and %d files are open after Close", err, fs.Handles)
	}
}

// A copy has no notes: the stores in a backup are from another moment, and the notes would be wrong
// about them.
func TestACopyHasNoNotes(t *testing.T) {
	from, to := memfs.New(), memfs.New()
	l := openIn(t, from)
	if _, err := l.Append([]Frame{{Shard: 1, Type: 1}}); err != nil {
		t.Fatal(err)
	}
	begin(t, l, "x")
	if _, err := Copy(from, to); err != nil {
		t.Fatal(err)
	}
	if got := notesIn(t, to); got != "" {
		t.Errorf("the copy has the notes %q", got)
	}
}

// Reading stops at the first note that is not whole. The file is cut at each length, and each byte
// is changed.
func TestDamagedNotes(t *testing.T) {
	whole := memfs.New()
	begin(t, openIn(t, whole), "one two")
	for i := range whole.Files[notesFile].Data {
		for _, how := range []string{"cut", "changed"} {
			fs := whole.Crash()
			if how == "cut" {
				if err := fs.Truncate(notesFile, int64(i)); err != nil {
					t.Fatal(err)
				}
			} else {
				fs.Files[notesFile].Data[i] ^= 1
			}
			want := ""
			if i >= 8 {
				want = "one"
			}
			if got := notesIn(t, fs); got != want {
				t.Errorf("%s at %d: notes %q", how, i, got)
			}
		}
	}
}

// No note behind a partly written one would be read. So after a failed write there are no notes
// until BeginNotes.
func TestAFailedNote(t *testing.T) {
	fs := memfs.New()
	l := openIn(t, fs)
	begin(t, l, "a")
	fs.Space = 3
	for range 2 {
		if err := l.Note([]byte("longer")); err == nil {
			t.Error("a note is written to a full disk")
		}
	}
	fs.Space = memfs.Plenty
	if err := l.Note([]byte("lost")); err == nil {
		t.Error("a note is written behind one that is not whole")
	}
	begin(t, l, "a b")
	if err := l.Note([]byte("c")); err != nil {
		t.Fatal(err)
	}
	if got := notesIn(t, fs.Crash()); got != "a b c" {
		t.Errorf("notes %q", got)
	}
}

func FuzzNotes(f *testing.F) {
	f.Add(appendNote(appendNote(nil, []byte("a")), nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := memfs.New()
		fs.Files[notesFile] = &memfs.File{Data: b}
		l := openIn(t, fs)
		all, err := l.Notes()
		if err != nil {
			t.Fatal(err)
		}
		want := notesIn(t, fs)
		if err := l.BeginNotes(all); err != nil {
			t.Fatal(err)
		}
		if got := notesIn(t, fs); got != want {
			t.Errorf("%q, and again %q", want, got)
		}
	})
}
