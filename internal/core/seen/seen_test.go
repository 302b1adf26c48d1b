package seen

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
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

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/sender"
)

var update = flag.Bool("update", false, "write testdata/golden")

// base is when the log of the tests begins, in Unix milliseconds.
const base = 1_795_228_020_000

// whole is the outcome of requests that are written as a whole.
var whole = new(outcome.Outcome)

// partly returns the outcome of a request of which a part was refused.
func partly(series string, samples, histograms int) *outcome.Outcome {
	o := &outcome.Outcome{Written: outcome.Counts{Samples: 7}}
	o.Refused[outcome.Mixed].Histograms = histograms
	o.Refused[outcome.TooManySeries].Samples = samples
	o.Tell(series, errors.New("the cause at first"))
	return o
}

// refusedOf returns the remembered refusals of a request as text: the first series, and the numbers
// of samples and histograms.
func refusedOf(s *Seen, tenant string, hash Hash) string {
	var o outcome.Outcome
	if !s.Refused(tenant, hash, &o) {
		return ""
	}
	samples, histograms := o.Refused[outcome.TooManySeries].Samples, o.Refused[outcome.Mixed].Histograms
	return fmt.Sprint(o.First.Series, " ", samples, " ", histograms)
}

// naive is a plain list with all that Seen must know. It forgets nothing.
type naive struct {
	now int64
	all []struct {
		tenant  string
		t       int64
		hash    Hash
		refused string // see refusedOf
	}
}

func (n *naive) has(tenant string, hash Hash) (has bool, refused string) {
	for _, x := range n.all {
		if x.tenant == tenant && x.hash == hash && x.t > n.now-Keep {
			return true, x.refused
		}
	}
	return false, ""
}

func (n *naive) add(tenant string, hash Hash, refused string) {
	if has, _ := n.has(tenant, hash); has {
		return
	}
	n.all = append(n.all, struct {
		tenant  string
		t       int64
		hash    Hash
		refused string
	}{tenant, n.now, hash, refused})
}

// Two members apply the same entries. One of them, the restless one, also saves and restarts in between,
// and loses a tenant and gets it back. Both agree with a plain list, and save the same bytes.
func TestMembersAgree(t *testing.T) {
	var repeats, partial int
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
			want, refused := list.has(tenant, hash)
			if want {
				repeats++
			}
			if refused != "" {
				partial++
			}
			if a, b := steady.Has(tenant, hash), restless.Has(tenant, hash); a != want || b != want {
				t.Fatalf("seed %d, step %d: the two members know the request: %v and %v, want %v",
					seed, step, a, b, want)
			}
			if a, b := refusedOf(&steady, tenant, hash), refusedOf(&restless, tenant, hash); a != refused || b != refused {
				t.Fatalf("seed %d, step %d: refusals %q and %q, want %q", seed, step, a, b, refused)
			}
			if r.IntN(3) > 0 {
				o, refused := whole, ""
				if seed%3 > 0 && r.IntN(4) == 0 {
					o, refused = partly("s", step+1, step%3), fmt.Sprint("s ", step+1, " ", step%3)
				}
				list.add(tenant, hash, refused)
				steady.Add(tenant, hash, o)
				restless.Add(tenant, hash, o)
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
					t.Fatalf("seed %d, step %d: the restless member saves\n%x\nwant the bytes of the other member,\n%x",
						seed, step, saved, steady.Append(nil))
				}
			}
		}
	}
	if repeats < 1000 || partial < 1000 {
		t.Errorf("%d repeats, of which %d repeat a partly refused request, want at least 1000 of each",
			repeats, partial)
	}
}

// A request is forgotten after ten minutes of the log's time, to the millisecond.
func TestForgotten(t *testing.T) {
	var s Seen
	s.Advance(base)
	s.Add("a", 1, whole)
	s.Add("b", 1, whole)
	s.Advance(base + Keep - 1)
	s.Add("a", 1, whole) // a repeat, which does not extend the time
	if !s.Has("a", 1) || !s.Has("b", 1) || s.Has("a", 2) || s.Has("c", 1) {
		t.Error("a request is forgotten within ten minutes, or requests are mixed up")
	}
	s.Advance(base) // another leader's clock is behind
	s.Advance(base + Keep)
	if s.Has("a", 1) || s.Has("b", 1) {
		t.Error("a request is known for longer than ten minutes")
	}
	s.Advance(base + Keep + sweepEvery)
	if len(s.tenants) != 0 || s.Early != 0 {
		t.Errorf("%d idle tenants left, want 0", len(s.tenants))
	}
}

