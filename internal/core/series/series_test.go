package series

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

// The shard decides where data lies: these values may never change.
func TestShardsAreFixedForEver(t *testing.T) {
	for _, test := range []struct {
		tenant string
		key    []byte
		want   uint16
	}{
		{"default", AppendKey(nil, Counter, labels.FromStrings("__name__", "a")), 248},
		{"default", AppendKey(nil, Counter, labels.FromStrings("__name__", "a", "host", "web-1")), 273},
		{"team-a", AppendKey(nil, Timer, labels.FromStrings("__name__", "a")), 470},
		{"default", AppendKey(nil, Counter, labels.FromStrings("__name__", "a", "b", strings.Repeat("x", 232))), 582},
		{"default", AppendKey(nil, Counter, labels.FromStrings("__name__", "a", "b", strings.Repeat("x", 233))), 180},
		{"default", AppendKey(nil, Counter, labels.FromStrings("__name__", "a", "b", strings.Repeat("x", 1000))), 128},
	} {
		if got := Shard(test.tenant, test.key); got != test.want {
			t.Errorf("%s %q: shard %d, want %d", test.tenant, test.key, got, test.want)
		}
	}
}

func TestShardsAreEven(t *testing.T) {
	var n [Shards]int
	for i := range 100 * Shards {
		n[Shard("default", AppendKey(nil, Gauge, labels.FromStrings("__name__", fmt.Sprint("m", i))))]++
	}
	// The counts have a Poisson distribution with mean 100, so five standard deviations are 50.
	if lo, hi := slices.Min(n[:]), slices.Max(n[:]); lo < 50 || hi > 150 {
		t.Errorf("shards hold %d to %d series, want 50 to 150", lo, hi)
	}
}

func TestKeyReadBack(t *testing.T) {
	ls := labels.FromStrings("__name__", "a", "b", "x\x00\xffy", "c", string(make([]byte, 300)))
	kind, got, err := ParseKey(AppendKey(nil, Set, ls))
	if err != nil || kind != Set || !labels.Equal(got, ls) {
		t.Errorf("%v %v %v", kind, got, err)
	}
}

// A key names one series, and a series has only one key. So ParseKey accepts only keys that
// AppendKey writes.
func FuzzParseKey(f *testing.F) {
	f.Add(AppendKey(nil, Counter, labels.FromStrings("__name__", "a", "host", "b")))
	f.Add([]byte{1, 0x80, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, ls, err := ParseKey(b)
		if err != nil {
			return
		}
		if again := AppendKey(nil, kind, ls); string(again) != string(b) {
			t.Fatalf("%q is also %q", b, again)
		}
	})
}

func TestPolicyReadBack(t *testing.T) {
	for _, p := range []Policy{DefaultPolicy, {Merge: MergeMax, Schema: -4, MaxBuckets: 1},
		{Schema: 8, MaxBuckets: 500, Bounds: []float64{-1, 0, 2.5}}} {
		got, err := ParsePolicy(AppendPolicy(nil, &p))
		if err != nil || got.Merge != p.Merge || got.Schema != p.Schema || got.MaxBuckets != p.MaxBuckets ||
			!slices.Equal(got.Bounds, p.Bounds) {
			t.Errorf("%+v read back as %+v, %v", p, got, err)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add(AppendPolicy(nil, &Policy{Schema: 3, MaxBuckets: 10, Bounds: []float64{1, 2}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePolicy(b)
		if err != nil {
			return
		}
		for i, bound := range p.Bounds {
			if math.IsNaN(bound) || math.IsInf(bound, 0) || (i > 0 && bound <= p.Bounds[i-1]) {
				t.Fatalf("bounds %v", p.Bounds)
			}
		}
		if again, err := ParsePolicy(AppendPolicy(nil, p)); err != nil || again.Schema != p.Schema {
			t.Fatalf("read back: %+v, %v", again, err)
		}
	})
}

func TestNameOfAKey(t *testing.T) {
	for _, c := range []struct {
		why  string
		key  []byte
		want string
	}{
		{"first", AppendKey(nil, Set, labels.FromStrings("__name__", "a", "b", "x")), "a"},
		{"behind a capital", AppendKey(nil, Set, labels.FromStrings("Zone", "x", "__name__", "a")), "a"},
		{"no name", AppendKey(nil, Set, labels.FromStrings("b", "x")), ""},
		{"no key", nil, ""},
		{"cut short", []byte("\x01\x08__name__\x05a"), ""},
	} {
		if got := string(Name(c.key)); got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}
