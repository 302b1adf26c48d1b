package write

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/recentseries"
)

var update = flag.Bool("update", false, "write testdata/state")

func golden() *State {
	s := &State{Requests: 300, Newest: 1_795_228_020_000}
	s.Recent.Advance(s.Newest)
	s.Recent.Note(2 << 32)
	s.Recent.Advance(s.Newest + recentseries.Epoch)
	s.Recent.Note(1 << 32)
	s.Recent.Keep()
	return s
}

// Every later program reads the file in testdata.
func TestGoldenState(t *testing.T) {
	const file = "testdata/state"
	saved := golden().Append(nil)
	if *update {
		if err := os.WriteFile(file, []byte(hex.Dump(saved)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || hex.Dump(saved) != string(want) {
		t.Errorf("%v: saved as\n%swant\n%s", err, hex.Dump(saved), want)
	}
	s, err := ParseState(saved)
	if err != nil || s.Requests != 300 || s.Newest != 1_795_228_020_000 || !s.Recent.Has(2<<32) || s.Recent.Len() != 2 {
		t.Error(err)
	}
	for n := range len(saved) - 16 { // without hashes it is malformed, too
		if _, err := ParseState(saved[:n]); err == nil {
			t.Errorf("%d of %d bytes are read", n, len(saved))
		}
	}
	newer := slices.Concat([]byte{2}, saved[1:])
	if _, err := ParseState(newer); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Error(err)
	}
}

// FuzzParseState: each state has one encoding.
func FuzzParseState(f *testing.F) {
	f.Add(golden().Append(nil))
	f.Add(new(State).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ParseState(b); err == nil && !bytes.Equal(s.Append(nil), b) {
			t.Fatalf("%x is saved as %x", b, s.Append(nil))
		}
	})
}
