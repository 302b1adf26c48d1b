package seriescache

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// request returns a request with one series for each of the label sets: name, value, name,
// value, …
func request(t testing.TB, v2 bool, sets ...[]string) *remotewrite.Request {
	t.Helper()
	var r remotewrite.Request
	if v2 {
		symbols := writev2.NewSymbolTable()
		var m writev2.Request
		for _, set := range sets {
			var refs []uint32
			for _, s := range set {
				refs = append(refs, symbols.Symbolize(s))
			}
			m.Timeseries = append(m.Timeseries, writev2.TimeSeries{LabelsRefs: refs})
		}
		m.Symbols = symbols.Symbols()
		body, err := m.Marshal()
		if err == nil {
			err = r.DecodeV2(body)
		}
		if err != nil {
			t.Fatal(err)
		}
		return &r
	}
	var m prompb.WriteRequest
	for _, set := range sets {
		var ls []prompb.Label
		for i := 0; i < len(set); i += 2 {
			ls = append(ls, prompb.Label{Name: set[i], Value: set[i+1]})
		}
		m.Timeseries = append(m.Timeseries, prompb.TimeSeries{Labels: ls})
	}
	body, err := m.Marshal()
	if err == nil {
		err = r.DecodeV1(body)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

// Len returns the number of series.
func (c *Cache) Len() int { return int(c.series.len) - 1 - len(c.freeSeries) }

// Spellings returns how many spellings are remembered, also those of dropped series.
func (c *Cache) Spellings() int { return c.index.Len() }

func find(c *Cache, r *remotewrite.Request) (found []Number) {
	var u Cursor
	u.Begin()
	for i := range r.Series {
		found = append(found, c.Find(&u, r, &r.Series[i]))
	}
	return found
}

// add remembers series i of a request.
func add(c *Cache, r *remotewrite.Request, i int, n Number) {
	var u Cursor
	u.Begin()
	if c.Find(&u, r, &r.Series[i]) == 0 {
		c.Add(&u, r, &r.Series[i], n)
	}
}

func TestASeriesIsFoundByAnyOfItsSpellings(t *testing.T) {
	c := New()
	plain, swapped := []string{"a", "1", "b", "2"}, []string{"b", "2", "a", "1"}
	long := []string{"a", strings.Repeat("x", 200)}
	v1, v2 := request(t, false, plain, swapped, long), request(t, true, plain, swapped, long)
	n, m := c.NewSeries(7, 0, 0), c.NewSeries(8, 0, 0)
	for _, r := range []*remotewrite.Request{v1, v2} {
		if got := find(c, r); got[0] != 0 || got[1] != 0 || got[2] != 0 {
			t.Errorf("before any series is added, Find returns %v, want zeros", got)
		}
		add(c, r, 0, n)
		add(c, r, 1, n)
		add(c, r, 2, m)
		for range 2 { // the first time by hash, the second time by the expected order
			if got := find(c, r); got[0] != n || got[1] != n || got[2] != m {
				t.Errorf("%v, want %d %d %d", got, n, n, m)
			}
		}
	}
	c.Evict(7)
	if got := append(find(c, v1), find(c, v2)...); got[0] != 0 || got[1] != 0 || got[2] != m || got[3] != 0 ||
		got[4] != 0 || got[5] != m {
		t.Errorf("after the eviction, Find returns %v, want number %d twice, and zeros otherwise", got, m)
	}
	c.Evict(7) // a second time does nothing
	if c.Len() != 1 || c.Spellings() != 2 || c.ByRef(7) != 0 || c.ByRef(8) != m {
		t.Errorf("%d series and %d spellings are left, want 1 and 2", c.Len(), c.Spellings())
	}
}

// Two series are different even if they differ only in where one label ends and the next begins.
func TestLabelsAreNotRunTogether(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		c := New()
		r := request(t, v2, []string{"a", "bc"}, []string{"ab", "c"}, []string{"a", "b", "c", "d"}, []string{"a", "b"}, nil,
			[]string{"", ""})
		for i := range r.Series {
			add(c, r, i, c.NewSeries(uint64(i+1), 0, 0))
		}
		for i, n := range find(c, r) {
			if want := uint64(i + 1); n == 0 && i != 4 || n != 0 && c.At(n).Ref != want {
				t.Errorf("v2 %v: for series %d, Find returns the wrong number %d", v2, i, n)
			}
		}
	}
}

func TestSpellingsAreBounded(t *testing.T) {
	c := New()
	n := c.NewSeries(1, 0, 0)
	for i := range 100 {
		add(c, request(t, false, []string{"a", fmt.Sprint(i)}), 0, n)
	}
	if c.Spellings() != maxSpellings {
		t.Errorf("%d spellings of one series are remembered, want %d", c.Spellings(), maxSpellings)
	}
	for i := range maxDropped + 1 {
		add(c, request(t, false, []string{"dropped", fmt.Sprint(i)}), 0, Dropped)
	}
	if c.Spellings() != maxSpellings+1 {
		t.Errorf("with dropped series, %d spellings are remembered, want %d", c.Spellings(), maxSpellings+1)
	}
	if got := find(c, request(t, false, []string{"dropped", fmt.Sprint(maxDropped)}, []string{"a", "3"})); got[0] !=
		Dropped || got[1] != n {
		t.Errorf("%v", got)
	}
	c.ForgetSpellings()
	if c.Spellings() != 0 || c.Len() != 1 {
		t.Errorf("after ForgetSpellings: %d spellings, %d series, want 0, 1", c.Spellings(), c.Len())
	}
}

// TestAgainstAMap compares the cache with maps. Series are added, get spellings, are evicted and return,
// in requests in random order.
func TestAgainstAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := New()
	spelled := map[string]Number{} // by version and labels
	bySeries := map[uint64][]string{}
	next := uint64(1)
	for range 3000 {
		v2 := random.IntN(2) == 0
		var sets [][]string
		for range 1 + random.IntN(6) {
			sets = append(sets,
				[]string{"name", fmt.Sprint(random.IntN(60)), "x", strings.Repeat("y", []int{0, 1, 200}[random.IntN(3)])})
		}
		r := request(t, v2, sets...)
		var u Cursor
		u.Begin()
		for i := range r.Series {
			text := fmt.Sprint(v2, sets[i])
			got := c.Find(&u, r, &r.Series[i])
			if got != spelled[text] {
				t.Fatalf("%s: found %d, want %d", text, got, spelled[text])
			}
			if got != 0 {
				continue
			}
			switch random.IntN(4) {
			case 0: // the caller does not resolve it
				continue
			case 1:
				c.Add(&u, r, &r.Series[i], Dropped)
				spelled[text] = Dropped
				continue
			}
			ref := 1 + random.Uint64N(next)
			n := c.ByRef(ref)
			if (n != 0) != (bySeries[ref] != nil) {
				t.Fatalf("reference %d is found as number %d, but has the spellings %q", ref, n, bySeries[ref])
			}
			if n == 0 {
				n = c.NewSeries(ref, 0, 0)
				bySeries[ref] = []string{}
				next++
			}
			c.Add(&u, r, &r.Series[i], n)
			if len(bySeries[ref]) < maxSpellings {
				bySeries[ref] = append(bySeries[ref], text)
				spelled[text] = n
			}
		}
		switch random.IntN(200) {
		case 0:
			c.ForgetSpellings()
			clear(spelled)
			for ref := range bySeries {
				bySeries[ref] = []string{}
			}
		default:
			for range random.IntN(3) {
				ref := 1 + random.Uint64N(next)
				c.Evict(ref)
				for _, text := range bySeries[ref] {
					delete(spelled, text)
				}
				delete(bySeries, ref)
			}
		}
		if c.Spellings() != len(spelled) || c.Len() != len(bySeries) {
			t.Fatalf("the cache has %d spellings and %d series, want %d and %d",
				c.Spellings(), c.Len(), len(spelled), len(bySeries))
		}
	}
}

