package diagnose

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/growth"
	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/core/sender"
)

// newSeries are the series that begin in one second: n series of one metric, each with its own
// value of one label.
type newSeries struct {
	n                    int
	store, metric, label string
	refused              bool
	few                  bool // the label has few values; several labels tell the series apart
	each                 int  // series per value, which differ in the labels le and path; 0 means 1
}

const process = 1_700_000_000 // start of the process, in Unix seconds

// grownUntil feeds a tracker the series that begin in each second of a process, and reads the
// tracker at the end.
func grownUntil(t *testing.T, end int64, begins func(second int64) []newSeries) (m *moment) {
	t.Helper()
	grow(t, end, begins, func(second int64, read func() *moment) {
		if second == end {
			m = read()
		}
	})
	return m
}

// grow feeds a tracker the series that begin in each second. Before each second it calls `look`,
// which may read the tracker.
func grow(t *testing.T, end int64, begins func(second int64) []newSeries,
	look func(second int64, read func() *moment)) {
	t.Helper()
	tracker, seen, zones := growth.New(), 0, [...]string{"z0", "z1", "z2"}
	for second := range end + 1 {
		look(second, func() *moment { return reported(t, tracker, second) })
		for _, of := range begins(second) {
			for range of.n {
				seen++
				pairs := []string{"__name__", of.metric, "zone", zones[seen%3], of.label, strconv.Itoa(seen)}
				switch {
				case of.few:
					pairs[5] = fmt.Sprint(seen % 20)
				case of.label == "__name__":
					pairs = []string{"__name__", fmt.Sprint(of.metric, seen)}
				case of.each > 0:
					at := seen % of.each
					pairs = append(pairs[:5], strconv.Itoa(seen/of.each), "le", strconv.Itoa(at%12), "path", strconv.Itoa(at/12))
				}
				s := growth.Series{Tenant: "shop", Store: of.store, Labels: labels.FromStrings(pairs...), Refused: of.refused}
				if of.store == raw {
					s.Sender = sender.Of("10.0.0.7:1234", "shop/1")
				}
				tracker.Add(process+second, &s)
			}
		}
	}
}

// reported returns the record of a healthy server, with the tracker's report of that second.
func reported(t *testing.T, tracker *growth.Tracker, second int64) *moment {
	m := healthy()
	m.growing = record.Growing{
		At: process + second, MemoryBytes: 16e9, MemoryOf: "the cgroup", Tenants: []record.GrowingTenant{},
	}
	for _, of := range tracker.Report(process + second) {
		m.growing.Tenants = append(m.growing.Tenants, record.GrowingTenant{Tenant: of, Limits: []record.SeriesLimit{
			{Store: raw, Setting: "distributor.max_series", Series: 1e6},
			{Store: "10s", Setting: "limits.max_series", Series: 1e5},
			{Store: "10s", Setting: "limits.max_series_per_metric", Series: 1e4, PerMetric: true},
		}})
	}
	m.tops = readTops(t,
		`[{"tenant":"shop","metrics":[{"metric":"requests","series":4000}],"newest_series":[{"metric":"freshet_probe",`+
			`"sender":{"address":"127.0.0.1:9"}},{"metric":"requests","sender":{"process":{"pid":7,"command":"shop"}}}]}]`)
	m.end = text(t,
		"prometheus_tsdb_head_series{tenant=\"shop\",store=\"raw\"} 100000\nprocess_resident_memory_bytes 1e9\n")
	return m
}

// start returns the series that begin while a tenant starts: a hundred metrics, whose targets are
// scraped for the first time within a minute.
func start(second int64) (all []newSeries) {
	if second < 60 {
		for i := range 10 {
			all = append(all, newSeries{n: 10, store: raw, metric: fmt.Sprint("m", (int(second)*10+i)%100), label: "instance"})
		}
	}
	return all
}

// deploy returns the series of a deploy of 100 pods within a minute. Each pod has a histogram
// with 300 series and some other metrics.
func deploy(began int64) func(second int64) []newSeries {
	return func(second int64) []newSeries {
		if second < began || second >= began+60 {
			return start(second)
		}
		all := []newSeries{{n: 500, store: raw, metric: "http_request_duration_seconds_bucket", label: "le", few: true}}
		for i := range 10 {
			all = append(all, newSeries{n: 15, store: raw, metric: fmt.Sprint("other", i), label: "pod"})
		}
		return all
	}
}

