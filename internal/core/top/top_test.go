package top

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
)

func key(kind series.Kind, pairs ...string) []byte {
	return series.AppendKey(nil, kind, labels.FromStrings(pairs...))
}

func udp(text string) sender.Sender { return sender.Sender{Addr: netip.MustParseAddrPort(text)} }

func TestMetrics(t *testing.T) {
	m := NewMetrics()
	for second := int64(100); second < 120; second++ {
		m.Add(second, key(series.Counter, "__name__", "a", "x", "1"), 3)
		m.Add(second, key(series.Counter, "__name__", "a", "x", "2"), 2)
		m.Add(second, key(series.Timer, "__name__", "b"), uint64(second))
	}
	for _, test := range []struct {
		why      string
		from, to int64
		want     []Metric
	}{
		{"whole seconds, most samples first", 117, 119, []Metric{{"b", series.Timer, 117 + 118}, {"a", series.Counter, 10}}},
		{"as far back as rates look, with the open second and one more",
			108, 118, []Metric{{"b", series.Timer, 1125}, {"a", series.Counter, 50}}},
		{"too long ago", 90, 107, nil},
		{"in the future", 120, 130, nil},
	} {
		if got, rest := m.Busiest(test.from, test.to, 10); !slices.Equal(got, test.want) || rest != (Rest{}) {
			t.Errorf("%s: got %v and rest %v, want %v and no rest", test.why, got, rest, test.want)
		}
	}
	kept, rest := m.Busiest(117, 119, 1)
	if len(kept) != 1 || kept[0].Name != "b" || rest != (Rest{1, Amount{Count: 10}}) {
		t.Errorf("cut to one row: got %v and rest %v, want metric b and a rest of 10 samples, those of metric a",
			kept, rest)
	}
}

// Metrics beyond the bound are counted together, until idle ones make room.
func TestMetricsAreBounded(t *testing.T) {
	m := NewMetrics()
	for i := range maxMetrics + 5 {
		m.Add(100, key(series.Counter, "__name__", fmt.Sprint("m", i)), 1)
	}
	if _, rest := m.Busiest(100, 101, 10); m.Len() != maxMetrics || rest.Count != maxMetrics+5-10 {
		t.Errorf("%d metrics, %d samples beyond the ten busiest; want %d metrics, %d samples",
			m.Len(), rest.Count, maxMetrics, maxMetrics-5)
	}
	m.Add(100+Span, key(series.Counter, "__name__", "m1"), 1)
	m.Add(101+Span, key(series.Counter, "__name__", "new"), 1)
	if kept, _ := m.Busiest(101+Span, 102+Span, 10); m.Len() != 2 || len(kept) != 1 || kept[0].Name != "new" {
		t.Errorf("%d metrics, of which %v are busy; want 2 metrics, of which only the new one is busy", m.Len(), kept)
	}
}

// Samples are counted even if the clock goes back, or is before 1970.
func TestClockGoesBack(t *testing.T) {
	m := NewMetrics()
	for _, second := range []int64{1000, 990, -5, 990} {
		m.Add(second, key(series.Counter, "__name__", "a"), 1)
	}
	if kept, _ := m.Busiest(990, 991, 1); len(kept) != 1 || kept[0].Samples != 2 {
		t.Errorf("got %v", kept)
	}
}

func TestNoAllocations(t *testing.T) {
	m, k := NewMetrics(), key(series.Counter, "__name__", "a", "x", "1")
	tally, from := new(Tally), udp("192.0.2.1:9")
	allocs := testing.AllocsPerRun(100, func() {
		m.Add(100, k, 1)
		tally.Add(from, 10, 2)
		tally.Malformed(from, 1, "bad_value", []byte("a:x|c"))
		tally.Reset()
	})
	if allocs != 0 {
		t.Errorf("%v allocations a sample", allocs)
	}
	for i := range maxMetrics {
		m.Add(100, key(series.Counter, "__name__", fmt.Sprint("m", i)), 1)
	}
	beyond := key(series.Counter, "__name__", "beyond the bound")
	if allocs := testing.AllocsPerRun(100, func() { m.Add(100, beyond, 1) }); allocs != 0 {
		t.Errorf("%v allocations a sample of a metric without a row", allocs)
	}
}

// window adds the datagrams of one second to s.
func window(s *Senders, second int64, sent map[sender.Sender]int) {
	tally := new(Tally)
	for from, n := range sent {
		for range n {
			tally.Add(from, 100, 0)
		}
	}
	s.Add(second, tally)
}

