package collector

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/window"
)

// A flood through the whole collector: totals are exact, and the log and the metrics
// name the metric, the label and the sender, whoever it is.
func TestWhoIsOverALimitIsNamed(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.Limiter = limit.New(limit.Config{MaxSeriesPerMetric: 10}, time.Minute)
	}).start(t)
	const lines = 500
	flood := func(network string, from int) (sender string) {
		conn := dial(t, network, f.address(network))
		for i := range lines {
			send(t, conn, fmt.Sprintf("flood.%s:1|c|#env:prod,request:%d", network, from+i))
		}
		return conn.LocalAddr().String()
	}
	told := func(text string) func() bool {
		return func() bool {
			f.logs.mu.Lock()
			defer f.logs.mu.Unlock()
			for line := range strings.Lines(f.logs.buf.String()) {
				if strings.Contains(line, "have no place") && strings.Contains(line, text) {
					return true
				}
			}
			return false
		}
	}
	flood("udp", 0) // senders are watched once it has begun
	await(t, "senders are watched", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.watchers > 0
	})
	address := flood("udp", lines)
	flood("unixgram", 0)
	await(t, "the UDP sender is named", told("metric=flood_udp kind=counter limit=limits.max_series_per_metric"))
	await(t, "the process is named", told("metric=flood_unixgram"))
	for _, text := range []string{"label=request", `sender=` + address, "command collector.test"} {
		if !told(text)() {
			t.Errorf("the log does not say %q:\n%s", text, f.logs.buf.String())
		}
	}
	offenders := f.Limits()[0].Offenders
	if len(offenders) != 2 || offenders[0].Metric != "flood_udp" || samplesOver(&offenders[0]) != 2*lines-10 {
		t.Errorf("%+v", offenders)
	}
	f.stop()
	totals := map[string]float64{}
	for name, v := range f.aggregator.totals() {
		metric, _, _ := strings.Cut(strings.TrimPrefix(name, `counter {__name__="`), `"`)
		totals[metric] += v
	}
	if totals["flood_udp"] != 2*lines || totals["flood_unixgram"] != lines {
		t.Errorf("%v", totals)
	}
}

// What a client says of itself may be anything: it must not cost the metrics of the
// whole server.
func TestASenderMayCallItselfAnything(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.Limiter = limit.New(limit.Config{MaxSeriesPerMetric: 1}, time.Minute)
	}).start(t)
	conn := dial(t, "udp", f.address("udp"))
	send(t, conn, "a:1|c|#id:0")
	await(t, "an offender in the metrics", func() bool {
		send(t, conn, "a:1|c|#id:1,\xff:\xff|c:\xff\xfe"+strings.Repeat("x", 1000))
		families, err := f.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					if family.GetName() == "freshet_limit_offender" && l.GetName() == "sender" && l.GetValue() != "unknown" {
						if len(l.GetValue()) > maxText+3 {
							t.Errorf("the sender is described by %d bytes", len(l.GetValue()))
						}
						return true
					}
				}
			}
		}
		return false
	})
}

// The log says when a metric goes over a limit, and once that it is over: not again
// without a sample.
func TestTheEndOfAFloodIsToldOnce(t *testing.T) {
	f := newFixture(t, nil)
	l := f.limits
	o := limit.Offender{Metric: "a", Kind: series.Counter, Senders: []limit.SenderSamples{{}}}
	for second := range int64(180) {
		if second < 10 {
			o.Samples[limit.MetricSeries] += 100
			o.Last = second * 1e9
		}
		l.tell(second*1e9, "default", &o)
	}
	if begun, ended := f.logs.count("have no place"), f.logs.count("any more"); begun != 1 || ended != 1 {
		t.Errorf("told %d times that it began, %d times that it ended", begun, ended)
	}
}

// While there is no room, a flood of names must not fill the catalogue, and a name
// that it knows keeps its series.
func TestAFloodOfNamesDoesNotFillTheCatalogue(t *testing.T) {
	table, names := flooded(t, limit.Config{MaxSeries: 5})
	count := func(line string) {
		var p dogstatsd.Parser
		p.Reset([]byte(line))
		for p.Next() == dogstatsd.MetricLine {
			table.Metric(&p.Metric, 1)
		}
	}
	for i := range 5 {
		count(fmt.Sprintf("known%d:1|c", i))
	}
	for i := range 1000 {
		count(fmt.Sprintf("unknown%d:1|c", i))
	}
	count("known1:1|c|#a:b")
	if n := len(names.Metadata("a")); n != 5 {
		t.Errorf("the catalogue has %d names", n)
	}
	w, _ := table.Close(int64(time.Second))
	var keys []string
	for s := range w.Series() {
		_, ls, _ := series.ParseKey(s.Key)
		if ls.Get(mapping.OverflowLabel) != "" {
			keys = append(keys, fmt.Sprintf("%v %d", ls, s.Samples))
		}
	}
	want := `{__name__="freshet_overflow_counter", freshet_overflow="true", host="h"} 1000 {__name__="known1", freshet_overflow="true", host="h"} 1`
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// flooded returns a table as a listener has it.
func flooded(t testing.TB, c limit.Config) (*window.Table, *catalogue.Catalogue) {
	t.Helper()
	mapper, err := mapping.New(mapping.Config{}, labels.FromStrings("host", "h"))
	if err != nil {
		t.Fatal(err)
	}
	names, tenant := catalogue.New(catalogue.DefaultMaxNames), limit.New(c, time.Minute).Tenant("a")
	table := window.New(&resolver{
		Options: &Options{Catalogue: names, Now: time.Now, Logger: slog.New(slog.DiscardHandler)},
		terms:   &terms{tenant: "a", mapper: mapper}, reports: &reports{}, limits: tenant,
		sender: func() limit.Sender { return limit.Sender{PID: 1} },
	}, window.Options{IdleWindows: 300, Limits: tenant})
	table.Start(0)
	return table, names
}

// Bound: at most 3 us a line of a new context over a limit, parsing included, so
// that 100,000 a second cost less than a third of a core, and nothing of them is
// kept. Most of it is the making of the labels: without them nobody knows that the
// series is new.
func BenchmarkFlood(b *testing.B) {
	table, _ := flooded(b, limit.Config{MaxSeriesPerMetric: 1000})
	var lines [][]byte
	for i := range 10_000 {
		lines = append(lines, fmt.Appendf(nil, "http.requests:1|c|#env:production,region:eu-west-1,request:%08x-1f2e-4d3c-8b7a-0123456789ab", i))
	}
	var p dogstatsd.Parser
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i % len(lines)
		if i >= len(lines) {
			at = 1000 + at%9000
		}
		p.Reset(lines[at])
		for p.Next() == dogstatsd.MetricLine {
			table.Metric(&p.Metric, int64(i))
		}
	}
}
