package notes

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

func opened(fs *memfs.FS) *File {
	f := In(fs, OfTiles)
	return &f
}

// notesIn returns the notes that the next process finds.
func notesIn(t testing.TB, fs *memfs.FS) string {
	t.Helper()
	all, err := opened(fs).Notes()
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.Join(all, []byte(" ")))
}

// begin replaces all notes by the given words.
func begin(t testing.TB, l *File, words string) {
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
	l := opened(fs)
	if got := notesIn(t, fs); got != "" {
		t.Errorf("got the notes %q in a new directory, want none", got)
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
	if l.Close(); fs.Handles != 0 {
		t.Errorf("%d files are open after Close", fs.Handles)
	}
}

// Reading stops at the first note that is not whole. The file is cut at each length, and each byte
// is changed.
func TestDamagedNotes(t *testing.T) {
	whole := memfs.New()
	begin(t, opened(whole), "one two")
	for i := range whole.Files[OfTiles].Data {
		for _, how := range []string{"cut", "changed"} {
			fs := whole.Crash()
			if how == "cut" {
				if err := fs.Truncate(OfTiles, int64(i)); err != nil {
					t.Fatal(err)
				}
			} else {
				fs.Files[OfTiles].Data[i] ^= 1
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
// until BeginNotes, and only the first error is returned.
func TestAFailedNote(t *testing.T) {
	fs := memfs.New()
	l := opened(fs)
	begin(t, l, "a")
	fs.Space = 3
	if err := l.Note([]byte("longer")); err == nil {
		t.Error("a note on a full disk: got no error, want one")
	}
	fs.Space = memfs.Plenty
	if err := l.Note([]byte("lost")); err != nil {
		t.Errorf("a second error: %v", err)
	}
	if got := notesIn(t, fs.Crash()); got != "a" {
		t.Errorf("notes %q", got)
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
		fs.Files[OfTiles] = &memfs.File{Data: b}
		l := opened(fs)
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
