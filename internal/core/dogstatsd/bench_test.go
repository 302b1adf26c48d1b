package dogstatsd

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// load returns n datagrams of 14 metrics each. A datagram has at most 1,432 bytes, as clients fill UDP
// datagrams. A metric has about 100 bytes and 4 tags. The metrics are of mixed kinds and have 1,000
// contexts.
func load(n int) (packets [][]byte, metrics int) {
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		var b []byte
		for range 14 {
			c := r.IntN(1000)
			b = fmt.Appendf(b, "checkout.service%02d.http_request", c%40)
			switch c % 5 {
			case 0:
				b = fmt.Appendf(b, ".count:%d|c", 1+r.IntN(20))
			case 1:
				b = fmt.Appendf(b, ".open:%d|g", r.IntN(100_000))
			case 2:
				b = fmt.Appendf(b, ".time:%.6f|ms|@0.5", r.Float64()*300)
			case 3:
				b = fmt.Appendf(b, ".size:%.2f|d", r.Float64()*30_000)
			case 4:
				b = fmt.Appendf(b, ".users:u%d|s", r.IntN(5000))
			}
			b = fmt.Appendf(b, "|#env:prod,region:eu-1,instance:i-%03d,status:2%02d\n", c, c%7)
			metrics++
		}
		packets = append(packets, slices.Grow(b, slack)) // like a receiver's buffer, longer than the datagram
	}
	return packets, metrics
}

// Bound: 0 allocs/op and at most 40 ns for a metric on one core of the CI machine. So parsing a
// million metrics a second takes 4 % of a core.
func BenchmarkParser(b *testing.B) {
	packets, metrics := load(100)
	size := 0
	for _, p := range packets {
		size += len(p)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	var p Parser
	got := 0
	for b.Loop() {
		for _, packet := range packets {
			p.Reset(packet)
			for p.Next() != End {
				got++
			}
		}
	}
	if got != b.N*metrics {
		b.Fatalf("%d of %d metrics read; malformed %v", got, b.N*metrics, p.Malformed)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(got), "ns/metric")
	b.ReportMetric(float64(size)/float64(metrics), "B/metric")
}

// Bound: 25 ns for the numbers that clients usually send, and at most twice the time of strconv for
// a number beyond 2^53 or with an exponent.
func BenchmarkParseNumber(b *testing.B) {
	for _, s := range []string{"1", "48213", "12.5", "123.456789", "0.12345678901234567", "1.5e-9"} {
		b.Run(s, func(b *testing.B) {
			raw := []byte(s)
			b.ReportAllocs()
			for b.Loop() {
				if _, reason := parseNumber(raw); reason != wellFormed {
					b.Fatal(reason)
				}
			}
		})
	}
}
