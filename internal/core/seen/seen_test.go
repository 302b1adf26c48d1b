package seen

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/sender"
)

var update = flag.Bool("update", false, "write testdata/golden")

// base is when the log of the tests begins, in Unix milliseconds.
const base = 1_795_228_020_000

// naive is a plain list with all that Seen must know. It forgets nothing.
type naive struct {
	now int64
	all []struct {
		tenant string
		t      int64
		hash   Hash
	}
}

func (n *naive) has(tenant string, hash Hash) bool {
	for _, x := range n.all {
		if x.tenant == tenant && x.hash == hash && x.t > n.now-Keep {
			return true
		}
	}
	return false
}

func (n *naive) add(tenant string, hash Hash) {
	if n.has(tenant, hash) {
		return
	}
	n.all = append(n.all, struct {
		tenant string
		t      int64
		hash   Hash
	}{tenant, n.now, hash})
}

// Two members apply the same entries. One of them also saves and restarts, is filled tenant by
// tenant, and answers questions in between. Both agree with a plain list, and save the same bytes.
func TestMembersAgree(t *testing.T) {
	var repeats int
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var list naive
		var steady, restless Seen
		for step := range 300 {
			now := base + int64(step)*4000 - int64(r.IntN(2))*int64(r.IntN(60_000)) + int64(r.IntN(2000))
			list.now = max(list.now, now)
			steady.Advance(now)
			restless.Advance(now)
			tenant, hash := fmt.Sprint("t", r.IntN(3)), Hash(r.IntN(200))
			want := list.has(tenant, hash)
			if want {
				repeats++
			}
			if a, b := steady.Has(tenant, hash), restless.Has(tenant, hash); a != want || b != want {
				t.Fatalf("seed %d, step %d: %v and %v, want %v", seed, step, a, b, want)
			}
			if r.IntN(3) > 0 {
				list.add(tenant, hash)
				steady.Add(tenant, hash)
				restless.Add(tenant, hash)
			}
			saved := restless.Append(nil)
			switch r.IntN(6) {
			case 0:
				restless = Seen{}
				if err := restless.Parse(saved); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			case 1: // another group has the tenant, and gives it back
				section := restless.AppendTenant(nil, tenant)
				restless.Remove(tenant)
				if restless.Has(tenant, hash) {
					t.Fatalf("seed %d, step %d: a request is known after its tenant was removed", seed, step)
				}
				if err := restless.ParseTenant(tenant, section); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			case 2:
				if !bytes.Equal(saved, steady.Append(nil)) {
					t.Fatalf("seed %d, step %d: the members have\n%x and\n%x", seed, step, saved, steady.Append(nil))
				}
			}
		}
	}
	if repeats < 1000 {
		t.Errorf("only %d requests were repeats", repeats)
	}
}

// A request is forgotten after ten minutes of the log's time, to the millisecond.
func TestForgotten(t *testing.T) {
	var s Seen
	s.Advance(base)
	s.Add("a", 1)
	s.Add("b", 1)
	s.Advance(base + Keep - 1)
	s.Add("a", 1) // a repeat, which does not extend the time
	if !s.Has("a", 1) || !s.Has("b", 1) || s.Has("a", 2) || s.Has("c", 1) {
		t.Error("not known for ten minutes, or mixed up")
	}
	s.Advance(base) // another leader's clock is behind
	s.Advance(base + Keep)
	if s.Has("a", 1) || s.Has("b", 1) {
		t.Error("known for longer than ten minutes")
	}
	s.Advance(base + Keep + sweepEvery)
	if len(s.tenants) != 0 || s.Early != 0 {
		t.Errorf("%d tenants take memory", len(s.tenants))
	}
}

// A tenant comes from another group, whose leader's clock is ahead or behind.
func TestATenantOfAnotherTime(t *testing.T) {
	var from, to Seen
	from.Advance(base)
	from.Add("a", 1)
	from.Advance(base + Keep/2)
	from.Add("a", 2)
	section := from.AppendTenant(nil, "a")

	to.Advance(base + Keep)
	if err := to.ParseTenant("a", section); err != nil || to.Has("a", 1) || !to.Has("a", 2) {
		t.Errorf("%v, %v, %v", err, to.Has("a", 1), to.Has("a", 2))
	}
	to = Seen{}
	to.Advance(base + 1)
	if err := to.ParseTenant("a", section); err != nil || !to.Has("a", 1) || !to.Has("a", 2) {
		t.Errorf("%v, %v, %v", err, to.Has("a", 1), to.Has("a", 2))
	}
	to.Add("a", 3)
	var again Seen
	if err := again.Parse(to.Append(nil)); err != nil || !again.Has("a", 2) {
		t.Error(err)
	}
	to.Advance(base + Keep + 1)
	if to.Has("a", 2) {
		t.Error("known for longer than ten minutes here")
	}
}

