//go:build unix

package clients_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"

	"github.com/freshet-io/freshet/client"
)

// The benchmarks do the same work with our client and with datadog-go v5. Both clients aggregate all kinds
// (datadog-go calls this extended aggregation), hold up to 4096 values of a series, and flush each second
// to a UDP socket that nobody reads.

var benchTags = []string{"env:prod", "route:/api/v1/orders", "code:200"}

// The benchmarks of a kind measure a call for a known series with three tags, from one goroutine. The
// benchmarks named Parallel measure it from as many goroutines as there are processors, all on the same
// series. A handle has already looked up its name and tags; datadog-go has no handles.
//
// ns/op is CPU time of the whole process, flushes included. Other processes do not count.
// docs/performance.md has ratios from alternating turns, which `go run -C lab . -only techniques`
// measures.
//
// Bound: 0 allocs/op, and from one goroutine 100 ns by name and 50 ns by handle. So 100,000 calls a second
// cost a service a hundredth of a core by name, and half of that by handle.
func BenchmarkCounter(b *testing.B)              { benchKnown(b, 1, counter) }
func BenchmarkCounterParallel(b *testing.B)      { benchKnown(b, runtime.GOMAXPROCS(0), counter) }
func BenchmarkGauge(b *testing.B)                { benchKnown(b, 1, gauge) }
func BenchmarkGaugeParallel(b *testing.B)        { benchKnown(b, runtime.GOMAXPROCS(0), gauge) }
func BenchmarkDistribution(b *testing.B)         { benchKnown(b, 1, distribution) }
func BenchmarkDistributionParallel(b *testing.B) { benchKnown(b, runtime.GOMAXPROCS(0), distribution) }
func BenchmarkSet(b *testing.B)                  { benchKnown(b, 1, set) }
func BenchmarkSetParallel(b *testing.B)          { benchKnown(b, runtime.GOMAXPROCS(0), set) }

// kind is a kind of call. Its functions make the call with each client.
type kind struct {
	named, handle func(*client.Client) func()
	theirs        func(*statsd.Client) func()
}

var counter = kind{
	named: func(c *client.Client) func() { return func() { c.Count("shop.requests", 1, benchTags...) } },
	handle: func(c *client.Client) func() {
		h := c.NewCounter("shop.requests", benchTags...)
		return func() { h.Add(1) }
	},
	theirs: func(c *statsd.Client) func() { return func() { _ = c.Count("shop.requests", 1, benchTags, 1) } },
}

var gauge = kind{
	named: func(c *client.Client) func() { return func() { c.Gauge("shop.depth", 7, benchTags...) } },
	handle: func(c *client.Client) func() {
		h := c.NewGauge("shop.depth", benchTags...)
		return func() { h.Set(7) }
	},
	theirs: func(c *statsd.Client) func() { return func() { _ = c.Gauge("shop.depth", 7, benchTags, 1) } },
}

var distribution = kind{
	named: func(c *client.Client) func() { return func() { c.Distribution("shop.took", 7, benchTags...) } },
	handle: func(c *client.Client) func() {
		h := c.NewDistribution("shop.took", benchTags...)
		return func() { h.Record(7) }
	},
	theirs: func(c *statsd.Client) func() { return func() { _ = c.Distribution("shop.took", 7, benchTags, 1) } },
}

var set = kind{
	named: func(c *client.Client) func() { return func() { c.Set("shop.users", "4711", benchTags...) } },
	handle: func(c *client.Client) func() {
		h := c.NewSet("shop.users", benchTags...)
		return func() { h.Add("4711") }
	},
	theirs: func(c *statsd.Client) func() { return func() { _ = c.Set("shop.users", "4711", benchTags, 1) } },
}

func benchKnown(b *testing.B, goroutines int, k kind) {
	for _, by := range []struct {
		name    string
		prepare func(*client.Client) func()
	}{{"ours", k.named}, {"ours, by handle", k.handle}} {
		b.Run(by.name, func(b *testing.B) {
			c := newOurs(b, time.Second)
			benchCall(b, goroutines, by.prepare(c))
			_ = c.Close()
		})
	}
	b.Run("datadog-go", func(b *testing.B) {
		c := newTheirs(b, time.Second)
		benchCall(b, goroutines, k.theirs(c))
		_ = c.Close()
	})
}

func benchCall(b *testing.B, goroutines int, call func()) {
	call() // makes the series known
	b.ReportAllocs()
	before := cpuTime(b)
	b.ResetTimer()
	if goroutines == 1 {
		for b.Loop() {
			call()
		}
	} else {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				call()
			}
		})
	}
	b.StopTimer()
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "ns/op")
}

