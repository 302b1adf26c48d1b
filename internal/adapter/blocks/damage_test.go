package blocks

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

// tsdb says "read TOC: read TOC: invalid checksum" of a block. An operator needs to know which file that is, and what
// to do.
func TestDamageNamesTheFile(t *testing.T) {
	flip := func(at int) func(text []byte) []byte {
		return func(text []byte) []byte {
			text[(at+len(text))%len(text)] ^= 0xff
			return text
		}
	}
	for _, c := range []struct {
		name, file string
		harm       func(text []byte) []byte
	}{
		{"the end of the index", "index", flip(-1)},
		{"the beginning of the index", "index", flip(0)},
		{"half an index", "index", func(text []byte) []byte { return text[:len(text)/2] }},
		{"an empty index", "index", func([]byte) []byte { return nil }},
		{"the beginning of a file with chunks", "chunks/000001", flip(0)},
		{"a chunk", "chunks/000001", flip(40)},
		{"half a file with chunks", "chunks/000001", func(text []byte) []byte { return text[:len(text)/2] }},
		{"an empty file with chunks", "chunks/000001", func([]byte) []byte { return nil }},
		{"tombstones", "tombstones", flip(-1)},
	} {
		b := source(t, t.TempDir(), labels.FromStrings("__name__", "m", "a", "1"), labels.FromStrings("__name__", "n"))
		path := filepath.Join(b.Dir, filepath.FromSlash(c.file))
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, c.harm(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Sample(t.Context(), 10, rand.New(rand.NewPCG(1, 2)), labels.EmptyLabels())
		if err == nil {
			err = errors.New("the server read all of it")
		}
		if got := b.Damage(t.Context(), err).Error(); !strings.HasPrefix(got, "its file "+c.file+" is damaged: ") ||
			!strings.Contains(got, "such as that of a backup") {
			t.Errorf("%s: %v, and then %s", c.name, err, got)
		}
	}
}

// Any bit of an index may be wrong. None makes the command panic, or name another file.
func TestDamageOfAnyPlaceOfAnIndex(t *testing.T) {
	b := source(t, t.TempDir(), labels.FromStrings("__name__", "m", "a", "1"), labels.FromStrings("__name__", "n"))
	path := filepath.Join(b.Dir, "index")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for at := range whole {
		text := append([]byte{}, whole...)
		text[at] ^= 0xff
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		got := b.Damage(t.Context(), errors.New("refused")).Error()
		if strings.HasPrefix(got, "its file index is damaged: ") {
			named++
		} else if got != "refused" { // tsdb does not read this byte
			t.Fatalf("byte %d: %s", at, got)
		}
	}
	if named < len(whole)/2 {
		t.Errorf("of %d bytes, damage of only %d is found", len(whole), named)
	}
}

// An error that does not come from damage stays as it is.
func TestErrorsOfOtherKinds(t *testing.T) {
	b := source(t, t.TempDir(), labels.FromStrings("__name__", "m"))
	missing := source(t, t.TempDir(), labels.FromStrings("__name__", "m"))
	if err := os.Remove(filepath.Join(missing.Dir, "index")); err != nil {
		t.Fatal(err)
	}
	_, absent := missing.Sample(t.Context(), 1, rand.New(rand.NewPCG(1, 2)), labels.EmptyLabels())
	for _, c := range []struct {
		of  Block
		err error
	}{
		{b, nil},
		{b, errors.New("the server has no room")},
		{b, fmt.Errorf("write: %w", fs.ErrPermission)},
		{missing, absent},
	} {
		if got := c.of.Damage(t.Context(), c.err); got != c.err {
			t.Errorf("%v becomes %v", c.err, got)
		}
	}
	if absent == nil || !strings.Contains(absent.Error(), filepath.Join(missing.Dir, "index")) {
		t.Errorf("the error of a block without an index names no file: %v", absent)
	}
}
