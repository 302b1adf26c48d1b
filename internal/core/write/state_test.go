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

// Every later program must be able to read the file in testdata.
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
	for n := range len(saved) - 16 { // a state without hashes is malformed, too
		if _, err := ParseState(saved[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are read, want an error", n, len(saved))
		}
	}
	newer := slices.Concat([]byte{2}, saved[1:])
	if _, err := ParseState(newer); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Error(err)
	}
}

// FuzzParseState checks that each state has one encoding.
func FuzzParseState(f *testing.F) {
	f.Add(golden().Append(nil))
	f.Add(new(State).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ParseState(b); err == nil && !bytes.Equal(s.Append(nil), b) {
			t.Fatalf("%x is saved as %x", b, s.Append(nil))
		}
	})
}

// FuzzRepeat checks that malformed changes change nothing, and that others leave a state that can be
// saved.
func FuzzRepeat(f *testing.F) {
	s := golden()
	s.Recent.Record()
	s.Newest++
	s.Recent.Note(2 << 32)
	s.Recent.Keep()
	whole := s.AppendRecorded(nil)
	f.Add(whole)
	f.Add(whole[:3])
	f.Add(append([]byte{1}, whole[2:]...))          // fewer requests
	f.Add(append([]byte{0xac, 2, 1}, whole[8:]...)) // the newest sample becomes older
	f.Fuzz(func(t *testing.T, b []byte) {
		s, before := golden(), golden().Append(nil)
		err := s.Repeat(b)
		saved := s.Append(nil)
		if err != nil && !bytes.Equal(saved, before) {
			t.Fatalf("after malformed changes, the state is %x, want %x", saved, before)
		}
		if got, err := ParseState(saved); err != nil || got.Newest < golden().Newest || got.Requests < golden().Requests {
			t.Fatalf("%x: %v", saved, err)
		}
	})
}

// One state records its changes, and another state repeats them. Then both states are equal.
func TestRepeat(t *testing.T) {
	s, other := golden(), golden()
	s.Recent.Record()
	s.Requests, s.Newest = s.Requests+2, s.Newest+5
	s.Recent.Note(7 << 32)
	s.Recent.Keep()
	if err := other.Repeat(s.AppendRecorded(nil)); err != nil || !bytes.Equal(s.Append(nil), other.Append(nil)) {
		t.Errorf("%x, %v; want %x", other.Append(nil), err, s.Append(nil))
	}
	for _, earlier := range []*State{
		{Requests: s.Requests, Newest: s.Newest - 1},
		{Requests: s.Requests - 1, Newest: s.Newest},
	} {
		if err := other.Repeat(earlier.AppendRecorded(nil)); err == nil {
			t.Errorf("changes that go back to %d requests, newest time %d, are accepted, want an error",
				earlier.Requests, earlier.Newest)
		}
	}
}