// A spelling is known only if both hashes and the size agree: labels that share one hash with a known series would
// write their samples to it.
func TestAHashAloneIsNoFingerprint(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		c := New()
		r := request(t, v2, []string{"__name__", "a", "job", "b"})
		add(c, r, 0, c.NewSeries(1, 1, 0))
		if found := find(c, r); found[0] == 0 {
			t.Fatal("the series is not known")
		}
		known := *c.spellings.at(1)
		for what, forge := range map[string]func(*spelling){
			"check": func(p *spelling) { p.print.check ^= 1 },
			"index": func(p *spelling) { p.print.index ^= 1 },
			"size":  func(p *spelling) { p.size++ },
		} {
			*c.spellings.at(1) = known
			forge(c.spellings.at(1))
			if found := find(c, r); found[0] != 0 {
				t.Errorf("version 2 %v: a spelling with another %s was taken for a known one", v2, what)
			}
		}
	}
}

// Find allocates nothing in either version.
func TestFindingAllocatesNothing(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		c := New()
		var sets [][]string
		for i := range 100 {
			sets = append(sets, []string{"__name__", "requests_total", "instance", fmt.Sprint(i), "job", "api"})
		}
		r := request(t, v2, sets...)
		for i := range r.Series {
			add(c, r, i, c.NewSeries(uint64(i+1), 0, 0))
		}
		var u Cursor
		if n := testing.AllocsPerRun(100, func() {
			u.Begin()
			for i := range r.Series {
				if c.Find(&u, r, &r.Series[i]) == 0 {
					t.Fatal("not found")
				}
			}
		}); n != 0 {
			t.Errorf("v2 %v: %v allocations a request, want 0", v2, n)
		}
	}
}