// A tenant has at most MaxRequests. Its next requests take the place of its oldest.
func TestBound(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var s Seen
	s.Advance(base)
	s.Add("other", 0)
	for i := range Hash(3 * MaxRequests) {
		s.Advance(base + int64(i)/1000)
		s.Add("a", i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if mib := float64(after.HeapAlloc-before.HeapAlloc) / (1 << 20); mib > 5 {
		t.Errorf("a tenant takes %.1f MiB", mib)
	}
	if s.Has("a", 2*MaxRequests-1) || !s.Has("a", 2*MaxRequests) || !s.Has("other", 0) || s.Early != 2*MaxRequests {
		t.Errorf("requests other than the oldest are forgotten; %d were", s.Early)
	}
	saved := s.Append(nil)
	var again Seen
	if err := again.Parse(saved); err != nil || !again.Has("a", 3*MaxRequests-1) {
		t.Error(err)
	}
	if mib := float64(len(saved)) / (1 << 20); mib > 0.7 {
		t.Errorf("the saved form has %.1f MiB", mib)
	}
	section := s.AppendTenant(nil, "a")
	err := again.ParseTenant("b", append(section, 0, 1, 1, 1, 1, 1, 1, 1, 1))
	if err == nil || again.Has("b", 2*MaxRequests) {
		t.Error("a section with more than the bound is read")
	}
}

// The hash is part of the log's format, so it never changes. Bytes that move from the sender to the
// body make another hash.
func TestHash(t *testing.T) {
	four := sender.Sender{Addr: netip.MustParseAddrPort("10.0.0.1:0"), Agent: "OTel/1"}
	six := sender.Sender{Addr: netip.MustParseAddrPort("[2001:db8::1]:0")}
	hashes := map[Hash]string{}
	for _, c := range []struct {
		from sender.Sender
		body string
		want Hash
	}{
		{four, "body", 0xac09eb8b5459d7bf},
		{six, "body", 0},
		{sender.Sender{}, "", 0},
		{sender.Sender{Agent: "a"}, "b", 0},
		{sender.Sender{Agent: "ab"}, "", 0},
		{sender.Sender{}, "ab", 0},
	} {
		h := Of(c.from, []byte(c.body))
		if c.want != 0 && h != c.want {
			t.Errorf("%v, %q: %#x, want %#x", c.from, c.body, h, c.want)
		}
		if other, ok := hashes[h]; ok {
			t.Errorf("%v, %q has the hash of %s", c.from, c.body, other)
		}
		hashes[h] = fmt.Sprint(c.from, c.body)
	}
	plain := Hash(xxhash.Sum64String("\x04\x0a\x00\x00\x01\x06\x00\x00\x00OTel/1body"))
	if Of(four, []byte("body")) != plain {
		t.Errorf("the hash computed from its layout is %#x", plain)
	}
	if h := Of(four, nil); h.Part(0) != h || h.Part(1) == h {
		t.Errorf("parts %#x, %#x", h.Part(0), h.Part(1))
	}
	four.Addr = netip.AddrPortFrom(four.Addr.Addr(), 4711)
	if body := []byte("body"); Of(four, body) != 0xac09eb8b5459d7bf {
		t.Error("the port of a connection changes the hash")
	}
}

func golden() *Seen {
	var s Seen
	s.Advance(base)
	s.Add("default", 1)
	s.Add("default", 1<<63)
	s.Advance(base + 300)
	s.Add("default", 2)
	s.Add("a", 1)
	return &s
}

// Every later program reads the files in testdata/golden.
func TestGolden(t *testing.T) {
	const file = "testdata/golden"
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
	var s Seen
	if err := s.Parse(saved); err != nil || !s.Has("default", 1<<63) || !s.Has("a", 1) || s.Has("a", 2) {
		t.Error(err)
	}
}

func TestMalformed(t *testing.T) {
	whole := golden().Append(nil)
	for n := range whole {
		s := golden()
		if s.Parse(whole[:n]) == nil && n != 7 && n != 24 { // whole states: the time alone, or with tenant a
			t.Errorf("%d of %d bytes are read", n, len(whole))
		} else if !s.Has("default", 2) && n != 7 && n != 24 {
			t.Errorf("%d of %d bytes replaced the state, although they are malformed", n, len(whole))
		}
	}
	newer := append([]byte{2}, whole[1:]...)
	if err := new(Seen).Parse(newer); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Error(err)
	}
	twice := golden()
	section := twice.AppendTenant(nil, "a")
	hash := section[len(section)-8:]
	if err := twice.ParseTenant("a", slices.Concat(section, []byte{0}, hash)); err == nil || !twice.Has("a", 1) {
		t.Errorf("a request twice: %v", err)
	}
}

// FuzzParse checks that each state has one encoding.
func FuzzParse(f *testing.F) {
	whole := golden().Append(nil)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte{version, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Seen
		if s.Parse(b) != nil {
			return
		}
		if got := s.Append(nil); !bytes.Equal(got, b) {
			t.Fatalf("%x is saved as %x", b, got)
		}
		for name := range s.tenants {
			var moved Seen
			moved.Advance(s.now)
			section := s.AppendTenant(nil, name)
			if err := moved.ParseTenant(name, section); err != nil || !bytes.Equal(moved.AppendTenant(nil, name), section) {
				t.Fatalf("tenant %q of %x: %v", name, b, err)
			}
		}
	})
}

// Bound: 0 allocs/op and 300 ns, for a tenant with MaxRequests requests.
func BenchmarkAdd(b *testing.B) {
	var s Seen
	for i := range Hash(2 * MaxRequests) {
		s.Add("default", i)
	}
	b.ReportAllocs()
	for i := Hash(2 * MaxRequests); b.Loop(); i++ {
		s.Advance(base)
		s.Add("default", i)
	}
}

// Bound: 0 allocs/op, and the speed of xxHash, 10 GB/s.
func BenchmarkOf(b *testing.B) {
	from, body := sender.Sender{Addr: netip.MustParseAddrPort("10.0.0.1:0"), Agent: "OTel/1"}, make([]byte, 50_000)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		Of(from, body)
	}
}
