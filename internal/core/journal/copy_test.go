package journal

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// A start from the copy equals a start from the original.
func TestCopy(t *testing.T) {
	fs, want := sample(t)
	to := memfs.New()
	n, err := Copy(fs, to)
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	for name, f := range to.Crash().Files {
		size += int64(len(f.Data))
		if f.Synced != len(f.Data) || to.Durable[name] == nil {
			t.Errorf("%s would not survive a power loss", name)
		}
	}
	if n != size {
		t.Errorf("Copy reports %d bytes, but the copy has %d", n, size)
	}
	if names, _ := to.List(); slices.Contains(names, checkpointFormat.Name(6)) ||
		slices.Contains(names, segmentFormat.Name(7)) {
		t.Errorf("the copy has unneeded files: %v", names)
	}
	l, report := mustOpen(t, to, 250)
	if len(report.Damage) > 0 || report.Last != 27 {
		t.Errorf("report %+v", report)
	}
	if got := recovered(t, l); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("recovered %v, want %v", got, want)
	}
}

// The last segment grows while it is copied. The copy has every earlier frame and no gap.
func TestCopyWhileAppending(t *testing.T) {
	fs := memfs.New()
	l, _ := mustOpen(t, fs, 0)
	id := uint64(1)
	more := func() {
		if _, err := l.Append([]Frame{entry(id), entry(id + 1)}); err != nil {
			t.Fatal(err)
		}
		id += 2
	}
	more()
	for range 50 {
		before := id
		from := interrupted{fs, more}
		to := memfs.New()
		if _, err := Copy(from, to); err != nil {
			t.Fatal(err)
		}
		_, report := mustOpen(t, to, 0)
		if report.Last < Position(before-1) || report.LostFrames > 0 {
			t.Fatalf("the copy lacks some of the %d frames that were appended before Copy was called; report %+v",
				before-1, report)
		}
	}
}

// interrupted calls a function before each file is opened.
type interrupted struct {
	segment.FS
	do func()
}

func (i interrupted) Open(name string) (segment.Reader, int64, error) {
	i.do()
	return i.FS.Open(name)
}

// Checkpoints remove files while Copy runs: after it has listed the directory, and before it opens the
// files.
func TestCopyBeginsAgain(t *testing.T) {
	fs, s := sample(t)
	l, _ := mustOpen(t, fs, 250)
	recovered(t, l)
	left := 2 // how many more checkpoints end during the copy
	from := interrupted{fs, func() {
		for ; left > 0; left-- {
			if _, err := l.Append([]Frame{entry(uint64(100 + left))}); err != nil {
				t.Fatal(err)
			}
			s.fold(t, entry(uint64(100+left)))
			checkpointAll(t, l, s)
		}
	}}
	to := memfs.New()
	if _, err := Copy(from, to); err != nil {
		t.Fatal(err)
	}
	copied, report := mustOpen(t, to, 250)
	if got := recovered(t, copied); !maps.EqualFunc(got, s, slices.Equal) || report.LostFrames > 0 {
		t.Errorf("recovered %v, want %v; report %+v", got, s, report)
	}
}

func TestCopyFails(t *testing.T) {
	fs, _ := sample(t)
	to := memfs.New()
	to.Space = 100
	if _, err := Copy(fs, to); !errors.Is(err, memfs.ErrNoSpace) ||
		!strings.Contains(err.Error(), checkpointFormat.Name(15)) {
		t.Errorf("copy to a full disk: error %v, want one with the file and the cause", err)
	}
}
