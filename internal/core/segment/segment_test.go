package segment_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

const testMark = 0x9d3fa8c1

// A frame has these two forms.
var (
	plain = segment.Format{
		Noun: "log", Magic: "FRSHPLAI", Suffix: ".plain", MaxPayload: 1 << 10, Accept: func(tag uint32) bool {
			return tag < 1000
		},
	}
	stamped = segment.Format{Noun: "log", Magic: "FRSHSTAM", Suffix: ".stamped", MaxPayload: 1 << 10, Stamped: true}
)

// The bytes on disk never change: docs/format/segment.md draws them.
func TestLayout(t *testing.T) {
	frame := segment.Frame{Pos: 7, Tag: 517, Stamp: 9, Payload: []byte("abc")}
	for want, got := range map[string][]byte{
		"46525348504c4149 01000000 c1a83f9d 0700000000000000 81c65dc5": segment.AppendHeader(nil, plain.Magic,
			testMark, 7),
		"c1a83f9d 64d92b93 03000000 05020000 0700000000000000 616263": plain.AppendFrame(nil, testMark,
			&frame),
		"c1a83f9d b0814857 03000000 05020000 0700000000000000 0900000000000000 616263": stamped.AppendFrame(nil, testMark,
			&frame),
	} {
		if got := fmt.Sprintf("%x", got); got != strings.ReplaceAll(want, " ", "") {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// A log takes only files that it may have written itself, and ignores all others in the directory.
func TestFiles(t *testing.T) {
	names := []string{
		plain.Name(300), plain.Name(1), plain.Name(20), plain.Name(0),
		"1.plain",                        // too few digits
		"00000000000000000001.stamped",   // another log's
		"00000000000000000001.plain.tmp", // not done
		"0000000000000000000x.plain", "-0000000000000000001.plain", "99999999999999999999.plain",
	}
	var got []string
	for _, f := range segment.After(plain.Files(names), 0) {
		got = append(got, fmt.Sprintf("%s from %d below %d", f.Name, f.First, f.Limit))
	}
	want := []string{
		"00000000000000000001.plain from 1 below 20",
		"00000000000000000020.plain from 20 below 300",
		"00000000000000000300.plain from 300 below 18446744073709551615",
	}
	if !slices.Equal(got, want) {
		t.Errorf("files\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if all := plain.Files(names); len(all) != 4 || len(segment.After(all, 20)) != 1 || len(segment.After(all, 300)) != 0 ||
		len(plain.Files(nil)) != 0 {
		t.Errorf("all files: %v", all)
	}
}

// appendAll writes frames with these payloads in one Write.
func appendAll(a *segment.Appender, payloads ...string) (began bool, err error) {
	a.Begin()
	for i, p := range payloads {
		a.Add(&segment.Frame{Tag: uint32(i), Stamp: 5, Payload: []byte(p)})
	}
	return a.Write()
}

func mustAppend(t *testing.T, a *segment.Appender, payloads ...string) {
	t.Helper()
	if _, err := appendAll(a, payloads...); err != nil {
		t.Fatal(err)
	}
}

// contents returns the payloads in all segments of a directory, as a process reads them when it
// starts.
func contents(t *testing.T, fs *memfs.FS, format *segment.Format) (payloads []string) {
	t.Helper()
	names, err := fs.List()
	if err != nil {
		t.Fatal(err)
	}
	last := segment.Position(0)
	for _, file := range format.Files(names) {
		s, err := format.Open(fs, file.First)
		if err != nil {
			t.Fatal(err)
		}
		for f, ok := s.Next(s.Size, file.Limit); ok; f, ok = s.Next(s.Size, file.Limit) {
			if last++; f.Pos != last {
				t.Errorf("position %d, want %d", f.Pos, last)
			}
			payloads = append(payloads, string(f.Payload))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return payloads
}

// A failed write is undone in one of two ways. Usually its bytes are cut off, and the segment stays in
// use. If that fails, they stay, and the name of the next segment tells where the valid part of this one
// ends. Then even a whole frame of the failed write does not count.
func TestFailedWrite(t *testing.T) {
	for _, format := range []*segment.Format{&plain, &stamped} {
		for _, truncateFails := range []bool{false, true} {
			fs := memfs.New()
			a := &segment.Appender{FS: fs, Format: format, Mark: testMark, MaxBytes: 1 << 10}
			mustAppend(t, a, "one", "two")
			fs.Space = format.HeadBytes() + 10
			if _, err := appendAll(a, "lost", "lost, too"); !errors.Is(err, memfs.ErrNoSpace) {
				t.Fatal(err)
			}
			fs.Space = memfs.Plenty
			if truncateFails {
				fs.Fail = func(op, _ string) error {
					if op == "truncate" {
						return memfs.ErrInjected
					}
					return nil
				}
			}
			if cut := a.CutBack(); cut == truncateFails {
				t.Errorf("CutBack returns %v with truncateFails=%v, want the opposite", cut, truncateFails)
			} else if !cut {
				if err := a.Seal().Close(); err != nil {
					t.Error(err)
				}
			}
			if began, err := appendAll(a, "three"); err != nil || began != truncateFails {
				t.Errorf("the next write began a segment: %v, error %v, want %v and no error",
					began, err, truncateFails)
			}
			if got := contents(t, fs, format); !slices.Equal(got, []string{"one", "two", "three"}) || a.Last != 3 {
				t.Errorf("with truncateFails=%v, the frames are %q, up to position %d, want one, two, three, up to "+
					"position 3",
					truncateFails, got, a.Last)
			}
		}
	}
}

// If the first write of a segment fails, nothing of it stays, and the next write uses the same
// position.
func TestFailedFirstWrite(t *testing.T) {
	fs := memfs.New()
	a := &segment.Appender{FS: fs, Format: &plain, Mark: testMark, MaxBytes: 1 << 10}
	for _, op := range []string{"create", "write"} {
		fs.Fail = func(o, _ string) error {
			if o == op {
				return memfs.ErrInjected
			}
			return nil
		}
		if _, err := appendAll(a, "lost"); !errors.Is(err, memfs.ErrInjected) ||
			!strings.Contains(err.Error(), op+" "+plain.Name(1)) {
			t.Errorf("a write with a failing %s: error %v, want one that names the file", op, err)
		}
		if !a.CutBack() || len(fs.Files) > 0 || fs.Handles > 0 {
			t.Errorf("%s: left are %v", op, fs.Files)
		}
	}
	fs.Fail = nil
	mustAppend(t, a, "one")
	if got := contents(t, fs, &plain); !slices.Equal(got, []string{"one"}) {
		t.Errorf("%q", got)
	}
}

// A scanner follows a growing file. It sees new frames up to the given size, and none whose position is
// at the limit or beyond.
func TestScannerFollowsAWriter(t *testing.T) {
	fs := memfs.New()
	a := &segment.Appender{FS: fs, Format: &stamped, Mark: testMark, MaxBytes: 1 << 10}
	mustAppend(t, a, "one")
	s, err := stamped.Open(fs, 1)
	if err != nil {
		t.Fatal(err)
	}
	size := a.Size()
	mustAppend(t, a, "two", "three")
	next := func(size int64, limit segment.Position) string {
		f, ok := s.Next(size, limit)
		return fmt.Sprint(string(f.Payload), " ", ok, " ", s.Last, " ", s.Err)
	}
	for i, got := range []string{
		next(size, segment.NoLimit), next(size, segment.NoLimit), next(a.Size()-1, 2), next(a.Size(), 3), next(a.Size(), 3),
		next(a.Size(), segment.NoLimit),
	} {
		want := []string{"one true 1 <nil>", " false 1 <nil>", " false 1 <nil>", "two true 2 <nil>", " false 2 <nil>",
			"three true 3 <nil>"}[i]
		if got != want {
			t.Errorf("step %d: %q, want %q", i, got, want)
		}
	}
	if s.End != a.Size() {
		t.Errorf("ends at %d of %d", s.End, a.Size())
	}
}

// Whole frames that the log cannot have written here count as damage: a frame of another log, one
// that is too long, one whose position skips more frames than fit, or one in a renamed file.
func TestForeignFrames(t *testing.T) {
	good := func(pos segment.Position) []byte {
		return plain.AppendFrame(nil, testMark, &segment.Frame{Pos: pos, Payload: []byte("good")})
	}
	for name, foreign := range map[string]segment.Frame{
		"a tag that the log does not write": {Pos: 6, Tag: 1000},
		"a payload beyond the limit":        {Pos: 6, Payload: make([]byte, plain.MaxPayload+1)},
		"a position without room":           {Pos: 7},
		"a position that was there":         {Pos: 5},
	} {
		data := slices.Concat(segment.AppendHeader(nil, plain.Magic, testMark, 5), good(5),
			plain.AppendFrame(nil, testMark, &foreign), good(6))
		fs := memfs.New()
		fs.Files[plain.Name(5)] = &memfs.File{Data: data}
		s, err := plain.Open(fs, 5)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for f, ok := s.Next(s.Size, segment.NoLimit); ok; f, ok = s.Next(s.Size, segment.NoLimit) {
			if n++; string(f.Payload) != "good" {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if n != 2 || s.Last != 6 || s.End != s.Size {
			t.Errorf("%s: %d frames up to position %d, which end at byte %d of %d, want 2 frames up to position 6 "+
				"and the end of the file",
				name, n, s.Last, s.End, s.Size)
		}
		fs.Files[plain.Name(8)] = fs.Files[plain.Name(5)]
		if s, err = plain.Open(fs, 8); err != nil || s.End != 0 ||
			!strings.HasSuffix(fmt.Sprint(s.Err), "it says position 5") {
			t.Errorf("Open of a renamed file: %v, %+v, want a damaged header", err, s)
		}
	}
}

// After damage that is longer than one read, the scanner finds a mark that spans two reads.
func TestMarkAcrossReads(t *testing.T) {
	const readAhead = 1 << 20
	for cut := range 5 {
		data := segment.AppendHeader(nil, plain.Magic, testMark, 1)
		data = append(data, make([]byte, readAhead-cut-len(data))...)
		data = plain.AppendFrame(data, testMark, &segment.Frame{Pos: 2, Payload: []byte("found")})
		fs := memfs.New()
		fs.Files[plain.Name(1)] = &memfs.File{Data: data}
		s, err := plain.Open(fs, 1)
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := s.Next(s.Size, segment.NoLimit); !ok || string(f.Payload) != "found" {
			t.Errorf("with %d bytes of the mark in the first read: frame found %v, want true", cut, ok)
		}
	}
}

// A write that ends early without an error counts as failed.
func TestShortWrite(t *testing.T) {
	fs := memfs.New()
	a := &segment.Appender{FS: fs, Format: &plain, Mark: testMark, MaxBytes: 1 << 10}
	mustAppend(t, a, "one")
	fs.Short = true
	if _, err := appendAll(a, "lost"); !errors.Is(err, io.ErrShortWrite) || !a.CutBack() {
		t.Errorf("a short write: %v", err)
	}
	mustAppend(t, a, "two")
	if got := contents(t, fs, &plain); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("%q", got)
	}
}

// A scanner stops at an unreadable sector, and says why. Reading can be tried again.
func TestUnreadable(t *testing.T) {
	fs := memfs.New()
	a := &segment.Appender{FS: fs, Format: &plain, Mark: testMark, MaxBytes: 1 << 10}
	mustAppend(t, a, "one")
	broken := func(op, _ string) error {
		if op == "read" {
			return memfs.ErrInjected
		}
		return nil
	}
	fs.Fail = broken
	s, err := plain.Open(fs, 1)
	if err != nil || !errors.Is(s.Err, memfs.ErrInjected) || !errors.Is(s.Err, segment.ErrHeader) {
		t.Fatalf("%v, %+v", err, s)
	}
	if _, ok := s.Next(s.Size, segment.NoLimit); ok || s.End != 0 || s.Err == nil {
		t.Errorf("with an unreadable header: scanner %+v, want an error and no frame", s)
	}
	fs.Fail = nil
	if s, err = plain.Open(fs, 1); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, a, "two") // beyond the bytes that the scanner has in memory
	fs.Fail = broken
	if f, ok := s.Next(a.Size(), segment.NoLimit); !ok || string(f.Payload) != "one" {
		t.Errorf("Next for a frame that was read before the fault: found %v, error %v, want found", ok, s.Err)
	}
	if _, ok := s.Next(a.Size(), segment.NoLimit); ok || !errors.Is(s.Err, memfs.ErrInjected) {
		t.Errorf("Next on a broken disk: found %v, error %v, want the injected error", ok, s.Err)
	}
	fs.Fail = nil
	if f, ok := s.Next(a.Size(), segment.NoLimit); !ok || string(f.Payload) != "two" || s.Err != nil {
		t.Errorf("Next on a repaired disk: found %v, error %v, want frame two", ok, s.Err)
	}
}

// Files are removed after Copy has listed them, so Copy starts over. No file of the first attempt may
// stay: beside the files of the second, it would make a log with a gap.
func TestCopyStartsOver(t *testing.T) {
	from, to := memfs.New(), memfs.New()
	for _, name := range []string{"1", "2", "3"} {
		from.Files[name] = &memfs.File{Data: []byte("file " + name)}
	}
	attempts := 0
	n, err := segment.Copy(from, to, func([]string) []segment.File {
		if attempts++; attempts == 1 {
			delete(from.Files, "2")
			return []segment.File{{Name: "1"}, {Name: "2"}, {Name: "3"}}
		}
		return []segment.File{{Name: "3"}}
	})
	if err != nil || n != 6 || attempts != 2 || len(to.Files) != 1 || string(to.Files["3"].Data) != "file 3" {
		t.Errorf("Copy wrote %d bytes in %d attempts, error %v, files %v, want only file 3 in 2 attempts",
			n, attempts, err, to.Files)
	}
	if len(to.Durable) != 1 || to.Files["3"].Synced != 6 {
		t.Error("the copy would not survive a power loss")
	}
}

// A rewritten file has the first bytes of the old one. They survive a power loss even if an earlier sync
// of the old file failed. If Rewrite fails, the old file stays.
func TestRewrite(t *testing.T) {
	fs := memfs.New()
	w, err := fs.Create("1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("kept, torn")); err != nil {
		t.Fatal(err)
	}
	fs.Fail = func(string, string) error { return memfs.ErrInjected }
	if err := w.Sync(); err == nil {
		t.Fatal("the sync did not fail")
	}
	fs.Fail = nil
	if err := segment.Rewrite(fs, "1", 11); !errors.Is(err, io.ErrUnexpectedEOF) || len(fs.Files) != 1 ||
		string(fs.Files["1"].Data) != "kept, torn" {
		t.Errorf("Rewrite of a file that is too short: error %v, files %v, want an error and the old file",
			err, fs.Files)
	}
	if err := segment.Rewrite(fs, "1", 4); err != nil {
		t.Fatal(err)
	}
	if f := fs.Durable["1"]; len(fs.Durable) != 1 || string(f.Data) != "kept" || f.Synced != 4 {
		t.Errorf("after Rewrite: %+v", f)
	}
}

// A full disk has no room for a copy. Then Rewrite writes the bytes over themselves. This saves the
// bytes even if an earlier sync failed. After an error other than a full disk, Rewrite leaves the bytes
// alone.
func TestRewriteOnAFullDisk(t *testing.T) {
	failing := func(bad string, err error) func(*memfs.FS) {
		return func(fs *memfs.FS) {
			fs.Fail = func(op, name string) error {
				if op == bad && name != "1" {
					return err
				}
				return nil
			}
		}
	}
	for _, c := range []struct {
		why   string
		sick  func(*memfs.FS)
		size  int64
		err   error
		after string
	}{
		{"no space", func(fs *memfs.FS) { fs.Space = 3 }, 4, nil, "kept"},
		{"no space for a name", failing("create", syscall.ENOSPC), 4, nil, "kept"},
		{"the quota is used up", failing("write", syscall.EDQUOT), 4, nil, "kept"},
		{"no space, and the file is whole", func(fs *memfs.FS) { fs.Space = 0 }, 10, nil, "kept, torn"},
		{"no space, and the file is too short", func(fs *memfs.FS) { fs.Space = 0 }, 11, io.ErrUnexpectedEOF, "kept, torn"},
		{"another error", failing("sync", syscall.EIO), 4, syscall.EIO, "kept, torn"},
	} {
		fs := memfs.New()
		w, err := fs.Create("1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("kept, torn")); err != nil {
			t.Fatal(err)
		}
		fs.Fail = func(string, string) error { return memfs.ErrInjected }
		if err := errors.Join(w.Sync(), w.Close()); err == nil {
			t.Fatal("the sync did not fail")
		}
		fs.Fail = nil
		c.sick(fs)
		if err := segment.Rewrite(fs, "1", c.size); !errors.Is(err, c.err) || len(fs.Files) != 1 || fs.Handles != 0 {
			t.Errorf("%s: %v; %v, %d open", c.why, err, fs.Files, fs.Handles)
		}
		if got := string(fs.Files["1"].Data); got != c.after {
			t.Errorf("%s: the file has %q", c.why, got)
		}
		if f := fs.Durable["1"]; c.err == nil && (f == nil || f.Synced != len(c.after)) {
			t.Errorf("%s: a power loss would leave %+v, want %q", c.why, f, c.after)
		}
	}
}

// The directory in memory behaves like a disk: a power loss loses overwritten bytes unless they were
// synced.
func TestAPowerLossBeforeASync(t *testing.T) {
	fs := memfs.New()
	fs.Files["1"] = &memfs.File{Data: []byte("before"), Synced: 6}
	fs.Durable["1"] = fs.Files["1"]
	fs.Space = 1
	w, err := fs.Overwrite("1")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write([]byte("WRITTEN!")); n != 7 || !errors.Is(err, memfs.ErrNoSpace) {
		t.Fatalf("%d bytes: %v", n, err)
	}
	found := map[string]bool{}
	for seed := range uint64(2000) {
		found[string(fs.Crash().PowerLoss(rand.New(rand.NewPCG(seed, 1))).Files["1"].Data)] = true
	}
	if len(found) != 1<<6*2 || !found["before"] || !found["WRITTEN"] {
		t.Errorf("%d outcomes of a power loss, want 128: %v", len(found), found)
	}
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := string(fs.PowerLoss(rand.New(rand.NewPCG(1, 1))).Files["1"].Data); got != "WRITTEN" {
		t.Errorf("%q survives a power loss after the sync, want WRITTEN", got)
	}
}