// A tenant moves here from another group, whose leader's clock is ahead or behind.
func TestATenantOfAnotherTime(t *testing.T) {
	var from, to Seen
	from.Advance(base)
	from.Add("a", 1, whole)
	from.Advance(base + Keep/2)
	from.Add("a", 2, whole)
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
	to.Add("a", 3, whole)
	var again Seen
	if err := again.Parse(to.Append(nil)); err != nil || !again.Has("a", 2) {
		t.Error(err)
	}
	to.Advance(base + Keep + 1)
	if to.Has("a", 2) {
		t.Error("a request is known for longer than ten minutes of its new group's time")
	}
}

// A tenant has at most MaxRequests requests. Its next requests take the place of its oldest.
func TestBound(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var s Seen
	s.Advance(base)
	s.Add("other", 0, whole)
	for i := range Hash(3 * MaxRequests) {
		s.Advance(base + int64(i)/1000)
		s.Add("a", i, whole)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if mib := float64(after.HeapAlloc-before.HeapAlloc) / (1 << 20); mib > 5 {
		t.Errorf("a tenant takes %.1f MiB, want at most 5", mib)
	}
	if s.Has("a", 2*MaxRequests-1) || !s.Has("a", 2*MaxRequests) || !s.Has("other", 0) || s.Early != 2*MaxRequests {
		t.Errorf("requests other than the oldest are forgotten; %d were forgotten early, want %d",
			s.Early, 2*MaxRequests)
	}
	saved := s.Append(nil)
	var again Seen
	if err := again.Parse(saved); err != nil || !again.Has("a", 3*MaxRequests-1) {
		t.Error(err)
	}
	if mib := float64(len(saved)) / (1 << 20); mib > 0.7 {
		t.Errorf("the saved form has %.1f MiB, want at most 0.7", mib)
	}
	section := s.AppendTenant(nil, "a")
	err := again.ParseTenant("b", append(section, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0))
	if err == nil || again.Has("b", 2*MaxRequests) {
		t.Error("a section with more requests than the bound is accepted, want an error")
	}
}

// The refusals take a bounded amount of memory. The oldest refusals are forgotten, but their requests
// are still known.
func TestRefusedIsBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var s Seen
	s.Advance(base)
	s.Add("other", 0, partly("first", 1, 0))
	long := strings.Repeat("s", maxSeries-8)
	const all = 20_000
	for i := range Hash(all) {
		s.Add("a", i, partly(long, int(i)+1, 1))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if mib := float64(after.HeapAlloc-before.HeapAlloc) / (1 << 20); mib > 5 {
		t.Errorf("a tenant takes %.1f MiB, want at most 5", mib)
	}
	kept := Hash(MaxRefused / (96 + len(long) + 16)) // at least
	if !s.Has("a", 0) || refusedOf(&s, "a", 0) != "" || refusedOf(&s, "other", 0) != "first 1 0" ||
		refusedOf(&s, "a", all-kept) != fmt.Sprint(long, " ", all-kept+1, " 1") || s.Early != 0 {
		t.Errorf("requests or refusals other than the oldest are forgotten; %d requests were forgotten early, want 0",
			s.Early)
	}
	tenant := s.tenants["a"]
	if n := uint64(len(tenant.refused)); n+s.EarlyRefused != all || n > uint64(kept)+100 || len(tenant.partial) != int(n) {
		t.Errorf("%d refusals are remembered and %d forgotten, want %d in all, at most %d remembered",
			n, s.EarlyRefused, all, kept+100)
	}
	saved := s.Append(nil)
	if n := len(saved); n > MaxRefused+10*all {
		t.Errorf("the saved form has %d bytes, want at most %d", n, MaxRefused+10*all)
	}
	var again Seen
	if err := again.Parse(saved); err != nil || refusedOf(&again, "a", all-1) == "" {
		t.Error(err)
	}
	s.Advance(base + Keep)
	if s.Has("a", all-1) || len(tenant.refused)+len(tenant.partial)+tenant.bytes > 0 {
		t.Errorf("the refusals of %d requests are kept after the requests are forgotten", len(tenant.refused))
	}
}

// The hash is part of the log's format, so it never changes. Sender and body are hashed apart: another
// split of the same bytes has another hash.
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
			t.Errorf("%v with body %q has the hash of %s, want its own", c.from, c.body, other)
		}
		hashes[h] = fmt.Sprint(c.from, c.body)
	}
	plain := Hash(xxhash.Sum64String("\x04\x0a\x00\x00\x01\x06\x00\x00\x00OTel/1body"))
	if Of(four, []byte("body")) != plain {
		t.Errorf("the hash differs from %#x, which was computed from the layout", plain)
	}
	if h := Of(four, nil); h.Part(0, 0) != h || h.Part(1, 0) == h || h.Part(1, 0) == h.Part(0, 1) {
		t.Errorf("parts %#x, %#x, %#x", h.Part(0, 0), h.Part(1, 0), h.Part(0, 1))
	}
	four.Addr = netip.AddrPortFrom(four.Addr.Addr(), 4711)
	if body := []byte("body"); Of(four, body) != 0xac09eb8b5459d7bf {
		t.Error("the port of a connection changes the hash")
	}
}

