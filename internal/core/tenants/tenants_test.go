package tenants

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/golden")

// One of two members is saved and restored at random times. Both admit the same tenants, and agree with
// a plain list, while the limit rises and falls and tenants are deleted.
func TestMembersAgree(t *testing.T) {
	admitted, refused, removed := 0, 0, 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		var list []string
		var steady, restless Set
		for step := range 200 {
			name, limit := fmt.Sprint("t", r.IntN(12)), r.IntN(9)
			if r.IntN(6) == 0 {
				if slices.Contains(list, name) {
					removed++
				}
				list = slices.DeleteFunc(list, func(x string) bool { return x == name })
				steady.Remove(name)
				restless.Remove(name)
			}
			name = fmt.Sprint("t", r.IntN(12))
			want := slices.Contains(list, name)
			if !want && (limit == 0 || len(list) < limit) {
				list, want = append(list, name), true
				admitted++
			}
			if !want {
				refused++
			}
			if a, b := steady.Admit(name, limit), restless.Admit(name, limit); a != want || b != want {
				t.Fatalf("seed %d, step %d: the two members admit the tenant: %v and %v, want %v",
					seed, step, a, b, want)
			}
			if saved := restless.Append(nil); r.IntN(4) == 0 {
				restless = Set{}
				if err := restless.Parse(saved); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
			if !bytes.Equal(steady.Append(nil), restless.Append(nil)) || steady.Len() != len(list) {
				t.Fatalf("seed %d, step %d: the members differ", seed, step)
			}
		}
	}
	if admitted < 1000 || refused < 1000 || removed < 1000 {
		t.Errorf("%d admitted, %d refused, %d removed, want at least 1000 of each", admitted, refused, removed)
	}
}

func golden() *Set {
	var s Set
	for _, name := range []string{"team-b", "default", "freshet", strings.Repeat("t", 255), "a"} {
		s.Admit(name, 0)
	}
	return &s
}

// The bytes equal testdata/golden, which every later program must read. -update writes a missing file.
func TestGolden(t *testing.T) {
	const file = "testdata/golden"
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) && *update {
		text = []byte(hex.EncodeToString(golden().Append(nil)) + "\n")
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	saved, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || !bytes.Equal(saved, golden().Append(nil)) {
		t.Fatalf("saved as %x, %v", golden().Append(nil), err)
	}
	var s Set
	if err := s.Parse(saved); err != nil || s.Len() != 5 || !s.Has("freshet") || s.Has("b") {
		t.Error(s.Len(), err)
	}
}

func TestMalformed(t *testing.T) {
	for _, c := range []struct {
		why, bytes string
	}{
		{"nothing", ""},
		{"no name", "\x01\x00"},
		{"a name that is cut", "\x01\x02a"},
		{"twice", "\x01\x01a\x01a"},
		{"out of order", "\x01\x01b\x01a"},
		{"a length that is not in its shortest form", "\x01\x81\x00a"},
		{"a long name", "\x01\x80\x02" + strings.Repeat("a", 256)},
	} {
		s := golden()
		if s.Parse([]byte(c.bytes)) == nil || !s.Has("default") {
			t.Errorf("%s: Parse succeeds, or an error changes the set", c.why)
		}
	}
	if err := new(Set).Parse([]byte{2}); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Error(err)
	}
}

// FuzzParse checks that each set has one encoding.
func FuzzParse(f *testing.F) {
	whole := golden().Append(nil)
	f.Add(whole)
	f.Add(whole[:9])
	f.Add([]byte{version})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Set
		if s.Parse(b) == nil && !bytes.Equal(s.Append(nil), b) {
			t.Fatalf("%x is saved as %x", b, s.Append(nil))
		}
	})
}

// Many goroutines enter more tenants than the limit allows. Only as many tenants get in as the limit
// allows. Tenants from before a restart keep their places, even if they exceed the limit.
func TestGate(t *testing.T) {
	g := NewGate(8)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			if name := fmt.Sprint(i); g.Enter(name) == nil {
				admitted.Add(1)
				g.Leave(name, true)
			}
		})
	}
	all.Wait()
	if admitted.Load() != 8 {
		t.Errorf("%d tenants were admitted, want 8", admitted.Load())
	}
	err := g.Enter("one-more")
	if err == nil || !strings.Contains(err.Error(), "store.max_tenants (8)") {
		t.Error(err)
	}
	g = NewGate(1)
	g.Restore("a", "b")
	if g.Enter("a") != nil || g.Enter("b") != nil || g.Enter("c") == nil {
		t.Error("a restored tenant is refused, or a third one is admitted, want neither")
	}
	if (*Gate)(nil).Enter("any") != nil {
		t.Error("a nil gate refuses a tenant")
	}
	(*Gate)(nil).Leave("any", true)
}

// A tenant has a place while its work is under way. Work that stores nothing gives the place back.
func TestWorkThatStoresNothingTakesNoPlace(t *testing.T) {
	g := NewGate(1)
	enter := func(name string, want bool) {
		t.Helper()
		if err := g.Enter(name); (err == nil) != want {
			t.Errorf("tenant %s: %v", name, err)
		}
	}
	enter("a", true)
	enter("a", true)
	enter("b", false)
	g.Leave("a", false)
	enter("b", false) // other work of tenant a is under way
	g.Leave("a", false)
	enter("b", true)
	g.Leave("b", true)
	g.Leave("b", false) // the tenant stays, whatever later work does
	enter("a", false)
	enter("b", true)
}
