package server

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// BenchmarkStages compares the cost of requests with and without watching the stages.
//
// Bound: the figure %-more is below 1 at 100 samples a request, so watching costs less than 1 % of the
// time.
func BenchmarkStages(b *testing.B) {
	byTurns(b, 10, func(s *server, on bool) (end func()) {
		s.receiver.Watch = nil
		if on {
			s.receiver.Watch = s.watch
		}
		return func() {}
	})
}

// BenchmarkFlight compares the cost of requests with and without the flight recorder.
//
// Bound: at 100 samples a request, the figure %-more is up to 15. Therefore the flight recorder can be
// turned off. At 2000 samples a request, this figure is within the noise.
func BenchmarkFlight(b *testing.B) {
	byTurns(b, 400, func(_ *server, on bool) (end func()) {
		if !on {
			return func() {}
		}
		f := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: 5 * time.Second, MaxBytes: 8 << 20})
		if err := f.Start(); err != nil {
			b.Fatal(err)
		}
		return f.Stop
	})
}

// byTurns writes the same requests alternately with a feature on and off, and compares the
// processor time of the whole process. The turns are so short that occasional work, such as a
// garbage collection, hits both equally.
func byTurns(b *testing.B, requests int, turn func(s *server, on bool) (end func())) {
	for _, samples := range []int{100, 500, 2000} {
		b.Run(fmt.Sprintf("samples=%d", samples), func(b *testing.B) {
			s := running(b, `
data_dir: `+b.TempDir()+`
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "", unix: "", unixgram: ""}
self: {metrics: false, probe: false, recorder: {flight: false, budgets: false}}
`)
			load := newLoad(b, samples)
			ratios := []float64{}
			var spent [2]time.Duration // index 0: off, 1: on
			for b.Loop() {
				// Other work may slow down one place in the order. So the turns with "on" and those with
				// "off" take each place equally often.
				order := slices.Repeat([]int{0, 1, 1, 0, 1, 0, 0, 1}, max(1, 400/requests))
				bodies := make([][]byte, len(order)*requests)
				for k := range bodies {
					bodies[k] = slices.Clone(load.Next(0).Body)
				}
				var round [2]time.Duration
				for k, on := range order {
					end := turn(s, on == 1)
					before := processorTime()
					for _, body := range bodies[k*requests : (k+1)*requests] {
						s.writeOne(b, body)
					}
					round[on] += processorTime() - before
					end()
				}
				ratios = append(ratios, round[1].Seconds()/round[0].Seconds())
				spent[0], spent[1] = spent[0]+round[0], spent[1]+round[1]
			}
			slices.Sort(ratios)
			n := len(ratios)
			b.ReportMetric(100*(ratios[n/2]-1), "%-more")
			// With a probability of 95 %, the median lies between these two figures.
			spread := int(math.Sqrt(float64(n)))
			b.ReportMetric(100*(ratios[max(0, n/2-spread)]-1), "%-least")
			b.ReportMetric(100*(ratios[min(n-1, n/2+spread)]-1), "%-most")
			b.ReportMetric(float64(spent[0].Microseconds())/float64(n*8*max(1, 400/requests)*requests/2), "cpu-us/request")
		})
	}
}

func newLoad(b *testing.B, samples int) *remoteload.Load {
	b.Helper()
	c := remoteload.Standard()
	c.Series, c.Batch, c.Begin, c.Interval = samples, samples, time.Now().Add(-time.Hour).UnixMilli(), 1
	load, err := remoteload.New(c)
	if err != nil {
		b.Fatal(err)
	}
	return load
}

func (s *server) writeOne(b *testing.B, body []byte) {
	r := httptest.NewRequestWithContext(tenant.NewContext(b.Context(), tenant.Default), http.MethodPost, "/api/v1/write",
		bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/x-protobuf")
	w := httptest.NewRecorder()
	s.receiver.RemoteWrite(w, r)
	if w.Code != http.StatusNoContent {
		b.Fatal(w.Code, w.Body)
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The manual lists the bounds of the classic buckets, which Prometheus gets by default.
func TestTheManualHasTheClassicBuckets(t *testing.T) {
	text, err := os.ReadFile("../../docs/stages.md")
	if err != nil {
		t.Fatal(err)
	}
	var ends []string
	for _, bound := range stageBuckets {
		digits := max(0, 2-int(math.Floor(math.Log10(bound*1e3)))) // three significant digits
		ends = append(ends, strconv.FormatFloat(bound*1e3, 'f', min(digits, 3), 64))
	}
	for i, end := range ends {
		if strings.Contains(end, ".") {
			ends[i] = strings.TrimRight(strings.TrimRight(end, "0"), ".")
		}
	}
	last := len(ends) - 1
	want := strings.Join(ends[:last], ", ") + " and " + ends[last] + " ms"
	if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
		t.Errorf("docs/stages.md does not have %q", want)
	}
}
