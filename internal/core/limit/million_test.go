package limit

import (
	"fmt"
	"net/netip"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
)

const million = 1_000_000

// flood makes keys of series of 100 metrics, with four labels besides the name.
type flood struct {
	keys [100][]byte
	id   [100][]byte // in the keys
}

func newFlood() *flood {
	f := &flood{}
	for i := range f.keys {
		f.keys[i] = series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", fmt.Sprint("http_requests_", i),
			"id", "0000000000", "method", "GET", "route", "/cart/"+strings.Repeat("x", i%16), "status", "200"))
		at := strings.Index(string(f.keys[i]), "0000000000")
		f.id[i] = f.keys[i][at : at+10]
	}
	return f
}

// key returns the key of a series by its number. The flood owns the memory of the key, and may overwrite
// it in the next call.
func (f *flood) key(id int) []byte {
	digits := f.id[id%len(f.id)]
	for i, n := len(digits)-1, id/len(f.id); i >= 0; i, n = i-1, n/10 {
		digits[i] = byte('0' + n%10)
	}
	return f.keys[id%len(f.keys)]
}

// fill gives places to a million series.
func (f *flood) fill(tenant *Tenant) []Place {
	places := make([]Place, million)
	for id := range places {
		places[id] = tenant.Admit(begin, &Claim{Key: f.key(id), Samples: 1}).Place
	}
	return places
}

// heap returns the memory in use, and how much of it the garbage collector scans, in bytes.
func heap() (used, scanned int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	scan := []metrics.Sample{{Name: "/gc/scan/heap:bytes"}}
	metrics.Read(scan)
	return int(m.HeapAlloc), int(scan[0].Value.Uint64())
}

func TestAMillionSeries(t *testing.T) {
	f := newFlood()
	tenant := newTenant(Config{})
	used, scanned := heap()
	keyBytes := 0
	for id := range million {
		key := f.key(id)
		keyBytes += len(key)
		tenant.Admit(begin, &Claim{Key: key, Samples: 1})
	}
	usedThen, scannedThen := heap()
	each := float64(usedThen-used-keyBytes) / million
	t.Logf("%.1f bytes a series besides its key of %d; %d more bytes to scan", each, keyBytes/million, scannedThen-scanned)
	if each > 48 {
		t.Errorf("%.1f bytes a series besides its key, want 48 at most", each)
	}
	if more := scannedThen - scanned; more > 500_000 {
		t.Errorf("the garbage collector scans %d more bytes, want at most half a byte for each series", more)
	}
	for id := 0; id < million; id += 997 {
		key := string(f.key(id))
		if v := tenant.Admit(begin, &Claim{Key: []byte(key), Samples: 1}); string(tenant.Key(v.Place)) != key {
			t.Fatalf("series %d: the place in %+v has the key %q, want %q", id, v, tenant.Key(v.Place), key)
		}
	}
	if n := tenant.MetricSeries("http_requests_42"); n != million/100 {
		t.Errorf("%d series of a metric, want a hundredth of all", n)
	}
}

func TestClaimsDoNotAllocate(t *testing.T) {
	f := newFlood()
	tenant := newTenant(Config{MaxSeriesPerMetric: 10})
	from := sender.Sender{Addr: netip.MustParseAddrPort("10.0.0.9:5555")}
	id := 0
	c := Claim{Samples: 1, Sender: from, Container: []byte("c1")}
	claim := func() Fate {
		c.Key = f.key(id)
		return tenant.Admit(begin, &c).Fate
	}
	for id = range 10_000 { // 100 metrics displace each other among the offenders
		claim()
	}
	if allocs := testing.AllocsPerRun(1000, func() {
		if id = (id + 1) % 1000; claim() != Admitted {
			t.Fatal("a known series is turned away")
		}
	}); allocs != 0 {
		t.Errorf("%v allocations for a known series", allocs)
	}
	id = 10_000
	if allocs := testing.AllocsPerRun(1000, func() {
		if id++; claim() != FoldedMetric {
			t.Fatal("a series over the limit is admitted")
		}
	}); allocs != 0 {
		t.Errorf("%v allocations for a series over a limit", allocs)
	}
}

// Bounds: 0 allocs/op. In a tenant with a million series, 700 ns to admit a known series and let it
// leave; 1.1 µs, mostly waiting for memory, to admit a new series while another leaves; 300 ns for
// a series over a limit, so that 100,000 of these a second cost 3 % of a core. While 100 metrics
// exceed their limits, such a series takes 600 ns.
func BenchmarkAdmit(b *testing.B) {
	f := newFlood()
	tenant := newTenant(Config{})
	places := f.fill(tenant)
	from := sender.Sender{Addr: netip.MustParseAddrPort("10.0.0.9:5555")}
	c := Claim{Samples: 1, Sender: from}
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			c.Key = f.key(i * 7919 % million)
			tenant.Leave(begin, tenant.Admit(begin, &c).Place) // the series stays, since fill gave it a holder
		}
	})
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			p := &places[i*7919%million]
			tenant.Leave(begin, *p)
			c.Key = f.key(million + i)
			*p = tenant.Admit(begin, &c).Place
		}
	})
	tenant.configure(bounds{metricSeries: 1}, times{})
	for _, spread := range []int{1, 10, 100} { // metrics
		b.Run(fmt.Sprintf("over/metrics=%d", spread), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.Key = f.key(1e9 + i/spread*100 + i%spread)
				if tenant.Admit(begin, &c).Fate != FoldedMetric {
					b.Fatal("a series over the limit was admitted")
				}
			}
		})
	}
}
