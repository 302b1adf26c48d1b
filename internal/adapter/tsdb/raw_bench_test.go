package tsdb

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/write"
)

// bodies returns requests that together have all series, `size` series in each request. A series has 7
// labels. `t` is the time of their samples.
func bodies(b *testing.B, v2 bool, series, size int, t int64) (all [][]byte) {
	for from := 0; from < series; from += size {
		var one prompb.WriteRequest
		var two writev2.Request
		symbols := writev2.NewSymbolTable()
		for i := from; i < min(from+size, series); i++ {
			ls := []string{
				"__name__", fmt.Sprint("http_requests_", i%50, "_total"), "code", "200",
				"handler", fmt.Sprint("/api/v1/", i%40), "instance", fmt.Sprintf("10.0.%d.%d:9090", i%7, i%250),
				"job", "api-server", "method", "get", "pod", fmt.Sprintf("api-server-%08x", i),
			}
			var pairs []prompb.Label
			var refs []uint32
			for j := 0; j < len(ls); j += 2 {
				pairs = append(pairs, prompb.Label{Name: ls[j], Value: ls[j+1]})
				refs = append(refs, symbols.Symbolize(ls[j]), symbols.Symbolize(ls[j+1]))
			}
			one.Timeseries = append(one.Timeseries,
				prompb.TimeSeries{Labels: pairs, Samples: []prompb.Sample{{Timestamp: t, Value: float64(i)}}})
			two.Timeseries = append(two.Timeseries,
				writev2.TimeSeries{LabelsRefs: refs, Samples: []writev2.Sample{{Timestamp: t, Value: float64(i)}}})
		}
		two.Symbols = symbols.Symbols()
		body, err := one.Marshal()
		if v2 {
			body, err = two.Marshal()
		}
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, body)
	}
	return all
}

// Bound: 600 ns for each sample of a known series, including decoding and the WAL. prometheus/tsdb alone
// takes 150 to 200 ns with a known reference.
func BenchmarkWriteRequests(b *testing.B) {
	for _, c := range []struct {
		v2           bool
		series, size int
	}{{false, 100_000, 2000}, {true, 100_000, 2000}, {false, 10_000, 100}, {true, 10_000, 100}} {
		b.Run(fmt.Sprintf("v2=%v/series=%d/size=%d", c.v2, c.series, c.size), func(b *testing.B) {
			w := newWorld(b)
			now := int64(base)
			r := newRequest(&plain)
			round := func(timed bool) {
				b.StopTimer()
				now += 15_000
				w.now, r.Arrival = time.UnixMilli(now), now
				all := bodies(b, c.v2, c.series, c.size, now)
				runtime.GC()
				if timed {
					b.StartTimer()
				}
				for _, body := range all {
					decode := r.DecodeV1
					if c.v2 {
						decode = r.DecodeV2
					}
					if err := decode(body); err != nil {
						b.Fatal(err)
					}
					if err := w.stores.WriteRequests(b.Context(), "default", &w.state, []*write.Request{r}); err != nil {
						b.Fatal(err)
					}
				}
			}
			round(false)
			b.ReportAllocs()
			for range b.N {
				round(true)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.series), "ns/sample")
			if r.Outcome.AnyRefused() {
				b.Fatal(r.Outcome.Text())
			}
		})
	}
}

// BenchmarkNewSeries writes the first sample of each series of a new tenant, which opens its store, too.
func BenchmarkNewSeries(b *testing.B) {
	for _, c := range []struct{ series, size int }{{100_000, 2000}, {10_000, 100}} {
		b.Run(fmt.Sprintf("series=%d/size=%d", c.series, c.size), func(b *testing.B) {
			now := int64(base)
			all := bodies(b, false, c.series, c.size, now)
			r := newRequest(&write.Terms{})
			for b.Loop() {
				b.StopTimer()
				w := newWorld(b)
				w.now, r.Arrival = time.UnixMilli(now), now
				runtime.GC()
				b.StartTimer()
				for _, body := range all {
					if err := r.DecodeV1(body); err != nil {
						b.Fatal(err)
					}
					if err := w.stores.WriteRequests(b.Context(), "default", &w.state, []*write.Request{r}); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.series), "ns/series")
		})
	}
}

// BenchmarkLate writes ten minutes of samples of 100,000 series, and then a second pass over these minutes:
// between the times of the first pass, or at the same times with the same values.
//
// Bound: 2 us for each late sample, which is four times an ordinary one, so that a backlog after an outage leaves room
// for the present samples. tsdb takes two thirds of it.
func BenchmarkLate(b *testing.B) {
	for _, c := range []struct {
		name  string
		shift int64
	}{{"between", -7_500}, {"repeats", 0}} {
		b.Run(c.name, func(b *testing.B) {
			const rounds = 40
			w := newWorld(b)
			r := newRequest(&plain)
			load := remoteload.Standard()
			load.Begin = base
			w.now, r.Arrival = time.UnixMilli(load.Time(rounds)), load.Time(rounds)
			pass := func(load remoteload.Config, rounds int) {
				requests, err := remoteload.New(load)
				if err != nil {
					b.Fatal(err)
				}
				var body []byte
				for range rounds {
					for k := range load.Requests() {
						if body, err = remotewrite.Decompress(body, requests.Next(k).Body, 1<<30); err != nil {
							b.Fatal(err)
						}
						if err := r.DecodeV1(body); err != nil {
							b.Fatal(err)
						}
						if err := w.stores.WriteRequests(b.Context(), "default", &w.state, []*write.Request{r}); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
			load.Name = "late"
			pass(load, rounds)
			load.Begin += c.shift
			runtime.GC()
			b.ResetTimer()
			b.ReportAllocs()
			for range b.N {
				pass(load, rounds)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rounds*load.Series), "ns/sample")
			if r.Outcome.AnyRefused() {
				b.Fatal(r.Outcome.Text())
			}
		})
	}
}