// Series from scrapes come in bursts. Their growth is found at any usual scrape interval and
// whenever the record is taken, even if every second scrape is late and falls into the next step.
func TestGrowthInBursts(t *testing.T) {
	const rate = 12 // new series a second, on average
	for _, every := range []int64{1, 5, 10, 15, 20, 30, 60} {
		for _, label := range []string{"request", "__name__"} {
			for _, late := range []int64{0, min(4, every-1)} {
				for end := int64(480); end < 540; end += growth.Step {
					name := fmt.Sprintf("a scrape each %d s, label %s, %d s late, record at %d s", every, label, late, end)
					m := grownUntil(t, end, func(second int64) []newSeries {
						at := second + every - 8%every // a scrape is due two seconds before the end of a step
						if at%every != late*(at/every%2) {
							return start(second)
						}
						return append(start(second), newSeries{n: int(rate * every), store: raw, metric: "requests_total", label: label})
					})
					found := m.growingTenants()
					if len(found) != 1 {
						t.Errorf("%s: the growing tenants are %v, want one; new series %v", name, found, m.growing.Tenants[0].New)
						continue
					}
					if g := found[0]; label == "request" && !strings.Contains(m.culprit(&g), "metric requests_total, label request") ||
						label == "__name__" && (!g.names || !strings.Contains(m.culprit(&g), "from 10.0.0.7 (shop/1)")) ||
						g.rate < rate/1.5 || g.rate > rate*1.5 {
						t.Errorf("%s: %.0f series a second, want about %d; named: %s", name, g.rate, rate, m.culprit(&g))
					}
					m.growing.Tenants[0].Limits[0].Series = 150_000
					if f := growing(m); f.Score < Clear || label == "request" &&
						!strings.Contains(fmt.Sprint(f.Evidence), "metric requests_total: ") {
						t.Errorf("%s: %.2f %s: %v", name, f.Score, f.Title, f.Evidence)
					}
				}
			}
		}
	}
}

// A label with few values cannot make thousands of series: naming no label is better.
func TestLabelWithFewValuesIsNotNamed(t *testing.T) {
	metric := growth.Metric{New: slices.Repeat([]uint64{3000}, growth.Steps+1)}
	for values, want := range map[uint64]string{1: "", 300: "", 400: "pod", 18_000: "pod"} {
		metric.Labels = []growth.Label{{Name: "pod", Values: values}, {Name: "zone", Values: 1}}
		if got := GrowingLabel(&metric, growth.Steps).Name; got != want {
			t.Errorf("%d values among 18,000 series: label %q is named, want %q", values, got, want)
		}
	}
	metric = growth.Metric{
		New: []uint64{0, 0, 0, 0}, Refused: []uint64{9000, 9000, 9000, 9000},
		Labels: []growth.Label{{Name: "pod", Values: 40}},
	}
	if got := GrowingLabel(&metric, ownSteps).Name; got != "pod" {
		t.Errorf("series that a limit refuses again and again: label %q, want pod", got)
	}
}

