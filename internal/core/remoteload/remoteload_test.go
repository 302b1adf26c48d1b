package remoteload

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

const begin = 1_795_000_000_000

func small(change func(*Config)) Config {
	c := Standard()
	c.Series, c.Batch, c.Begin = 1234, 100, begin
	if change != nil {
		change(&c)
	}
	return c
}

func mustNew(t testing.TB, c Config) *Load {
	t.Helper()
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sample is one sample of a request, as a receiver reads it.
type sample struct {
	labels string
	time   int64
	value  float64
}

// read decodes a request with Prometheus' code.
func read(t *testing.T, version int, body []byte) (all []sample) {
	t.Helper()
	raw, err := snappy.Decode(nil, body)
	if err != nil {
		t.Fatal(err)
	}
	add := func(ls labels.Labels, n int, time int64, value float64) {
		if n != 1 {
			t.Fatalf("%d samples in series %v", n, ls)
		}
		all = append(all, sample{ls.String(), time, value})
	}
	builder := labels.NewScratchBuilder(0)
	if version == 1 {
		var w prompb.WriteRequest
		if err := w.Unmarshal(raw); err != nil {
			t.Fatal(err)
		}
		for _, s := range w.Timeseries {
			add(s.ToLabels(&builder, nil), len(s.Samples), s.Samples[0].Timestamp, s.Samples[0].Value)
		}
		return all
	}
	var w writev2.Request
	if err := w.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	for _, s := range w.Timeseries {
		ls, err := s.ToLabels(&builder, w.Symbols)
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.ToMetadata(w.Symbols)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: "gauge"}[strings.Contains(ls.Get("__name__"), "in_flight")]; want != "" &&
			string(m.Type) != want || m.Help == "" {
			t.Fatalf("metadata %+v of %v", m, ls)
		}
		add(ls, len(s.Samples), s.Samples[0].Timestamp, s.Samples[0].Value)
	}
	return all
}

// Every load is as configured, and its totals equal what the receiver counts. In each round every series
// comes once, with the time of the round, and all requests but the last are full.
func TestLoadIsWhatWasAskedFor(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"version 1":                      nil,
		"version 2":                      func(c *Config) { c.Version = 2 },
		"one series":                     func(c *Config) { c.Series = 1 },
		"more room than series":          func(c *Config) { c.Batch = 5000 },
		"a request for each series":      func(c *Config) { c.Series, c.Batch = 20, 1 },
		"the job of another load":        func(c *Config) { c.Name = "shop" },
		"many labels":                    func(c *Config) { c.Labels = MaxLabels },
		"many labels, version 2":         func(c *Config) { c.Labels, c.Version = MaxLabels, 2 },
		"pods are replaced":              func(c *Config) { c.NewShare = 0.1 },
		"pods are replaced, version 2":   func(c *Config) { c.NewShare, c.Version = 0.1, 2 },
		"pods split over requests":       func(c *Config) { c.NewShare, c.Batch = 0.3, 77 },
		"all are replaced":               func(c *Config) { c.NewShare = 1 },
		"rounds that are a second apart": func(c *Config) { c.Interval = 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			c := small(change)
			l := mustNew(t, c)
			seen := map[string]bool{}
			var totals Totals
			for round := range 12 {
				before := len(seen)
				now := map[string]bool{}
				made := 0
				for k := range c.Requests() {
					r := l.Next(k)
					totals.Add(r)
					made += r.New
					got := read(t, c.Version, r.Body)
					if len(got) != r.Samples || len(got) != c.Batch && k < c.Requests()-1 {
						t.Fatalf("request %d: %d samples, want %d as it claims, and %d unless it is the last",
							k, len(got), r.Samples, c.Batch)
					}
					for _, s := range got {
						if s.time != c.Begin+int64(round)*c.Interval || strings.Count(s.labels, "=") != c.Labels ||
							!strings.Contains(s.labels, c.Job()) {
							t.Fatalf("round %d has %+v", round, s)
						}
						now[s.labels], seen[s.labels] = true, true
					}
				}
				if len(now) != c.Series || len(seen)-before != made {
					t.Fatalf("round %d has %d series, %d of them new, want %d, %d",
						round, len(now), len(seen)-before, c.Series, made)
				}
				if round > 0 && math.Abs(float64(made)-c.NewShare*float64(c.Series)) > 2*seriesPerPod {
					t.Errorf("round %d replaces %d of %d series, want a share of %g", round, made, c.Series, c.NewShare)
				}
			}
			if totals.Samples != uint64(12*c.Series) || totals.NewSeries != uint64(len(seen)) ||
				totals.Requests != uint64(12*c.Requests()) {
				t.Errorf("totals %+v, want those of 12 rounds of %d series, with %d new ones",
					totals, c.Series, len(seen))
			}
		})
	}
}

