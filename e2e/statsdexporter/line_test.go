package statsdexporter_test

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	theirs "github.com/prometheus/statsd_exporter/pkg/line"
)

// statsd_exporter treats a line of buckets (docs/format/buckets.md) as malformed, and counts no value
// of the line.
func TestExporterCountsNothingOfBuckets(t *testing.T) {
	for line, events := range map[string]int{
		"http.request.duration:h3,1.75,0;-31,2,0,1;-20,4|nh|#route:checkout,method:GET,status:200": 0,
		"http.request.duration:h3,1.75,1|nh": 0,
		"http.request.duration:h3,1.75,0;-31,2|nh|#route:checkout|x:4bf92f3577b34da6a3ce929d0e0e4736,0.0625,1795228020000": 0,
		// The library for nginx also sends this counter.
		"http.requests:7|c|#route:checkout,method:GET,status:200": 1,
	} {
		p := theirs.NewParser()
		p.EnableDogstatsdParsing()
		bad := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bad"}, []string{"reason"})
		count := func(name string) prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{Name: name}) }
		got := p.LineToEvents(line, *bad, count("samples"), count("tag_errors"), count("tags"), slog.New(slog.DiscardHandler))
		if n := testutil.ToFloat64(bad.WithLabelValues("malformed_value")); len(got) != events || n != float64(1-events) {
			t.Errorf("%s: got %d events and %v bad values, want %d and %d", line, len(got), n, events, 1-events)
		}
	}
}