func TestGrowth(t *testing.T) {
	after := func(from, to int64, then ...newSeries) func(int64) []newSeries {
		return func(second int64) []newSeries {
			if second < from || second >= to {
				return start(second)
			}
			return append(start(second), then...)
		}
	}
	var many []newSeries
	for i := range 30 {
		many = append(many, newSeries{n: 10, store: raw, metric: fmt.Sprint("m", i), label: "pod"})
	}
	requests := newSeries{n: 300, store: raw, metric: "requests_total", label: "request"}
	for _, c := range []struct {
		name   string
		end    int64 // the second in which the record is taken
		begins func(int64) []newSeries
		change func(*moment)
		want   int
		title  string
	}{
		{"300 new series a second under every limit", 260, after(200, 260, requests), nil, clearly,
			"Series grow: 300 new ones a second, 1,080,000 an hour: tenant shop, metric requests_total, label request, " +
				"from 10.0.0.7 (shop/1); distributor.max_series (1,000,000) is reached in 50m0s"},
		{"after a deploy with a histogram that had more series", 260, func(second int64) []newSeries {
			if second >= 100 && second < 140 {
				return []newSeries{{n: 1000, store: raw, metric: "seconds_bucket", label: "le"}}
			}
			return after(200, 260, requests)(second)
		}, nil, clearly, "metric requests_total, label request, from 10.0.0.7 (shop/1)"},
		{"an ordinary start: all series are new", 60, start, nil, fine, ""},
		{"a start of one metric", 60, func(int64) []newSeries { return []newSeries{requests} }, nil, fine, ""},
		{"just after a start", 100, start, nil, fine, ""},
		{"a tenant that grows since its start three minutes ago",
			180, func(int64) []newSeries { return []newSeries{requests} }, nil, clearly, "metric requests_total, label request"},
		{"a deploy of pods with a histogram", 260, deploy(200), nil, fine, ""},
		{"the same deploy, more than half a minute later", 295, deploy(200), nil, fine, ""},
		{"a deploy that takes two minutes", 460, after(300, 420, many...), nil, fine, ""},
		{"a deploy: for a minute all metrics have new series", 260, after(200, 260, many...), nil, fine, ""},
		{"pods that come and go all the time", 440, after(200, 440, many...), nil, clearly,
			"tenant shop, spread over many metrics"},
		{"growth that is over", 300, after(200, 260, requests), nil, fine, ""},
		{"many new series now and then", 260, func(second int64) []newSeries {
			if second == 210 || second == 250 {
				return []newSeries{{n: 5000, store: raw, metric: "requests_total", label: "request"}}
			}
			return start(second)
		}, nil, fine, ""},
		{"so few that they leave memory before a limit is reached",
			260, after(200, 260, newSeries{n: 15, store: raw, metric: "m", label: "l"}), nil, fine, ""},
		{"ever new names", 260, after(200, 260, newSeries{n: 300, store: raw, metric: "request_", label: "__name__"}), nil,
			clearly, "tenant shop, with ever new metric names, such as request_"},
		{"DogStatsD: the limit of the metric is nearer, and the socket knows the process",
			260, after(200, 260, newSeries{n: 300, store: "10s", metric: "requests", label: "request"}), nil, clearly,
			"metric requests, label request, from process 7 (shop); limits.max_series_per_metric (10,000) is reached in 20s"},
		{"memory is nearer than the limit", 260, after(200, 260, requests), func(m *moment) { m.growing.MemoryBytes = 1.1e9 },
			clearly,
			"the memory of the cgroup (1.1 GB, 1 GB of it used; 1.9 kB per series) is reached in 2m55s"},
		{"an older record", 260, after(200, 260, requests), func(m *moment) { m.growing = record.Growing{} }, fine, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := grownUntil(t, c.end, c.begins)
			if c.change != nil {
				c.change(m)
			}
			f := growing(m)
			got := fine
			if f.Score >= Listed {
				got = listed
			}
			if f.Score >= Clear {
				got = clearly
			}
			if got != c.want || !strings.Contains(f.Title, c.title) {
				t.Errorf("score %.2f: %s\n%s\n%s", f.Score, f.Title, f.Because, f.fine)
			}
			if f.Name == "" || f.Title == "" || f.Because == "" || f.Next == "" || f.fine == "" ||
				got == clearly && len(f.Evidence) < 2 {
				t.Errorf("the finding lacks a text or evidence: %+v", f)
			}
		})
	}
}

// The finding of a flood by remote write or OTLP names the tenant, the metric, the label and the sender,
// whether or not a limit refuses the series. It never names the probe.
func TestFloodOfRequests(t *testing.T) {
	flood := func(n int, refused bool) *moment {
		return grownUntil(t, 60, func(second int64) []newSeries {
			if second < 30 {
				return start(second)
			}
			return append(start(second),
				newSeries{n: n, store: raw, metric: "requests_total", label: "request", refused: refused})
		})
	}
	over := flood(500, true)
	over.end = text(t, "freshet_distributor_refused_total{reason=\"too_many_series\"} 590000\n")
	under := flood(5000, false)
	under.end = text(t, "prometheus_tsdb_head_series_created_total{tenant=\"shop\"} 590000\n")
	for name, m := range map[string]*moment{"over a limit": over, "under every limit": under} {
		f := cardinality(m)
		if f.Score < Clear ||
			!strings.HasSuffix(f.Title, ": tenant shop, metric requests_total, label request, from 10.0.0.7 (shop/1)") {
			t.Errorf("%s: %.2f %s", name, f.Score, f.Title)
		}
		shown := fmt.Sprintf("%+v", f.Evidence)
		if strings.Contains(shown, "freshet_probe") || !strings.Contains(shown, "metric requests_total") ||
			!strings.Contains(shown, "label request about") || !strings.Contains(shown, "sent by 10.0.0.7 (shop/1)") {
			t.Errorf("%s: %s", name, shown)
		}
	}
	for name, begins := range map[string]func(int64) []newSeries{
		"many metrics": start,
		"the buckets of a histogram": func(int64) (all []newSeries) {
			for range 20 { // the 20 values of le are the same each time
				all = append(all, newSeries{n: 50, store: raw, metric: "seconds_bucket", label: "le", few: true})
			}
			return all
		},
	} {
		begun := grownUntil(t, 60, begins)
		begun.end = text(t, "prometheus_tsdb_head_series_created_total{tenant=\"shop\"} 25000\n")
		if f := cardinality(begun); f.Score >= Clear {
			t.Errorf("a start of %s with 5,000 series a second counts as a flood: %.2f %s", name, f.Score, f.Title)
		}
	}
}

