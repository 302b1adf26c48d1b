package remotewrite

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	prom "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/internal/core/series"
)

// The shard decides where data lies: these values may never change.
func TestShardsOfSamplesAreFixedForEver(t *testing.T) {
	for _, c := range []struct {
		labels []string
		want   uint16
	}{
		{[]string{"__name__", "up"}, 112},
		{[]string{"__name__", "up", "job", "a"}, 685},
		{[]string{"__name__", "up", "job", strings.Repeat("x", 300)}, 1},
	} {
		ls := prom.FromStrings(c.labels...)
		for form, r := range forms(t, rand.New(rand.NewPCG(1, 1)), ls) {
			key, err := r.AppendSeriesKey(nil, &r.Series[0], "")
			if got := series.Shard("default", key); err != nil || got != c.want {
				t.Errorf("%s of %.80s: shard %d, %v, want %d", form, ls, got, err, c.want)
			}
		}
	}
}

// A series has one shard in every form, which is the shard of its stored labels.
func TestTheShardIsThatOfTheLabels(t *testing.T) {
	rounds := 2000
	if testing.Short() {
		rounds = 100
	}
	for seed := range uint64(rounds) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		sent := randomLabels(rnd)
		stored := prom.NewBuilder(sent).Del("replica").Labels()
		want := series.AppendKey(nil, noKind, stored.WithoutEmpty())
		for form, r := range forms(t, rnd, sent) {
			key, err := r.AppendSeriesKey([]byte("before"), &r.Series[0], "replica")
			if err != nil || string(key) != "before"+string(want) {
				t.Fatalf("seed %d, %s: %s\nkey  %q, %v\nwant %q", seed, form, sent, key, err, want)
			}
		}
	}
}

// randomLabels returns sorted labels. Some are empty, and some need a length of more than one
// byte.
func randomLabels(rnd *rand.Rand) prom.Labels {
	b := prom.NewScratchBuilder(0)
	b.Add("__name__", "up")
	for i := range 1 + rnd.IntN(12) {
		length := rnd.IntN(20)
		if rnd.IntN(8) == 0 {
			length = 120 + rnd.IntN(300)
		}
		b.Add(fmt.Sprintf("%c%d%s", "AZ_az"[rnd.IntN(5)], i, strings.Repeat("n", rnd.IntN(2)*rnd.IntN(140))), strings.Repeat("ü", length/2)+"v"[:length%2])
	}
	if rnd.IntN(2) == 0 {
		b.Add("replica", "a")
	}
	b.Sort()
	return b.Labels()
}

// forms returns requests with one series, in very different encodings.
func forms(t *testing.T, rnd *rand.Rand, ls prom.Labels) map[string]*Request {
	var first, second, odd1, odd2, built Request
	table := writev2.NewSymbolTable()
	refs := table.SymbolizeLabels(ls, nil)
	var b Builder
	b.Begin(&built, []byte("what the buffer had before"))
	b.Series()
	ls.Range(func(l prom.Label) { b.Label(l.Name, l.Value) })
	b.Finish()
	for _, err := range []error{
		first.DecodeV1(marshal(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{Labels: prompb.FromLabels(ls, nil)}}})),
		second.DecodeV2(marshal(t, &writev2.Request{Symbols: table.Symbols(), Timeseries: []writev2.TimeSeries{{LabelsRefs: refs}}})),
		odd1.DecodeV1(oddV1(rnd, ls)),
		odd2.DecodeV2(oddV2(rnd, ls)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	shuffled1, shuffled2 := shuffled(t, rnd, ls)
	return map[string]*Request{"1.0": &first, "2.0": &second, "odd 1.0": &odd1, "odd 2.0": &odd2, "built": &built,
		"shuffled 1.0": shuffled1, "shuffled 2.0": shuffled2}
}

// shuffled returns requests with one series, of each version, whose labels are in random order.
func shuffled(t *testing.T, rnd *rand.Rand, ls prom.Labels) (first, second *Request) {
	pairs := prompb.FromLabels(ls, nil)
	rnd.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	table := writev2.NewSymbolTable()
	var refs []uint32
	for _, l := range pairs {
		refs = append(refs, table.Symbolize(l.Name), table.Symbolize(l.Value))
	}
	first, second = new(Request), new(Request)
	for _, err := range []error{
		first.DecodeV1(marshal(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{Labels: pairs}}})),
		second.DecodeV2(marshal(t, &writev2.Request{Symbols: table.Symbols(), Timeseries: []writev2.TimeSeries{{LabelsRefs: refs}}})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return first, second
}

// oddV1 returns a valid request in a form that no encoder writes.
func oddV1(rnd *rand.Rand, ls prom.Labels) []byte {
	var s []byte
	ls.Range(func(l prom.Label) {
		n, v := oddField(rnd, 1, []byte(l.Name)), oddField(rnd, 2, []byte(l.Value))
		s = append(s, oddField(rnd, 1, slices.Concat([][]byte{
			slices.Concat(n, v),
			slices.Concat(v, n),
			slices.Concat(fieldOf(1, []byte("overwritten")), fieldOf(2, []byte("too")), n, v),
			slices.Concat(n, v, fieldOf(7, []byte("unknown"))),
		}[rnd.IntN(4)]))...)
		if rnd.IntN(3) == 0 {
			s = append(s, fieldOf(2, []byte{0x10, 1})...) // a sample between labels
		}
	})
	return oddField(rnd, 1, s)
}

