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
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/window"
)

// A flood goes through the whole collector. Totals stay exact. The log and the server's own metrics name
// the flooded metric, the label and the sender, whatever kind of sender it is.
func TestWhoIsOverALimitIsNamed(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.Limiter = limit.New(limit.Config{MaxSeriesPerMetric: 10}, time.Minute, time.Hour)
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
	flood("udp", 0) // the collector watches senders once a flood has begun
	await(t, "senders are watched", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.watchers > 0
	})
	address := flood("udp", lines)
	flood("unixgram", 0)
	await(t, "the UDP sender is named", told("metric=flood_udp kind=counter limit=limits.max_series_per_metric"))
	await(t, "the process is named", told("metric=flood_unixgram"))
	for _, text := range []string{"label=request", `sender=` + address, "command "} {
		if !told(text)() {
			t.Errorf("the log does not contain %q:\n%s", text, f.logs.buf.String())
		}
	}
	await(t, "the report has both metrics", func() bool {
		offenders := f.Limits()[0].Offenders
		return len(offenders) == 2 && offenders[0].Metric == "flood_udp" && samplesOver(&offenders[0]) == 2*lines-10
	})
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

// Text from a client may have any bytes, and must not make the server's metrics
// unreadable.
func TestASenderMayCallItselfAnything(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.Limiter = limit.New(limit.Config{MaxSeriesPerMetric: 1}, time.Minute, time.Hour)
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
							t.Errorf("the sender is described by %d bytes, want at most %d", len(l.GetValue()), maxText+3)
						}
						return true
					}
				}
			}
		}
		return false
	})
}

// The log reports only one time that a metric goes over a limit, and only one time that it is within
// limits again. Without new samples there are no further lines.
func TestTheEndOfAFloodIsToldOnce(t *testing.T) {
	f := newFixture(t, nil)
	l := f.limits
	o := limit.Offender{Metric: "a", Kind: series.Counter, Senders: []limit.SenderSamples{{}}, Steady: true}
	for second := range int64(180) {
		if second < 10 {
			o.Samples[limit.MetricSeries] += 100
			o.Last = second * 1e9
		}
		l.tell(second*1e9, "default", []limit.Offender{o})
	}
	if begun, ended := f.logs.count("have no place"), f.logs.count("any more"); begun != 1 || ended != 1 {
		t.Errorf("the log reports %d beginnings and %d ends, want 1 each", begun, ended)
	}
}

// However many metrics are over a limit, the log names three a minute, and reports all others in one
// line. A metric with many samples is among the named ones. The offenders in the server's metrics do not
// change from scrape to scrape.
func TestAFloodOverManyMetricsIsToldInFewLines(t *testing.T) {
	for _, test := range []struct {
		why           string
		metrics       int
		heavy         string
		named, others int // lines in two minutes
		shown         int
	}{
		{"ten metrics are remembered, and named in turn", 10, "", 6, 2, 10},
		{"of hundreds of equal metrics none is named", 500, "", 0, 2, 0},
		{"among hundreds, a metric that is always over a limit is named", 500, "heavy", 2, 2, 1},
	} {
		t.Run(test.why, func(t *testing.T) {
			f := newFixture(t, func(o *Options) {
				o.Limiter = limit.New(limit.Config{MaxSeriesPerMetric: 1}, time.Minute, time.Hour)
			})
			tenant := f.Limiter.Tenant("default")
			claim := func(now int64, metric string, id int) {
				ls := labels.FromStrings("__name__", metric, "id", fmt.Sprint(id))
				tenant.Admit(now,
					&limit.Claim{Key: series.AppendKey(nil, series.Counter, ls), Samples: 1, Sender: sender.Sender{UID: 7}})
			}
			shown := map[string]bool{}
			for second := range 118 {
				now := (1_763_680_000 + int64(second)) * 1e9
				for i := range 1000 {
					claim(now, fmt.Sprint("m", i%test.metrics), second*1000+i)
					if test.heavy != "" {
						claim(now, test.heavy, second*1000+i)
					}
				}
				f.limits.look(now)
				for _, metric := range f.offenders(t) {
					shown[metric] = true
				}
				if second == 9 && test.heavy != "" && f.logs.count("metric="+test.heavy) == 0 {
					t.Errorf("%s is not named within 10 s", test.heavy)
				}
			}
			named, others := f.logs.count("msg=\"new series are over"), f.logs.count("msg=\"further metrics are over")
			if named != test.named || others != test.others || len(shown) != test.shown {
				t.Errorf("%d metrics are named, and others are reported %d times, want %d, %d; the server's metrics "+
					"show %v\n%s",
					named, others, test.named, test.others, shown, f.logs.buf.String())
			}
			if n := len(f.limits.told); n > 16*11 {
				t.Errorf("f.limits.told grew to %d metrics", n)
			}
		})
	}
}