// Counters never fall while their pod lives, and begin at zero in a new pod. Buckets and gauges are
// among the series.
func TestValues(t *testing.T) {
	l := mustNew(t, small(func(c *Config) { c.Series, c.Batch, c.NewShare = 200, 200, 0.125 }))
	last := map[string]float64{}
	kinds := map[string]int{}
	moved := 0
	for round := range 20 {
		for _, s := range read(t, 1, l.Next(0).Body) {
			before, known := last[s.labels]
			switch {
			case strings.Contains(s.labels, "in_flight") || strings.Contains(s.labels, "last_size"):
				kinds["gauge"]++
			case known && s.value < before:
				t.Fatalf("%s fell from %v to %v", s.labels, before, s.value)
			case !known && round > 0 && s.value >= 8:
				t.Fatalf("the new series %s began at %v, want less than 8", s.labels, s.value)
			case strings.Contains(s.labels, "_bucket"):
				kinds["bucket"]++
			default:
				kinds["counter"]++
			}
			if known && s.value != before {
				moved++
			}
			last[s.labels] = s.value
		}
	}
	if want := map[string]int{"gauge": 15 * 40, "bucket": 60 * 40, "counter": 25 * 40}; !maps.Equal(kinds, want) {
		t.Errorf("%v, want %v", kinds, want)
	}
	if moved == 0 {
		t.Error("no value ever changed")
	}
}

func TestSameConfigSameBytes(t *testing.T) {
	c := small(func(c *Config) { c.NewShare = 0.1 })
	one, same := mustNew(t, c), mustNew(t, c)
	c.Seed++
	other := mustNew(t, c)
	for range 3 {
		// Requests are independent, so another order gives the same bytes.
		for _, k := range []int{3, 0, 1} {
			one.Next(k)
		}
		for _, k := range []int{0, 1, 3} {
			same.Next(k)
		}
	}
	if a, b := one.Next(0), same.Next(0); !bytes.Equal(a.Body, b.Body) {
		t.Error("two loads of one configuration differ")
	} else if bytes.Equal(a.Body, other.Next(0).Body) {
		t.Error("another seed gave the same load")
	}
}

// A compressed request is about as long as a snappy library makes it, so that a receiver has the
// usual work.
func TestSizeIsThatOfARealSender(t *testing.T) {
	for _, version := range []int{1, 2} {
		r := mustNew(t, small(func(c *Config) { c.Series, c.Batch, c.Version = 2000, 2000, version })).Next(0)
		raw, err := snappy.Decode(nil, r.Body)
		if err != nil {
			t.Fatal(err)
		}
		real := len(snappy.Encode(nil, raw))
		if ratio := float64(len(r.Body)) / float64(real); ratio < 0.8 || ratio > 1.3 {
			t.Errorf("version %d: %d compressed bytes, want about %d as from a library", version, len(r.Body), real)
		}
		if len(raw) != r.Raw {
			t.Errorf("version %d: %d uncompressed bytes, want %d as the request claims", version, len(raw), r.Raw)
		}
	}
}

