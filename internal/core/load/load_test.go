package load

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

func mustNew(t testing.TB, c Config) *Load {
	t.Helper()
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ringOf returns each packet of the ring once.
func ringOf(l *Load) Packets { return l.Next(len(l.tallies)) }

// reading is what a receiver reads from packets.
type reading struct {
	Totals
	contexts map[string]int // how often each context was seen
	kinds    map[string]string
	longest  int
}

func read(t *testing.T, all ...Packets) reading {
	t.Helper()
	r := reading{contexts: map[string]int{}, kinds: map[string]string{}}
	var parser dogstatsd.Parser
	for _, packets := range all {
		for packet := range slices.Chunk(packets.Data, packets.Size) {
			r.Packets++
			r.Bytes += uint64(len(packet))
			r.longest = max(r.longest, len(packet))
			for parser.Reset(packet); ; {
				line := parser.Next()
				if line == dogstatsd.End {
					break
				}
				r.add(t, line, &parser.Metric)
			}
		}
	}
	if parser.Malformed != [dogstatsd.NumReasons]uint64{} || parser.UnknownFields != 0 {
		t.Errorf("malformed lines %v, unknown fields %d", parser.Malformed, parser.UnknownFields)
	}
	return r
}

var kindOfType = map[dogstatsd.Type]Kind{
	dogstatsd.Count: Counter, dogstatsd.Gauge: Gauge, dogstatsd.Timing: Timer,
	dogstatsd.Histogram: Histogram, dogstatsd.Distribution: Distribution, dogstatsd.Set: Set,
}

func (r *reading) add(t *testing.T, line dogstatsd.Line, m *dogstatsd.Metric) {
	t.Helper()
	if line != dogstatsd.MetricLine {
		t.Fatalf("got line %v, want only metrics", line)
	}
	kind := kindOfType[m.Type]
	if known, ok := r.kinds[string(m.Name)]; ok && known != kind.String() {
		t.Fatalf("the name %s has two kinds, %s and %v", m.Name, known, kind)
	}
	r.kinds[string(m.Name)] = kind.String()
	r.contexts[string(m.Name)+"#"+string(m.Tags)]++
	r.Metrics++
	r.Kinds[kind]++
	if kind == Counter {
		r.CounterSum += uint64(m.Values[0])
	}
}

// Every load is as configured, and its totals equal the receiver's counts.
func TestLoadIsWhatWasAskedFor(t *testing.T) {
	standard := Standard()
	with := func(change func(*Config)) Config {
		c := standard
		change(&c)
		return c
	}
	for name, c := range map[string]Config{
		"standard":                 standard,
		"one context":              with(func(c *Config) { c.Contexts = 1 }),
		"one metric a packet":      with(func(c *Config) { c.MetricsPerPacket = 1 }),
		"as many as fit":           with(func(c *Config) { c.MetricsPerPacket, c.PacketSize = 0, 8192 }),
		"no tags":                  with(func(c *Config) { c.Tags = 0 }),
		"one tag":                  with(func(c *Config) { c.Tags = 1 }),
		"two tags":                 with(func(c *Config) { c.Tags = 2 }),
		"many tags":                with(func(c *Config) { c.Tags, c.MetricsPerPacket = MaxTags, 1 }),
		"more contexts":            with(func(c *Config) { c.Contexts = 12_345 }),
		"only gauges":              with(func(c *Config) { c.Kinds = Mix{Gauge: 1} }),
		"another seed":             with(func(c *Config) { c.Seed = 99 }),
		"longest datagram":         with(func(c *Config) { c.PacketSize, c.MetricsPerPacket = MaxPacket, 0 }),
		"fewer contexts than fit":  with(func(c *Config) { c.Contexts = 5 }),
		"contexts that end packet": with(func(c *Config) { c.Contexts = 14 }),
	} {
		t.Run(name, func(t *testing.T) {
			packets := ringOf(mustNew(t, c))
			var totals Totals
			totals.Add(packets)
			got := read(t, packets)
			if got.Totals != totals {
				t.Errorf("the load's totals are %+v, a receiver counts %+v", totals, got.Totals)
			}
			if len(got.contexts) != c.Contexts {
				t.Errorf("%d contexts, want %d", len(got.contexts), c.Contexts)
			}
			each := int(totals.Metrics) / c.Contexts
			for context, n := range got.contexts {
				if n != each {
					t.Fatalf("%s came %d times, want %d", context, n, each)
				}
			}
			for k, n := range totals.Kinds {
				want := float64(totals.Metrics) * float64(c.Kinds[k]) / float64(c.Kinds.total())
				if diff := float64(n) - want; diff > float64(each) || diff < -float64(each) {
					t.Errorf("%d metrics of kind %v, want about %.0f", n, Kind(k), want)
				}
			}
			checkPackets(t, c, packets)
		})
	}
}

// checkPackets checks that all packets but the last are full and equally long.
func checkPackets(t *testing.T, c Config, p Packets) {
	t.Helper()
	if p.Len() < MinPackets {
		t.Errorf("the ring has %d packets", p.Len())
	}
	tags := max(0, c.Tags-1) // commas
	for i, packet := range slices.Collect(slices.Chunk(p.Data, p.Size)) {
		full := len(packet) == p.Size && bytes.Count(packet, []byte("\n")) == c.PerPacket()-1
		if len(packet) > c.PacketSize || !full && i < p.Len()-1 {
			t.Fatalf("packet %d of %d has %d bytes: %q", i, p.Len(), len(packet), packet)
		}
		for line := range bytes.SplitSeq(packet, []byte("\n")) {
			if len(line) != c.LineBytes() || bytes.Count(line, []byte(",")) != tags ||
				bytes.Contains(line, []byte("#")) != (c.Tags > 0) {
				t.Fatalf("a line has %d bytes, want %d bytes and %d commas: %q", len(line), c.LineBytes(), tags, line)
			}
		}
	}
}

// A name has several contexts, like a metric of several hosts. A single context has the kind with
// the greatest weight.
func TestNames(t *testing.T) {
	c := Standard()
	if names := len(read(t, ringOf(mustNew(t, c))).kinds); names < c.Contexts/contextsPerName ||
		names > c.Contexts/contextsPerName+int(NumKinds) {
		t.Errorf("%d names for %d contexts, want about %d", names, c.Contexts, c.Contexts/contextsPerName)
	}
	c.Contexts = 1
	if kinds := read(t, ringOf(mustNew(t, c))).Kinds; kinds[Counter] == 0 {
		t.Errorf("metrics by kind: %v", kinds)
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	c := Standard()
	c.NewShare = 0.1
	one, same := mustNew(t, c), mustNew(t, c)
	c.Seed++
	other := mustNew(t, c)
	for range 3 * len(one.tallies) / 100 { // goes through the ring more than once
		a, b := one.Next(100), same.Next(100)
		if !bytes.Equal(a.Data, b.Data) {
			t.Fatal("two loads of one seed differ")
		}
		if bytes.Equal(a.Data, other.Next(100).Data) {
			t.Fatal("another seed gave the same load")
		}
	}
}

// The next round has another order, so that a receiver cannot rely on the order.
func TestOrderIsScattered(t *testing.T) {
	c := Standard()
	c.MetricsPerPacket = 1
	all := ringOf(mustNew(t, c))
	packets := slices.Collect(slices.Chunk(all.Data, all.Size))
	name := func(i int) string {
		line := string(packets[i])
		return line[:strings.IndexByte(line, ':')] + line[strings.IndexByte(line, '#'):]
	}
	position := map[string]int{}
	for i := range c.Contexts {
		position[name(i)] = i
	}
	neighbours := 0
	for i := c.Contexts + 1; i < 2*c.Contexts; i++ {
		if d := position[name(i)] - position[name(i-1)]; d == 1 || d == -1 {
			neighbours++
		}
	}
	if neighbours > c.Contexts/50 {
		t.Errorf("%d of %d neighbours are still neighbours in the next round", neighbours, c.Contexts)
	}
}

// New contexts come at the configured share, and each only once, however often the ring is
// replayed.
func TestNewContextsComeOnce(t *testing.T) {
	for _, share := range []float64{0.001, 0.1, 0.5, MaxNewShare} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			c := Standard()
			c.NewShare = share
			l := mustNew(t, c)
			seen := map[string]int{}
			var totals Totals
			for range 3 * len(l.tallies) / MinPackets {
				packets := l.Next(MinPackets)
				totals.Add(packets)
				for context, n := range read(t, packets).contexts { // read before the packets are overwritten
					seen[context] += n
				}
			}
			news := 0
			for context, n := range seen {
				if strings.Contains(context, ".new#pod:") {
					if n > 1 {
						t.Fatalf("%s came %d times", context, n)
					}
					news++
				}
			}
			if news != int(totals.NewContexts) || len(seen)-news != c.Contexts {
				t.Errorf("%d new contexts and %d others; the totals have %d new contexts",
					news, len(seen)-news, totals.NewContexts)
			}
			if got := float64(news) / float64(totals.Metrics); got < share*0.98 || got > share*1.02 {
				t.Errorf("%.4f of the metrics are of new contexts", got)
			}
		})
	}
}

