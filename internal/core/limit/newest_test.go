package limit

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
)

func keyOf(metric string, user int) []byte {
	return series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", metric, "user", fmt.Sprint(user)))
}

// The newest series come with the sender of their first sample. A series that is known already,
// or has no place, is not new.
func TestNewest(t *testing.T) {
	tenant := New(Config{MaxSeries: maxNewest + 10}, time.Minute, time.Hour).Tenant("a")
	from := sender.Sender{Addr: netip.MustParseAddrPort("192.0.2.1:9")}
	for i := range maxNewest + 20 {
		c := Claim{Key: keyOf("logins", i), Samples: 1, Sender: from, Container: []byte("c1")}
		tenant.Admit(int64(i), &c)
		tenant.Admit(1e9, &c)
	}
	newest := tenant.Newest()
	if len(newest) != maxNewest {
		t.Fatalf("%d series, want %d", len(newest), maxNewest)
	}
	for i, n := range newest {
		if at := maxNewest + 9 - i; n.At != int64(at) || string(n.Key) != string(keyOf("logins", at)) || n.Sender != from ||
			n.Container != "c1" {
			t.Fatalf("newest %d: got the key %q at %d from %+v in %s, want time %d", i, n.Key, n.At, n.Sender, n.Container, at)
		}
	}
	if none := New(Config{}, time.Minute, time.Hour).Tenant("b").Newest(); len(none) != 0 {
		t.Errorf("a tenant without series has %d new ones", len(none))
	}
}

func TestKeys(t *testing.T) {
	tenant := New(Config{}, time.Minute, time.Hour).Tenant("a")
	var want []string
	for i := range 3 * keysAtOnce {
		key := keyOf(fmt.Sprint("m", i%2), i)
		tenant.Admit(1, &Claim{Key: key, Samples: 1})
		want = append(want, string(key))
	}
	var got []string
	for _, key := range tenant.Keys() {
		got = append(got, string(key))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	if n := tenant.MetricSeries("m1"); n != 3*keysAtOnce/2 {
		t.Errorf("%d series of m1", n)
	}
	if n := tenant.MetricSeries("m2"); n != 0 {
		t.Errorf("%d series of m2, which does not exist", n)
	}
}

// Keys lets other goroutines take the lock while it copies.
func TestKeysWhileSeriesCome(t *testing.T) {
	tenant := New(Config{}, time.Minute, time.Hour).Tenant("a")
	for i := range 4 * keysAtOnce {
		tenant.Admit(1, &Claim{Key: keyOf("before", i), Samples: 1})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 4 * keysAtOnce {
			if v := tenant.Admit(1, &Claim{Key: keyOf("meanwhile", i), Samples: 1}); v.Place != 0 && i%2 == 0 {
				tenant.Leave(begin, v.Place)
			}
		}
	}()
	for copying := true; copying; {
		select {
		case <-done:
			copying = false
		default:
		}
		before := 0
		for _, key := range tenant.Keys() {
			if string(series.Name(key)) == "before" {
				before++
			}
		}
		if before != 4*keysAtOnce {
			t.Fatalf("Keys() has %d of the series that were there all the time, want %d", before, 4*keysAtOnce)
		}
	}
}

// A holder can read the key of its place, and ask whether others want the place, while series come and
// go.
func TestAHolderWaitsForNobody(t *testing.T) {
	tenant := New(Config{}, time.Minute, time.Hour).Tenant("a")
	var held []Place
	for i := range 100 {
		held = append(held, tenant.Admit(1, &Claim{Key: keyOf(fmt.Sprint("held", i), i), Samples: 1}).Place)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20 * chunkLen {
			c := Claim{Key: keyOf(fmt.Sprint("other", i%chunkLen), i), Samples: 1}
			if i%4 == 0 { // metrics and places are freed, and reused
				tenant.Leave(1, tenant.Admit(1, &c).Place)
			}
			tenant.Admit(1, &c)
		}
	}()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		for i, p := range held {
			if got := string(tenant.Key(p)); got != string(keyOf(fmt.Sprint("held", i), i)) || tenant.Crowded(p, 0) {
				t.Fatalf("series %d became %q", i, got)
			}
		}
	}
}

// Bound: 15 ms for 100,000 series. The lock is held for about 50 µs at a time, so a new context
// waits at most that long.
func BenchmarkKeys(b *testing.B) {
	tenant := New(Config{}, time.Minute, time.Hour).Tenant("a")
	for i := range 100_000 {
		tenant.Admit(1, &Claim{Key: keyOf(fmt.Sprint("m", i%100), i), Samples: 1})
	}
	b.ReportAllocs()
	for b.Loop() {
		tenant.Keys()
	}
}