func TestSenders(t *testing.T) {
	s := NewSenders()
	process := sender.Sender{PID: 7, UID: 1000}
	for second := int64(100); second < 103; second++ {
		window(s, second, map[sender.Sender]int{udp("192.0.2.1:9"): 3, udp("192.0.2.1:10"): 2, process: 4, {}: 1})
	}
	got, rest := s.Busiest(100, 102, 3)
	want := []SenderRow{
		{process, 0, Amount{Count: 8, Bytes: 800}, nil},
		{udp("192.0.2.1:9"), 0, Amount{Count: 6, Bytes: 600}, nil},
		{udp("192.0.2.1:10"), 0, Amount{Count: 4, Bytes: 400}, nil},
	}
	if !reflect.DeepEqual(got, want) || rest != (Rest{1, Amount{Count: 2, Bytes: 200}}) {
		t.Errorf("got %v and %v", got, rest)
	}
}

// A shell's echo uses another port each time. All its ports are one row for the host, while ports of
// other hosts keep rows of their own.
func TestHostWithManyPorts(t *testing.T) {
	s := NewSenders()
	sent := map[sender.Sender]int{udp("192.0.2.2:1"): 5}
	for port := range maxPorts + 1 {
		sent[sender.Sender{Addr: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(port+1))}] = 1
	}
	window(s, 100, sent)
	got, _ := s.Busiest(100, 101, 10)
	want := []SenderRow{
		{udp("192.0.2.1:0"), maxPorts + 1, Amount{Count: maxPorts + 1, Bytes: 100 * (maxPorts + 1)}, nil},
		{udp("192.0.2.2:1"), 0, Amount{Count: 5, Bytes: 500}, nil},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

// Memory is bounded, however many ports and processes send. Each datagram is counted once, and a host is
// listed even if there is no room for its port.
func TestSendersAreBounded(t *testing.T) {
	s := NewSenders()
	tally := new(Tally)
	for port := range 60_000 {
		tally.Add(sender.Sender{Addr: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(port+1))}, 1, 0)
	}
	for range 5 {
		tally.Add(udp("192.0.2.2:1"), 1, 0)
	}
	for pid := range int32(5000) {
		tally.Add(sender.Sender{PID: pid + 1}, 1, 0)
	}
	for i := range 5000 {
		tally.Add(sender.Sender{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1)}, 1, 0)
	}
	if len(tally.amounts) > 2*maxSenders {
		t.Errorf("a tally of %d rows", len(tally.amounts))
	}
	s.Add(100, tally)
	if s.Len() > 2*maxSenders {
		t.Errorf("%d rows", s.Len())
	}
	rows, rest := s.Busiest(100, 101, 2)
	sum := rest.Amount
	for _, r := range rows {
		sum.add(r.Amount)
	}
	if sum.Count != 60_000+5+5000+5000 || sum.Bytes != sum.Count {
		t.Errorf("%+v in all rows", sum)
	}
	if len(rows) != 2 || rows[0].Sender != udp("192.0.2.1:0") || rows[0].Count != 60_000 ||
		rows[1].Sender != udp("192.0.2.2:0") || rows[1].Count != 5 {
		t.Errorf("got %v", rows)
	}
}

func TestLabels(t *testing.T) {
	var keys [][]byte
	for i := range 30 {
		keys = append(keys,
			key(series.Counter, "__name__", "logins", "user", fmt.Sprint("u", i), "zone", "eu", "odd", fmt.Sprint(i%2)),
			key(series.Gauge, "__name__", "depth", "queue", fmt.Sprint("q", i%3)))
	}
	want := []Label{
		{"logins", "user", 30, []string{"u0", "u1", "u10"}},
		{"depth", "queue", 3, []string{"q0", "q1", "q2"}},
		{"logins", "odd", 2, []string{"0", "1"}},
	}
	for limit := range 5 {
		got := Labels(keys, limit)
		if wanted := want[:min(limit, len(want))]; !slices.EqualFunc(got, wanted, func(a, b Label) bool {
			return a.Metric == b.Metric && a.Name == b.Name && a.Values == b.Values && slices.Equal(a.Examples, b.Examples)
		}) {
			t.Errorf("limit %d: got %v, want %v", limit, got, wanted)
		}
	}
}

// Bound: 150 ms for 100,000 series of four labels. Labels runs every 5 s while a client asks for it.
func BenchmarkLabels(b *testing.B) {
	keys := make([][]byte, 100_000)
	for i := range keys {
		keys[i] = key(series.Counter, "__name__", fmt.Sprint("m", i%100), "host", "web-1", "user", fmt.Sprint(i), "path",
			fmt.Sprint(i%7))
	}
	b.ReportAllocs()
	for b.Loop() {
		Labels(keys, 100)
	}
}

// Bound: 0 allocs/op and 60 ns a datagram.
func BenchmarkTally(b *testing.B) {
	tally := new(Tally)
	senders := make([]sender.Sender, 100)
	for i := range senders {
		senders[i] = sender.Sender{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 4000)}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		tally.Add(senders[i%len(senders)], 100, 0)
		i++
	}
}