func TestCut(t *testing.T) {
	l := mustNew(t, Standard())
	all := ringOf(l)
	for _, n := range []int{0, 1, all.Len() - 1, all.Len()} {
		first, rest := all.Cut(n)
		var parts, whole Totals
		parts.Add(first)
		parts.Add(rest)
		whole.Add(all)
		if first.Len() != n || parts != whole || !bytes.Equal(append(bytes.Clone(first.Data), rest.Data...), all.Data) {
			t.Errorf("cut at %d of %d packets: got %+v, want %+v", n, all.Len(), parts, whole)
		}
	}
}

func TestMixReadsItself(t *testing.T) {
	for text, want := range map[string]string{
		"c:50,g:20,ms:15,h:5,d:5,s:5": "c:50,g:20,ms:15,h:5,d:5,s:5",
		"c":                           "c:1",
		"ms,g:3":                      "g:3,ms:1",
		"c:1,c:2":                     "c:3",
		"":                            `"": is not a kind with its weight; write a mix such as c:50,g:20,ms:15,h:5,d:5,s:5`,
		"x:1": `"x:1": is not a kind with its weight; write a mix such as c:50,g:20,` +
			`ms:15,h:5,d:5,s:5`,
		"c:-1": `"c:-1": is not a kind with its weight; write a mix such as c:50,g:20,ms:15,h:5,d:5,s:5`,
		"c:0":  `"c:0": give at least one kind a weight above 0`,
	} {
		m, err := ParseMix(text)
		got := m.String()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestMistakesSayWhatToDo(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"0 contexts: must be 1 to 2000000":                          func(c *Config) { c.Contexts = 0 },
		"51 tags: must be 0 to 50":                                  func(c *Config) { c.Tags = 51 },
		"packets of 70000 bytes: must be 65507 or less":             func(c *Config) { c.PacketSize = 70_000 },
		"packets of 64 bytes: a metric with 4 tags takes 100 bytes": func(c *Config) { c.PacketSize = 64 },
		"15 metrics a packet: with 4 tags they take 1514 bytes, but a packet has " +
			"1432": func(c *Config) { c.MetricsPerPacket = 15 },
		"share of new contexts: must be 0 to 0.95 of all metrics, got 1": func(c *Config) { c.NewShare = 1 },
		"new contexts differ by a tag: set at least 1 tag": func(c *Config) {
			c.NewShare, c.Tags = 0.5, 0
		},
		"no kinds: write a mix such as c:50,g:20,ms:15,h:5,d:5,s:5":       func(c *Config) { c.Kinds = Mix{} },
		"-1 metrics a packet: must be 1 or more, or 0 for as many as fit": func(c *Config) { c.MetricsPerPacket = -1 },
		"182641030432767838 metrics a packet: too many for the longest packet, which has 65507 bytes": func(c *Config) {
			c.MetricsPerPacket = 182641030432767838 // multiplied by the length of a line, this overflows to 22 bytes
		},
		"the load takes 3852 MiB of memory; the limit is 1024: choose fewer contexts, tags or new contexts": func(c *Config) {
			c.Contexts, c.NewShare = 1_000_000, 0.95
		},
	} {
		c := Standard()
		change(&c)
		if _, err := New(c); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	c := Standard()
	c.NewShare = 0.1
	l := mustNew(t, c)
	var totals Totals
	if n := testing.AllocsPerRun(1000, func() { totals.Add(l.Next(64)) }); n != 0 {
		t.Errorf("%v allocations for 64 packets", n)
	}
}

// Bound: 0 allocs/op and at most 5 ns for a metric if a tenth of the contexts are new, so that
// nearly all of a sender's cost is the kernel's.
func BenchmarkNext(b *testing.B) {
	for _, share := range []float64{0, 0.1} {
		b.Run("new="+strconv.FormatFloat(share, 'g', -1, 64), func(b *testing.B) {
			c := Standard()
			c.NewShare = share
			l := mustNew(b, c)
			b.ReportAllocs()
			var totals Totals
			for b.Loop() {
				totals.Add(l.Next(64))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(totals.Metrics), "ns/metric")
		})
	}
}
