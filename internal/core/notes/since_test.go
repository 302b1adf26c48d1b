package notes

import (
	"bytes"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// since(t, fs, boot) opens the notes of a log, and also returns the notes that the last process left.
func since(t *testing.T, fs *memfs.FS, boot string) (*Since, string) {
	t.Helper()
	f := In(fs, OfRequests)
	s, all, err := ReadSince(&f, boot)
	if err != nil {
		t.Fatal(err)
	}
	return s, string(bytes.Join(all, []byte(" ")))
}

// A finished checkpoint replaces the notes from before it began, and no others. A failed checkpoint
// replaces no notes. The next process of the same boot keeps the notes that it finds.
func TestNotesSinceACheckpoint(t *testing.T) {
	fs := memfs.New()
	s, _ := since(t, fs, "boot")
	note := func(words ...string) {
		t.Helper()
		for _, w := range words {
			if err := s.Note([]byte(w)); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(want string) {
		t.Helper()
		if _, got := since(t, fs.Crash(), "boot"); got != want {
			t.Errorf("notes %q, want %q", got, want)
		}
	}
	note("a", "b")
	s.Begin()
	note("c")
	s.Abort()
	note("d")
	check("a b c d")
	s.Begin()
	note("e", "f")
	check("a b c d e f")
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	note("g")
	check("e f g")
	fs = fs.Crash()
	s, _ = since(t, fs, "boot")
	note("h")
	check("e f g h")
	s.Begin()
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	check("")
	note("i")
	for _, boot := range []string{"another", ""} {
		if _, got := since(t, fs.Crash(), boot); got != "" {
			t.Errorf("boot %q: got the notes %q, want none", boot, got)
		}
	}
}

// Once a write has failed on a full disk, there are no notes until the next checkpoint. Only the first
// failed Note returns an error, since requests are noted many times a second.
func TestNotesThatFail(t *testing.T) {
	fs := memfs.New()
	s, _ := since(t, fs, "boot")
	fs.Space = 3
	if err := s.Note([]byte("longer")); err == nil {
		t.Error("a note on a full disk: got no error, want one")
	}
	fs.Space = memfs.Plenty
	s.Begin()
	if err := s.Note([]byte("a")); err != nil {
		t.Errorf("the note after a failed one: got the error %v, want nil", err)
	}
	if _, got := since(t, fs.Crash(), "boot"); got != "" {
		t.Errorf("notes %q after a partly written note, want none", got)
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := s.Note([]byte("b")); err != nil {
		t.Fatal(err)
	}
	if _, got := since(t, fs.Crash(), "boot"); got != "a b" {
		t.Errorf("notes %q", got)
	}
}

// The notes during a checkpoint that never ends take no more memory than a file of notes.
func TestNotesAreBounded(t *testing.T) {
	fs := memfs.New()
	s, _ := since(t, fs, "boot")
	s.Begin()
	failed := 0
	for range 70 {
		if err := s.Note(make([]byte, 1<<20)); err != nil {
			failed++
		}
	}
	size := len(fs.Files[OfRequests].Data)
	if size > maxBytes || size < maxBytes-2<<20 || failed != 1 || len(s.later) > 64 {
		t.Errorf("the file has %d bytes, want at most %d; %d notes in memory, want at most 64; %d errors, want 1",
			size, maxBytes, len(s.later), failed)
	}
}