// The fingerprints of one request with very many symbols do not stay in memory.
func TestManySymbolsAreForgotten(t *testing.T) {
	set := make([]string, 0, 2*manySymbols)
	for i := range manySymbols {
		set = append(set, fmt.Sprintf("label_%06d", i), "value")
	}
	r := request(t, true, set)
	var u Cursor
	u.Begin()
	New().Find(&u, r, &r.Series[0])
	if len(u.symbols) <= manySymbols {
		t.Fatalf("the request has %d symbols only", len(u.symbols))
	}
	u.Begin()
	if n := cap(u.symbols); n > manySymbols {
		t.Errorf("there is memory for %d symbols, want at most %d", n, manySymbols)
	}
}

// Bound for version 1, for a series of 7 labels: 40 ns in the same order as last time, 120 ns in any
// order. A request of 2,000 series then takes 80 us of a core. Version 2, whose symbols are compared one
// by one: 140 and 280 ns.
func BenchmarkFind(b *testing.B) {
	for _, v2 := range []bool{false, true} {
		for _, shuffled := range []bool{false, true} {
			b.Run(fmt.Sprintf("v2=%v/shuffled=%v", v2, shuffled), func(b *testing.B) {
				var sets [][]string
				for i := range 2000 {
					sets = append(sets,
						[]string{"__name__", fmt.Sprint("http_requests_", i%20, "_total"), "code", "200", "handler",
							fmt.Sprint("/api/v1/", i%50),
							"instance", fmt.Sprintf("10.0.%d.%d:9090", i%7, i%250), "job", "api-server", "method", "get", "pod",
							fmt.Sprintf("api-server-%08x", i)})
				}
				c := New()
				requests := []*remotewrite.Request{request(b, v2, sets...)}
				for i := range sets {
					add(c, requests[0], i, c.NewSeries(uint64(i+1), 0, 0))
				}
				if shuffled {
					requests = nil
					for range 10 {
						rand.Shuffle(len(sets), func(i, j int) { sets[i], sets[j] = sets[j], sets[i] })
						requests = append(requests, request(b, v2, sets...))
					}
				}
				var u Cursor
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					r := requests[i%len(requests)]
					u.Begin()
					for i := range r.Series {
						if c.Find(&u, r, &r.Series[i]) == 0 {
							b.Fatal("not found")
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(sets)), "ns/series")
			})
		}
	}
}