func golden() *Seen {
	var s Seen
	s.Advance(base)
	s.Add("default", 1, whole)
	s.Add("default", 1<<63, whole)
	s.Advance(base + 300)
	s.Add("default", 2, whole)
	s.Add("a", 1, whole)
	return &s
}

// refusing returns the state that golden returns, with one more request, which was refused in part.
func refusing() *Seen {
	s := golden()
	s.Add("b", 3, partly(`up{job="é"}`, 300, 1))
	return s
}

// Every later program reads the files in testdata. A state without refusals has the bytes of version 1.
func TestGolden(t *testing.T) {
	check(t, "testdata/golden", golden())
	s := check(t, "testdata/refused", refusing())
	if got := refusedOf(s, "b", 3); got != `up{job="é"} 300 1` || refusedOf(s, "a", 1) != "" {
		t.Errorf("refused: %s", got)
	}
	s.Advance(base + 300 + Keep)
	s.Add("a", 1, whole)
	if saved := s.Append(nil); saved[0] != version {
		t.Errorf("after the refusals are forgotten, the version is %d, want %d", saved[0], version)
	}
}

// check compares a state with a file, and returns the state that is read from it.
func check(t *testing.T, file string, state *Seen) *Seen {
	t.Helper()
	saved := state.Append(nil)
	if *update {
		if err := os.WriteFile(file, []byte(hex.Dump(saved)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || hex.Dump(saved) != string(want) {
		t.Errorf("%v: the state is saved as\n%swant\n%s", err, hex.Dump(saved), want)
	}
	s := new(Seen)
	if err := s.Parse(saved); err != nil || !s.Has("default", 1<<63) || !s.Has("a", 1) || s.Has("a", 2) {
		t.Error(err)
	}
	return s
}

func TestMalformed(t *testing.T) {
	whole := golden().Append(nil)
	for n := range whole {
		s := golden()
		if s.Parse(whole[:n]) == nil && n != 7 && n != 24 { // there a whole state ends: without tenants, or with tenant a
			t.Errorf("the first %d of %d bytes parse", n, len(whole))
		} else if !s.Has("default", 2) && n != 7 && n != 24 {
			t.Errorf("the first %d of %d bytes are malformed, but replaced the state", n, len(whole))
		}
	}
	newer := append([]byte{3}, whole[1:]...)
	if err := new(Seen).Parse(newer); err == nil || !strings.Contains(err.Error(), "version 3") {
		t.Error(err)
	}
	if new(Seen).Parse(append([]byte{withRefused}, whole[1:]...)) == nil {
		t.Error("a state of version 1 is read as one of version 2")
	}
	twice := golden()
	section := twice.AppendTenant(nil, "a")
	again := section[len(section)-9:] // a request: its hash, and the length of its refusals
	if err := twice.ParseTenant("a", slices.Concat(section, []byte{0}, again)); err == nil || !twice.Has("a", 1) {
		t.Errorf("a request twice: %v", err)
	}
	for why, text := range map[string]string{
		"nothing":               "\x00s",
		"no series":             "\x01\x01\x00\x00",
		"no parts":              "\x01\x00\x00\x00\x00s",
		"reasons out of order":  "\x02\x01\x00\x00\x01\x01\x00\x00\x00s",
		"an unknown reason":     "\x7f\x01\x00\x00\x00s",
		"numbers that are cut":  "\x01\x01",
		"a series that is long": "\x01\x01\x00\x00\x00" + strings.Repeat("s", maxSeries+1),
	} {
		bad := slices.Concat(section[:len(section)-1], binary.AppendUvarint(nil, uint64(len(text))), []byte(text))
		if err := twice.ParseTenant("a", bad); err == nil {
			t.Errorf("%s: ParseTenant succeeds, want an error", why)
		}
	}
}

// FuzzParse checks that each state has one encoding.
func FuzzParse(f *testing.F) {
	whole := golden().Append(nil)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(refusing().Append(nil))
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
		s.Add("default", i, whole)
	}
	b.ReportAllocs()
	for i := Hash(2 * MaxRequests); b.Loop(); i++ {
		s.Advance(base)
		s.Add("default", i, whole)
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