// Some bytes of an input change from request to request. They can be overwritten in the compressed body,
// whatever the bytes between them are.
func TestCompressWithRoles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var c compressor
	for n := range 400 {
		src := make([]byte, random.IntN(1+n*300)) // some inputs are longer than the longest offset
		roles := make([]role, len(src))
		for i := range src {
			src[i] = byte(random.IntN(1 + n%5)) // one value makes long copies, several values make few copies
		}
		for at := random.IntN(100); at+timeBytes < len(src); at += 20 + random.IntN(1+n) {
			for i := range timeBytes {
				src[at+i], roles[at+i] = 0, firstTime+role(i)
			}
			for i := at - random.IntN(1+min(at, 10)); i < at; i++ {
				roles[i] = free
			}
		}
		body, changing := c.compress(src, roles)
		when := []byte{11, 12, 13, 14, 15, 16}
		for _, w := range changing {
			v := byte(random.Uint32())
			if at := roles[w.from]; at != free {
				v = when[at-firstTime]
			} else {
				src[w.from] = v
			}
			body[w.at] = v
		}
		for i, r := range roles {
			if r >= firstTime && r <= lastTime {
				src[i] = when[r-firstTime]
			}
		}
		if got, err := snappy.Decode(nil, body); err != nil || !bytes.Equal(got, src) {
			t.Fatalf("input %d (%d bytes) is decoded to other bytes: %v", n, len(src), err)
		}
	}
}

func TestTimes(t *testing.T) {
	for _, at := range []int64{minTime, begin, maxTime} {
		var b [timeBytes]byte
		putTime(b[:], at)
		message := append([]byte{timeTag}, b[:]...)
		var s prompb.Sample
		if err := s.Unmarshal(message); err != nil || s.Timestamp != at {
			t.Errorf("time %d is read as %d, error %v", at, s.Timestamp, err)
		}
	}
}

// Pods are replaced in order, and no pod is replaced more often than its neighbours.
func TestGenerations(t *testing.T) {
	c := small(func(c *Config) { c.Series, c.NewShare = 400, 0.375 }) // 4 pods, of which 1.5 are replaced a round
	var got []string
	for round := range 6 {
		var pods []int
		for pod := range 4 {
			pods = append(pods, c.generation(pod, round))
		}
		got = append(got, fmt.Sprint(pods))
	}
	want := []string{"[0 0 0 0]", "[1 0 0 0]", "[1 1 1 0]", "[1 1 1 1]", "[2 2 1 1]", "[2 2 2 1]"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestMistakesSayWhatToDo(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"version 3 of remote write: must be 1 or 2":          func(c *Config) { c.Version = 3 },
		"0 series: must be 1 to 10000000":                    func(c *Config) { c.Series = 0 },
		"6 labels: must be 7 to 50":                          func(c *Config) { c.Labels = 6 },
		"0 samples a request: must be 1 to 100000":           func(c *Config) { c.Batch = 0 },
		"0 ms between rounds: must be 1 or more":             func(c *Config) { c.Interval = 0 },
		"must be a time between 1971 and 2109":               func(c *Config) { c.Begin = 0 },
		"share of new series: must be 0 to 1, got NaN":       func(c *Config) { c.NewShare = math.NaN() },
		"share of new series: must be 0 to 1, got 1.5":       func(c *Config) { c.NewShare = 1.5 },
		"100001 samples a request: must be 1 to 100000":      func(c *Config) { c.Batch = MaxBatch + 1 },
		"51 labels: must be 7 to 50":                         func(c *Config) { c.Labels = MaxLabels + 1 },
		"10000001 series: must be 1 to 10000000":             func(c *Config) { c.Series = MaxSeries + 1 },
		"-1 ms between rounds: must be 1 or more":            func(c *Config) { c.Interval = -1 },
		"the first samples are at 4398046511103 ms: must be": func(c *Config) { c.Begin = maxTime },
	} {
		if _, err := New(small(change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

// Bound: 40 ns for a sample and no allocation. A receiver takes 300 ns or more for a sample, so a
// measurement shows the receiver's cost and not the load's.
func BenchmarkNext(b *testing.B) {
	c := small(func(c *Config) { c.Series, c.Batch = 100_000, 2000 })
	l := mustNew(b, c)
	b.ReportAllocs()
	samples := 0
	for i := 0; b.Loop(); i++ {
		samples += l.Next(i % c.Requests()).Samples
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(samples), "ns/sample")
}
