package window

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
)

// datagrams returns datagrams of 14 lines that hold each of the contexts once, in random order.
func datagrams(contexts int) [][]byte {
	order := rand.New(rand.NewPCG(1, 2)).Perm(contexts)
	all := make([][]byte, (contexts+13)/14)
	for i, id := range order {
		all[i/14] = appendLine(all[i/14], id)
	}
	return all
}

func benchmarkTable(c limit.Config) *Table {
	tenant := limit.New(c, time.Minute, time.Hour).Tenant("default")
	table := New(&plain{}, Options{IdleWindows: 300, Limits: tenant})
	table.Start(0)
	return table
}

// reader counts datagrams of metrics as a listener does.
type reader struct {
	table  *Table
	parser dogstatsd.Parser
	lines  [MaxLines]dogstatsd.Metric
}

func (r *reader) read(packet []byte, now int64) (lines int) {
	r.parser.Reset(packet)
	for {
		n, next := r.parser.Metrics(r.lines[:])
		r.table.Metrics(r.lines[:n], now)
		if lines += n; next == dogstatsd.End {
			return lines
		}
	}
}

// BenchmarkTable measures the cost of a metric of a known context, with parsing. Beyond some
// thousand contexts, cache misses dominate.
//
// Bound: 0 allocs/op; on one core of the CI machine 60 ns at 1,000 contexts, 75 at 10,000 and 250
// at 1,000,000, so half a million metrics a second cost 3 to 12 % of the core.
func BenchmarkTable(b *testing.B) {
	for _, contexts := range []int{1000, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("contexts=%d", contexts), func(b *testing.B) {
			table, packets := benchmarkTable(limit.Config{}), datagrams(contexts)
			r := &reader{table: table}
			for _, packet := range packets {
				r.read(packet, 0)
			}
			runtime.GC()
			b.ReportAllocs()
			metrics := 0
			for i := 0; b.Loop(); i++ {
				metrics += r.read(packets[i%len(packets)], 0)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(metrics), "ns/metric")
		})
	}
}

// BenchmarkNewContexts measures a metric of a new context, whose series gets a place or none.
//
// Bound: 1.5 us with a place and 0.7 us without one, not counting the resolver. So a storm of 100,000
// new contexts a second costs 15 % of a core, and about half of that once the limits are reached.
func BenchmarkNewContexts(b *testing.B) {
	for _, test := range []struct {
		name   string
		config limit.Config
	}{{"place", limit.Config{}}, {"none", limit.Config{MaxSeries: 1}}} {
		b.Run(test.name, func(b *testing.B) {
			const contexts = 500_000
			packets := datagrams(contexts)
			r := &reader{}
			b.ReportAllocs()
			metrics := 0
			for i := 0; b.Loop(); i++ {
				if i%len(packets) == 0 {
					b.StopTimer()
					r.table = benchmarkTable(test.config)
					runtime.GC()
					b.StartTimer()
				}
				metrics += r.read(packets[i%len(packets)], int64(i))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(metrics), "ns/metric")
		})
	}
}

// BenchmarkFlush measures a window of a million series: how long the flusher takes for a series, and how
// long the reader takes to close the window.
//
// Bounds: 150 ns a series for the flusher, so a million series a second cost 15 % of a core; and 2 ms
// for the reader to close the window.
func BenchmarkFlush(b *testing.B) {
	const contexts = 1_000_006
	table := benchmarkTable(limit.Config{})
	var out batch.Writer
	now := int64(0)
	var closing time.Duration
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		count(table, contexts, now)
		now += 1e9
		begun := time.Now()
		w, _ := table.Close(now)
		closing += time.Since(begun)
		b.StartTimer()
		for done := false; !done; {
			out.Begin(batch.Header{Tenant: []byte("default"), Second: w.Second})
			done = w.Flush(&out, 8<<20)
			out.End()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/contexts, "ns/series")
	b.ReportMetric(float64(closing.Microseconds())/float64(b.N), "us/close")
}
