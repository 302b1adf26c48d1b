package hapair

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"unsafe"
)

var update = flag.Bool("update", false, "write testdata/golden")

const timeout = 30_000 // ms

func TestOneOfAPairIsTaken(t *testing.T) {
	var pairs Pairs
	for i, c := range []struct {
		second          int64
		tenant, cluster string
		replica         string
		taken, changed  bool
		why             string
	}{
		{0, "a", "c", "1", true, true, "the first replica is elected"},
		{1, "a", "c", "2", false, false, "the copy from the other replica is refused"},
		{1, "a", "d", "2", true, true, "each cluster elects its own replica"},
		{1, "b", "c", "2", true, true, "each tenant elects its own replica too"},
		{30, "a", "c", "2", false, false, "the elected replica is late, but within the timeout"},
		{31, "a", "c", "2", true, true, "the elected replica is gone, and the other is elected"},
		{32, "a", "c", "1", false, false, "the first replica comes back, and is refused now"},
		{70, "a", "c", "2", true, false, "the elected replica was late, but no other took over"},
		{60, "a", "c", "2", true, false, "a node whose clock is behind received this request"},
		{100, "a", "c", "1", false, false, "time counts from the newest request of the elected replica"},
	} {
		var saved Pairs // like a restart, which the elections survive
		if err := saved.Parse(pairs.Append(nil)); err != nil {
			t.Fatal(err)
		}
		pairs = saved
		taken, changed := pairs.Accept(c.tenant, c.cluster, c.replica, c.second*1000, timeout)
		if taken != c.taken || changed != c.changed {
			t.Errorf("step %d, %s: taken %v, want %v; changed %v, want %v",
				i+1, c.why, taken, c.taken, changed, c.changed)
		}
	}
}

func TestClustersAreBounded(t *testing.T) {
	var pairs Pairs
	for i := range maxClusters + 10 {
		if taken, _ := pairs.Accept("a", fmt.Sprint(i), "1", 0, timeout); !taken {
			t.Fatalf("a request of cluster %d is refused", i)
		}
	}
	if n := len(pairs.tenants["a"]); n != maxClusters {
		t.Errorf("%d clusters are known", n)
	}
	for _, replica := range []string{"1", "2"} {
		if taken, changed := pairs.Accept("a", "another", replica, 0, timeout); !taken || changed {
			t.Errorf("an untracked cluster: taken %v, want true; changed %v, want false", taken, changed)
		}
	}
}

// The names of a request are in memory that the next request reuses.
func TestNamesAreCopies(t *testing.T) {
	var pairs Pairs
	memory := []byte("a c 1")
	name := func(i int) string { return unsafe.String(&memory[i], 1) }
	pairs.Accept(name(0), name(2), name(4), 0, timeout)
	pairs.Accept(name(0), name(2), "2", 2*timeout, timeout)
	pairs.Accept(name(0), name(2), name(4), 4*timeout, timeout)
	copy(memory, "X X X")
	if taken, changed := pairs.Accept("a", "c", "1", 4*timeout, timeout); !taken || changed {
		t.Errorf("the elected replica: taken %v, want true; changed %v, want false", taken, changed)
	}
}

// The file testdata/golden has the saved form of elections. Every later version must write the same
// bytes.
func TestGolden(t *testing.T) {
	const name = "testdata/golden"
	var pairs Pairs
	for i, cluster := range []string{"eu", "us", ""} {
		pairs.Accept("b", cluster, fmt.Sprint(i), 1_795_228_020_000, timeout)
		pairs.Accept("a", cluster, "", -1, timeout)
	}
	got := pairs.Append(nil)
	if *update {
		if err := os.WriteFile(name, []byte(hex.Dump(got)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if hex.Dump(got) != string(want) {
		t.Errorf("saved as\n%s, not\n%s", hex.Dump(got), want)
	}
}

func FuzzParse(f *testing.F) {
	var pairs Pairs
	f.Add(pairs.Append(nil))
	for i := range 3 {
		pairs.Accept(fmt.Sprint(i%2), fmt.Sprint(i), "replica", int64(i)-1, timeout)
		f.Add(pairs.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := slices.Clone(b)
		var parsed Pairs
		if err := parsed.Parse(b); err != nil {
			if parsed.tenants != nil {
				t.Error("Parse changed the elections in spite of the error")
			}
			return
		}
		if got := parsed.Append(nil); !bytes.Equal(got, before) {
			t.Errorf("%x is saved as %x", before, got)
		}
	})
}