// inputs are the ways by which series come in: how often, to which store, and within how many
// seconds a flood must be found. Finding a flood takes two scrapes.
var inputs = []struct {
	name   string
	store  string
	every  int64 // seconds
	within int64
}{
	{"remote write all the time", raw, 1, 30},
	{"tiles of DogStatsD", "10s", 10, 40},
	{"scrapes each 15 s", raw, 15, 60},
	{"scrapes each 30 s", raw, 30, 100},
	{"scrapes each 60 s", raw, 60, 150},
}

// A flood is found within two scrapes, and then at any moment while it lasts, whether its series
// are of a metric with few labels, of a histogram or of metrics with new names. Every second scrape
// is late.
func TestFlood(t *testing.T) {
	const rate, began, over = 2500, 200, 90 // rate is in series a second; began and over are in seconds
	for _, in := range inputs {
		ended := began + in.within + in.every + 15
		for name, of := range map[string]newSeries{
			"a label":     {metric: "requests", label: "request"},
			"a histogram": {metric: "seconds_bucket", label: "request", each: 12},
			"names":       {metric: "request_", label: "__name__"},
		} {
			if name != "a label" && in.every != 1 && in.every != 60 {
				continue // these floods differ from the first only in the values that are counted
			}
			begins := func(second int64) []newSeries {
				at := second - began - in.every - second/in.every%2*min(3, in.every-1)
				if at < 0 || second >= ended+in.every || at%in.every != 0 {
					return start(second)
				}
				flood := of
				flood.n, flood.store = int(rate*in.every), in.store
				return append(start(second), flood)
			}
			grow(t, ended+over+in.every, begins, func(second int64, read func() *moment) {
				if second%5 != 0 || second < began {
					return
				}
				f := cardinality(read())
				if second >= began+in.within && second <= ended &&
					(f.Score < Clear || !strings.Contains(f.Title, ": tenant shop, ") || len(f.Evidence) == 0) {
					t.Errorf("%s by %s, %d s after its begin: score %.2f: %s, want a clear cause",
						name, in.name, second-began, f.Score, f.Title)
				}
				if second >= ended+in.every+over && f.Score >= Listed {
					t.Errorf("%s by %s, %d s after its end: score %.2f: %s, want no cause",
						name, in.name, second-ended, f.Score, f.Title)
				}
			})
		}
	}
}

// A deploy makes new series of one metric as fast as a flood does. But it never counts as a flood, since
// all series of a pod share one label value. This holds for all scrape intervals and lengths of a
// deploy.
func TestDeployIsNoFlood(t *testing.T) {
	const began, series = 200, 60_000
	for _, in := range inputs {
		for name, pod := range map[string]int64{"with a histogram by path": 300, "with few series": 24} {
			for _, lasts := range []int64{20, 120} {
				deploy := func(second int64) []newSeries {
					all := start(second)
					pods := series / pod
					for p := range pods {
						at := began + p*lasts/pods
						if first := at + in.every - (at+p%min(in.every, 10))%in.every; first == second {
							all = append(all,
								newSeries{n: int(pod), store: in.store, metric: "seconds_bucket", label: "pod", each: int(pod)})
						}
					}
					return all
				}
				grow(t, began+lasts+4*in.every+120, deploy, func(second int64, read func() *moment) {
					if second%5 != 0 || second < began {
						return
					}
					m := read()
					if f := cardinality(m); f.Score >= Listed && m.flood() != nil {
						t.Errorf("a deploy %s in %d s by %s, %d s after its begin: found a flood with score %.2f, "+
							"title %s",
							name, lasts, in.name, second-began, f.Score, f.Title)
					}
				})
			}
		}
	}
}