// offenders returns the metrics that freshet_limit_offender names.
func (f *fixture) offenders(t *testing.T) (names []string) {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if family.GetName() == "freshet_limit_offender" && l.GetName() == "metric" {
					names = append(names, l.GetValue())
				}
			}
		}
	}
	return names
}

// The collector still checks a tenant whose listener was removed, so that the metrics show its last
// folded samples and its places expire.
func TestTenantsWithoutAListenerAreLookedAt(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Limiter = limit.New(limit.Config{}, time.Minute, time.Hour) })
	const begin = 1_763_680_000 * int64(1e9)
	f.Limiter.Tenant("left").Load(begin, begin, series.AppendKey(nil, series.Gauge, labels.FromStrings("__name__", "a")),
		0)
	var states []string
	for second := range int64(300) {
		f.limits.look(begin + second*1e9)
		state := ""
		for _, r := range f.Limits() {
			state += fmt.Sprintf("%s has %d ", r.Tenant, r.Series)
		}
		if len(states) == 0 || states[len(states)-1] != state {
			states = append(states, state)
		}
	}
	if got, want := strings.Join(states, "; "),
		"default has 0 left has 1 ; default has 0 left has 0 ; default has 0 "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// While limits leave no room, a flood of names must not fill the catalogue. A known name keeps its
// series.
func TestAFloodOfNamesDoesNotFillTheCatalogue(t *testing.T) {
	table, names := flooded(t, limit.Config{MaxSeries: 5})
	count := func(line string) {
		var p dogstatsd.Parser
		p.Reset([]byte(line))
		for p.Next() == dogstatsd.MetricLine {
			table.Metrics([]dogstatsd.Metric{p.Metric}, 1)
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
		t.Errorf("the catalogue has %d names, want 5", n)
	}
	w, _ := table.Close(int64(time.Second))
	var keys []string
	for s := range w.Series() {
		_, ls, _ := series.ParseKey(s.Key)
		if ls.Get(mapping.OverflowLabel) != "" {
			keys = append(keys, fmt.Sprintf("%v %d", ls, s.Samples))
		}
	}
	want := `{__name__="freshet_overflow_counter", freshet_overflow="true", host="h"} 1000 {__name__="known1", ` +
		`freshet_overflow="true", host="h"} 1`
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// flooded returns a table with limits, like a listener's, and its catalogue, which knows one name.
func flooded(t testing.TB, c limit.Config) (*window.Table, *catalogue.Catalogue) {
	t.Helper()
	mapper, err := mapping.New(mapping.Config{}, labels.FromStrings("host", "h"))
	if err != nil {
		t.Fatal(err)
	}
	names, tenant := catalogue.New(catalogue.DefaultMaxNames), limit.New(c, time.Minute, time.Hour).Tenant("a")
	table := window.New(&resolver{
		Options: &Options{Catalogue: names, Now: time.Now, Logger: slog.New(slog.DiscardHandler)},
		terms:   &terms{tenant: "a", mapper: mapper}, reports: &reports{}, limits: tenant,
		sender: func() sender.Sender { return sender.Sender{PID: 1} }, now: func() int64 { return time.Now().UnixNano() },
	}, window.Options{IdleWindows: 300, Limits: tenant})
	table.Start(0)
	return table, names
}

// Bound: at most 1.2 us of CPU for a line with a new context over a limit, including parsing, so that
// 100,000 lines a second cost an eighth of a core. The lines leave nothing in memory. The table spends
// most of this time on making the key. It needs the key to find out that the series is new.
func BenchmarkFlood(b *testing.B) {
	table, _ := flooded(b, limit.Config{MaxSeriesPerMetric: 1000})
	var lines [][]byte
	for i := range 10_000 {
		lines = append(lines,
			fmt.Appendf(nil, "http.requests:1|c|#env:production,region:eu-west-1,request:%08x-1f2e-4d3c-8b7a-0123456789ab", i))
	}
	var p dogstatsd.Parser
	line := make([]dogstatsd.Metric, 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i % len(lines)
		if i >= len(lines) {
			at = 1000 + at%9000
		}
		p.Reset(lines[at])
		p.Metrics(line)
		table.Metrics(line, int64(i))
	}
}

// If a context is too long for a place, its name does not enter the catalogue. This holds both for a
// check whose host is too long and for one whose name is too long.
func TestLongContextsDoNotFillTheCatalogue(t *testing.T) {
	table, names := flooded(t, limit.Config{MaxSeriesBytes: 1000})
	var p dogstatsd.Parser
	for i := range 100 {
		p.Reset(fmt.Appendf(nil, "_sc|n%d|0|h:%s", i, strings.Repeat("x", 990+i%20)))
		p.Next()
		table.Check(&p.Check, 1)
	}
	refused := table.Stats().LimitRefused[limit.SeriesBytes]
	if n := len(names.Metadata("a")); uint64(n)+refused != 100 || n == 0 || refused == 0 {
		t.Errorf("the catalogue has %d names, and %d contexts were refused as too long, want some of both, 100 in all",
			n, refused)
	}
}
