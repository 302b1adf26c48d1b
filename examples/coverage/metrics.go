package main

import (
	"context"
	"math"
	"runtime"
	runtimemetrics "runtime/metrics"
	"time"

	"github.com/freshet-io/freshet/client"
	"github.com/freshet-io/freshet/slogring"
)

// Each pair of a route and a code has its own counter. All handles are made once, so that the hot path
// needs no lookup and no allocation.
const (
	routeCoverage = iota
	routeRefresh
	routeOther
	routes
)

var (
	routeNames = [routes]string{"/v1/coverage", "/-/refresh", "other"}
	codes      = [...]int{200, 400, 404, 405, 409, 500, 503}
	codeNames  = [...]string{"200", "400", "404", "405", "409", "500", "503", "other"}
)

// metrics are the service's own metrics. Freshet's docs/names.md explains their names in PromQL:
// coverage.request.time becomes coverage_request_time, a native histogram.
type metrics struct {
	requests [routes][len(codeNames)]*client.Counter
	times    [routes]*client.Timing // milliseconds

	documents, indexBytes *client.Gauge
	refreshes             map[bool]*client.Counter // true: succeeded
	refreshTime           *client.Timing
	refused               *client.Counter

	age, goroutines, heap, pause *client.Gauge
	logged                       [3]*client.Counter // log lines written, suppressed, lost
}

func newMetrics(c *client.Client) *metrics {
	m := &metrics{
		documents:  c.NewGauge("coverage.documents"),
		indexBytes: c.NewGauge("coverage.index.bytes"),
		refreshes: map[bool]*client.Counter{
			true:  c.NewCounter("coverage.refreshes", "result:ok"),
			false: c.NewCounter("coverage.refreshes", "result:failed"),
		},
		refreshTime: c.NewTiming("coverage.refresh.time"),
		refused:     c.NewCounter("coverage.documents.refused"),
		age:         c.NewGauge("coverage.index.age"),
		goroutines:  c.NewGauge("coverage.goroutines"),
		heap:        c.NewGauge("coverage.heap.bytes"),
		pause:       c.NewGauge("coverage.gc.pause.max"),
	}
	for route, name := range routeNames {
		for i, code := range codeNames {
			m.requests[route][i] = c.NewCounter("coverage.requests", "route:"+name, "code:"+code)
		}
		m.times[route] = c.NewTiming("coverage.request.time", "route:"+name)
	}
	for i, fate := range []string{"written", "suppressed", "lost"} {
		m.logged[i] = c.NewCounter("coverage.log.records", "fate:"+fate)
	}
	return m
}

// answered counts a request and its latency.
func (m *metrics) answered(route, code int, took time.Duration) {
	i := 0
	for i < len(codes) && codes[i] != code {
		i++
	}
	m.requests[route][i].Add(1)
	m.times[route].Record(took)
}

func (m *metrics) refreshed(done result, x *index) {
	m.refreshes[done.err == nil].Add(1)
	m.refreshTime.Record(done.took)
	m.refused.Add(float64(done.refused))
	if x != nil {
		m.documents.Set(float64(len(x.rows)))
		m.indexBytes.Set(float64(x.bytes()))
	}
}

// watch reports metrics of the runtime, the log and the index every second, until ctx is done.
func (m *metrics) watch(ctx context.Context, r *refresher, h *slogring.Handler) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var pauses pauseReader
	var before slogring.Stats
	for {
		m.pause.Set(pauses.read().longest * 1e3) // milliseconds, like the timings
		m.goroutines.Set(float64(runtime.NumGoroutine()))
		m.heap.Set(float64(heapBytes()))
		if x := r.current.Load(); x != nil { // sent again and again, because the metrics server may start later
			m.age.Set(time.Since(time.Unix(0, r.loaded.Load())).Seconds())
			m.documents.Set(float64(len(x.rows)))
			m.indexBytes.Set(float64(x.bytes()))
		}
		now := h.Stats()
		m.logged[0].Add(float64(now.Written + now.Cut - before.Written - before.Cut))
		m.logged[1].Add(float64(now.Suppressed - before.Suppressed))
		m.logged[2].Add(float64(now.Lost.Sum() + now.Failed - before.Lost.Sum() - before.Failed))
		before = now
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// pauses describes the pauses of the whole program for garbage collection.
type pauses struct {
	count, overMillisecond uint64
	longest                float64 // seconds
}

// pauseReader reads the pauses since its last call. The first call reads all pauses since the start.
type pauseReader struct{ before []uint64 }

func (p *pauseReader) read() (found pauses) {
	sample := []runtimemetrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	runtimemetrics.Read(sample)
	h := sample[0].Value.Float64Histogram()
	if p.before == nil {
		p.before = make([]uint64, len(h.Counts))
	}
	for i, n := range h.Counts {
		if n -= p.before[i]; n == 0 {
			continue
		}
		found.count += n
		found.longest = h.Buckets[i+1] // the bucket's upper bound
		if math.IsInf(found.longest, 1) {
			found.longest = h.Buckets[i]
		}
		if found.longest > 1e-3 {
			found.overMillisecond += n
		}
	}
	copy(p.before, h.Counts)
	return found
}

func heapBytes() uint64 {
	sample := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	runtimemetrics.Read(sample)
	return sample[0].Value.Uint64()
}