// BenchmarkService measures a call in a service of 1,000 series with four tags, a third each of counters,
// gauges and timings, in random order, so that cache misses count.
//
// Bound: 0 allocs/op, and 200 ns including the call's share of the flushes. So 100,000 calls a second cost
// a service a fiftieth of a core.
func BenchmarkService(b *testing.B) {
	calls := serviceCalls()
	b.Run("ours", func(b *testing.B) {
		c := newOurs(b, time.Second)
		benchService(b, calls, func(s *serviceCall) { s.ours(c) })
		_ = c.Close()
	})
	b.Run("datadog-go", func(b *testing.B) {
		c := newTheirs(b, time.Second)
		benchService(b, calls, func(s *serviceCall) { s.theirs(c) })
		_ = c.Close()
	})
}

func benchService(b *testing.B, calls []serviceCall, do func(*serviceCall)) {
	for i := range calls { // makes all series known
		do(&calls[i])
	}
	i := 0
	benchCall(b, 1, func() {
		do(&calls[i&(len(calls)-1)])
		i++
	})
}

// BenchmarkBytes measures how many bytes the same service sends for a million calls, with 100,000 calls in
// each flush.
//
// Bound: no more bytes than datadog-go, which packs values in the same way.
func BenchmarkBytes(b *testing.B) {
	calls := serviceCalls()
	report := func(b *testing.B, packets, bytes uint64) {
		b.ReportMetric(float64(packets)/float64(b.N), "packets/Mcalls")
		b.ReportMetric(float64(bytes)/float64(b.N), "bytes/Mcalls")
	}
	million := func(call func(*serviceCall), flush func()) {
		for i := range 1_000_000 {
			call(&calls[i&(len(calls)-1)])
			if i%100_000 == 99_999 {
				flush()
			}
		}
	}
	b.Run("freshet", func(b *testing.B) {
		var packets, bytes uint64
		for range b.N {
			c := newOurs(b, time.Hour)
			million(func(s *serviceCall) { s.ours(c) }, func() { _ = c.Flush(context.Background()) })
			_ = c.Close()
			s := c.Stats()
			packets, bytes = packets+s.Packets, bytes+s.Bytes
		}
		report(b, packets, bytes)
	})
	b.Run("datadog", func(b *testing.B) {
		var packets, bytes uint64
		for range b.N {
			c := newTheirs(b, time.Hour)
			million(func(s *serviceCall) { s.theirs(c) }, func() { _ = c.Flush() })
			_ = c.Close()
			t := c.GetTelemetry()
			packets, bytes = packets+t.TotalPayloadsSent+t.TotalPayloadsDropped, bytes+t.TotalBytesSent+t.TotalBytesDropped
		}
		report(b, packets, bytes)
	})
}

// serviceCall is one call of the service. Its kind is 0, 1 or 2.
type serviceCall struct {
	kind  int
	name  string
	tags  []string
	value float64
}

func (s *serviceCall) ours(c *client.Client) {
	switch s.kind {
	case 0:
		c.Count(s.name, 1, s.tags...)
	case 1:
		c.Gauge(s.name, s.value, s.tags...)
	case 2:
		c.Timing(s.name, s.duration(), s.tags...)
	}
}

func (s *serviceCall) theirs(c *statsd.Client) {
	switch s.kind {
	case 0:
		_ = c.Count(s.name, 1, s.tags, 1)
	case 1:
		_ = c.Gauge(s.name, s.value, s.tags, 1)
	case 2:
		_ = c.Timing(s.name, s.duration(), s.tags, 1)
	}
}

func (s *serviceCall) duration() time.Duration {
	return time.Duration(s.value*1000) * time.Microsecond
}

func serviceCalls() []serviceCall {
	rnd := rand.New(rand.NewPCG(1, 1))
	series := make([]serviceCall, 1000)
	for i := range series {
		series[i] = serviceCall{
			kind: i % 3,
			name: fmt.Sprintf("shop.checkout.metric%d", i%30),
			tags: []string{"env:prod", "service:checkout", fmt.Sprintf("route:/api/v1/orders/%d", i/30), "code:200"},
		}
	}
	calls := make([]serviceCall, 1<<16)
	for i := range calls {
		calls[i] = series[rnd.IntN(len(series))]
		calls[i].value = float64(rnd.IntN(1_000_000)) / 1000
	}
	return calls
}

func newOurs(b *testing.B, flush time.Duration) *client.Client {
	b.Helper()
	c, err := client.NewWithOptions(unread(b), client.Options{FlushInterval: flush})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func newTheirs(b *testing.B, flush time.Duration) *statsd.Client {
	b.Helper()
	c, err := statsd.New(unread(b), statsd.WithExtendedClientSideAggregation(), statsd.WithAggregationInterval(flush),
		statsd.WithMaxSamplesPerContext(4096), statsd.WithoutOriginDetection())
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// unread returns the address of a UDP socket that nobody reads.
func unread(b *testing.B) string {
	b.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().String()
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
