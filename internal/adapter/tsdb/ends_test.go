package tsdb

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/ends and testdata/headnote")

func goldenEnds() ends {
	return ends{boot: "e1b0a29c", requests: 300,
		wal: logEnd{checkpoint: 4, segment: 7, size: 70_000, tail: 0x01020304},
		wbl: logEnd{checkpoint: -1, segment: -1}}
}

// All later versions must read the file in testdata.
func TestGoldenEnds(t *testing.T) {
	checkGolden(t, "testdata/ends", goldenEnds())
}

// coded is a value with an encoding of its own.
type coded[T any] interface {
	*T
	append(b []byte) []byte
	parse(b []byte) error
}

// checkGolden checks that a value is saved as in a file of testdata, and that no shorter or changed file is read.
func checkGolden[T comparable, P coded[T]](t *testing.T, file string, want T) {
	t.Helper()
	saved := P(&want).append(nil)
	if *update {
		if err := os.WriteFile(file, []byte(hex.Dump(saved)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || hex.Dump(saved) != string(text) {
		t.Errorf("error %v; saved as\n%swant\n%s", err, hex.Dump(saved), text)
	}
	var got T
	if err := P(&got).parse(saved); err != nil || got != want {
		t.Errorf("read %+v, want %+v; error %v", got, want, err)
	}
	for i := range saved {
		if err := P(&got).parse(saved[:i]); err == nil {
			t.Errorf("parse accepts the first %d of %d bytes", i, len(saved))
		}
		changed := slices.Clone(saved)
		changed[i] ^= 1
		if err := P(&got).parse(changed); err == nil {
			t.Errorf("parse accepts a file whose byte %d was changed", i)
		}
	}
}

// FuzzEnds: each value of ends has exactly one valid encoding.
func FuzzEnds(f *testing.F) {
	golden := goldenEnds()
	f.Add(golden.append(nil))
	f.Add((&ends{}).append(nil))
	f.Add([]byte(endsMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e ends
		if err := e.parse(b); err == nil && !bytes.Equal(e.append(nil), b) {
			t.Fatalf("%x is saved as %x", b, e.append(nil))
		}
	})
}

// logWith makes a log with `files`, which has words such as "segment:content" and "checkpoint.N".
func logWith(t *testing.T, files string) (log string) {
	t.Helper()
	log = t.TempDir()
	for _, word := range strings.Fields(files) {
		name, content, isSegment := strings.Cut(word, ":")
		if !isSegment {
			if err := os.Mkdir(filepath.Join(log, name), 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(filepath.Join(log, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

// textOf is the reverse of logWith.
func textOf(t *testing.T, log string) string {
	t.Helper()
	entries, err := os.ReadDir(log)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, e := range entries {
		word := e.Name()
		if !e.IsDir() {
			b, err := os.ReadFile(filepath.Join(log, word))
			if err != nil {
				t.Fatal(err)
			}
			word = fmt.Sprintf("%s:%s", word, b)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestCutALog(t *testing.T) {
	for _, c := range []struct {
		name, synced, later string
		want                string // "no" if the end does not fit the log any more
	}{
		{"nothing was written since", "00000000:ab", "00000000:ab", "00000000:ab"},
		{"the last segment grew", "00000000:ab", "00000000:abcd", "00000000:ab"},
		{"other segments came", "00000000:ab", "00000000:ab 00000001:c 00000002:", "00000000:ab"},
		{"the log does not end in an empty segment", "00000000:ab 00000001:", "00000000:ab 00000001:c", "00000000:ab"},
		{"the log was empty", "00000000:", "00000000:ab 00000001:c", "00000000:"},
		{"there was no log", "", "00000000:ab 00000001:c", "00000000:"},
		{"there is no log", "", "", ""},
		{"a checkpoint replaced older segments", "00000000:a 00000001:b 00000002:c",
			"checkpoint.00000001 00000002:cd 00000003:e", "00000002:c checkpoint.00000001"},
		{"an older checkpoint stays", "checkpoint.00000001 00000002:", "checkpoint.00000001 00000002:a 00000003:b",
			"00000002: checkpoint.00000001"},
		{"all segments were dropped", "00000000:ab", "00000003:c 00000004:d", "00000003:"},
		{"a checkpoint has records from behind the end", "00000000:a 00000001:b", "checkpoint.00000001 00000002:c", "no"},
		{"a repair shortened the segment", "00000000:abc", "00000000:ab", "no"},
		{"the segment was rewritten", "00000000:abc", "00000000:xyz 00000001:d", "no"},
		{"the segment is gone", "00000000:a 00000001:b", "00000000:a", "no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := endOf(logWith(t, c.synced))
			if err != nil {
				t.Fatal(err)
			}
			log := logWith(t, c.later)
			fits, err := e.fits(log)
			if err != nil || fits != (c.want != "no") {
				t.Fatalf("the end fits: %v, want %v; error %v", fits, c.want != "no", err)
			}
			if !fits {
				return
			}
			synced := map[string]bool{}
			noted := func(path string) error { synced[filepath.Base(path)] = true; return nil }
			for range 2 { // the second cut, as after a crash, finds nothing to cut
				if err := e.cut(log, noted); err != nil {
					t.Fatal(err)
				}
				if got := textOf(t, log); got != c.want {
					t.Errorf("left: %s, want %s", got, c.want)
				}
			}
			if n, err := e.behind(log); n != 0 || err != nil {
				t.Errorf("%d bytes are behind the end after a cut, want 0; error %v", n, err)
			}
			if c.later != c.want && !synced[filepath.Base(log)] {
				t.Errorf("the directory was not synced, only these files were: %v", slices.Sorted(maps.Keys(synced)))
			}
		})
	}
}

// tsdb pads the last page of a log with zeros when it closes the log. A cut ignores these zeros.
func TestPaddingIsNotBehindTheEnd(t *testing.T) {
	e, err := endOf(logWith(t, "00000000:abc"))
	if err != nil {
		t.Fatal(err)
	}
	for later, want := range map[string]int64{"abc\x00\x00\x00": 0, "abc\x00\x00d": 3} {
		if n, err := e.behind(logWith(t, "00000000:"+later)); n != want || err != nil {
			t.Errorf("%q: %d bytes are behind the end, want %d; error %v", later, n, want, err)
		}
	}
}