// oddField is fieldOf, sometimes with a tag or a length that is longer than needed.
func oddField(rnd *rand.Rand, number byte, value []byte) []byte {
	long := func(b []byte, n uint64) []byte {
		b = binary.AppendUvarint(b, n)
		if rnd.IntN(3) == 0 {
			b[len(b)-1] |= 0x80
			b = append(b, 0x80, 0)
		}
		return b
	}
	return append(long(long(nil, uint64(number)<<3|wireBytes), uint64(len(value))), value...)
}

// oddV2 returns a request whose symbols are in random order, some of them twice, with
// references packed and not.
func oddV2(rnd *rand.Rand, ls prom.Labels) []byte {
	var texts []string // in the order of references
	ls.Range(func(l prom.Label) { texts = append(texts, l.Name, l.Value) })
	places := rnd.Perm(len(texts))
	body, refs, packed := oddField(rnd, 4, nil), []byte(nil), []byte(nil)
	for _, i := range places {
		body = append(body, oddField(rnd, 4, []byte(texts[i]))...)
	}
	for i := range texts {
		at := uint64(1 + slices.Index(places, i))
		if rnd.IntN(3) > 0 {
			packed = binary.AppendUvarint(packed, at)
			continue
		}
		refs = append(refs, fieldOf(1, packed)...)
		refs, packed = binary.AppendUvarint(append(refs, 1<<3|wireVarint), at), nil
	}
	return append(body, oddField(rnd, 5, append(refs, fieldOf(1, packed)...))...)
}

// lookalikes returns messages, some of them valid Labels, that differ from a short Label in one
// byte that cutLabel looks at.
func lookalikes() [][]byte {
	return [][]byte{
		{}, {0x0a}, {0x0a, 0}, {0x12, 0}, {0x0a, 0, 0x12}, {0x0a, 1, 'a', 0x12},
		append(fieldOf(2, []byte("value")), fieldOf(2, []byte("again"))...),
		append(fieldOf(1, []byte("name")), fieldOf(1, []byte("again"))...),
		append(fieldOf(1, []byte(strings.Repeat("n", 128)+"\x12")), fieldOf(2, []byte("17 bytes of value"))...), // a tag and a length one byte early
		slices.Concat(fieldOf(1, []byte("name")), []byte{0x12, 0x81, 0, 'v'}, fieldOf(7, make([]byte, 125))),    // 1 is not 129
	}
}

// FuzzSeriesKey: for any body, the key is made from the labels that are read, and ends where
// they do.
func FuzzSeriesKey(f *testing.F) {
	for _, body := range seedsV1(f) {
		f.Add(body, false)
	}
	for _, label := range lookalikes() {
		f.Add(fieldOf(1, fieldOf(1, label)), false)
	}
	for _, body := range seedsV2(f) {
		f.Add(body, true)
	}
	var r Request
	f.Fuzz(func(t *testing.T, body []byte, v2 bool) {
		decode := r.DecodeV1
		if v2 {
			decode = r.DecodeV2
		}
		if decode(body) != nil {
			return
		}
		for i := range r.Series {
			all, err := r.Labels(nil, &r.Series[i])
			want := []byte{noKind}
			SortLabels(all)
			for _, l := range all {
				if len(l.Value) > 0 && string(l.Name) != "trace" {
					want = series.AppendLabel(want, string(l.Name), string(l.Value))
				}
			}
			key, failed := r.AppendSeriesKey(nil, &r.Series[i], "trace")
			if string(key) != string(want) || (failed != nil) != (err != nil) {
				t.Fatalf("series %d: %q, %v\nwant %q, %v", i+1, key, failed, want, err)
			}
		}
	})
}

// requestOf returns a request of the load by which servers are compared.
func requestOf(t testing.TB, version, labels int) *Request {
	c := remoteload.Standard()
	c.Version, c.Labels, c.Series, c.Begin = version, labels, c.Batch, 1_790_000_000_000
	load, err := remoteload.New(c)
	if err != nil {
		t.Fatal(err)
	}
	body, err := Decompress(nil, load.Next(0).Body, 1<<24)
	if err != nil {
		t.Fatal(err)
	}
	r := new(Request)
	decode := r.DecodeV1
	if version == 2 {
		decode = r.DecodeV2
	}
	if err := decode(body); err != nil {
		t.Fatal(err)
	}
	return r
}

// shards computes the shard of each series, as the distributor does. It returns key to reuse
// its memory.
func shards(r *Request, key []byte) []byte {
	for i := range r.Series {
		key, _ = r.AppendSeriesKey(key[:0], &r.Series[i], "__replica__")
		series.Shard("default", key)
	}
	return key
}

func TestShardsDoNotAllocate(t *testing.T) {
	for version := 1; version <= 2; version++ {
		for _, labels := range []int{7, 10, 50} { // the last ones are too long for one piece
			r := requestOf(t, version, labels)
			key := shards(r, nil)
			if n := testing.AllocsPerRun(10, func() { key = shards(r, key) }); n != 0 {
				t.Errorf("version %d, %d labels: %v allocations for %d series", version, labels, n, len(r.Series))
			}
		}
	}
}

// BenchmarkShard computes the shard of each series of a request, from the labels on.
//
// Bound: 0 allocs/op, and at most 200 ns for a series of 7 labels, a fifth of what the
// FIELD-NOTES' service took (108 us a batch of 100), where that was no problem.
func BenchmarkShard(b *testing.B) {
	for version := 1; version <= 2; version++ {
		for _, labels := range []int{7, 10} {
			b.Run(fmt.Sprintf("v%d/labels=%d", version, labels), func(b *testing.B) {
				r := requestOf(b, version, labels)
				key := shards(r, nil)
				b.ReportAllocs()
				for b.Loop() {
					key = shards(r, key)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(r.Series)), "ns/series")
			})
		}
	}
}
