package growth

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/sender"
)

const begin = 1_700_000_000 // Unix seconds, a multiple of Step

var shop, web = from("10.0.0.7:1234", "shop/1"), from("10.0.0.8:80", "Prometheus/3")

func from(remote, agent string) sender.Sender { return sender.Of(remote, agent) }

func series(metric string, pairs ...string) *Series {
	return &Series{
		Tenant: "a", Store: "raw", Labels: labels.FromStrings(append([]string{"__name__", metric}, pairs...)...), Sender: web,
	}
}

// only(t, r) returns the tenant of a report that must have exactly one.
func only(t *testing.T, r []Tenant) Tenant {
	t.Helper()
	if len(r) != 1 {
		t.Fatalf("%d tenants: %+v", len(r), r)
	}
	return r[0]
}

// A hundred metrics begin once, and one metric keeps growing. The report lists the growing metric
// first, with its senders and the label that makes new series.
func TestTheMetricLabelAndSenderThatGrow(t *testing.T) {
	tracker := New()
	for i := range 10_000 {
		tracker.Add(begin, series(fmt.Sprint("m", i%100), "instance", fmt.Sprint(i/100)))
	}
	for second := int64(0); second < 120; second++ {
		for i := range 300 {
			s := series("requests_total", "path", fmt.Sprint(i%7), "request", fmt.Sprint(second, i))
			s.Sender, s.Refused = shop, second >= 110
			tracker.Add(begin+second, s)
		}
	}
	r := only(t, tracker.Report(begin+120))
	m := r.Metrics[0]
	if m.Name != "requests_total" || m.Store != "raw" || m.Labels[0].Name != "request" ||
		!slices.Equal(m.Senders, []string{"10.0.0.7 (shop/1)"}) || !strings.Contains(m.Example, `request="0 1"`) {
		t.Errorf("%+v", m)
	}
	if v := m.Labels[0].Values; v < 14_000 || v > 23_000 { // a sketch estimates the 18,000 values of the last minute
		t.Errorf("%d values", v)
	}
	if v := m.Labels[1]; v.Name != "path" || v.Values != 7 {
		t.Errorf("%+v", v)
	}
	if n := len(m.New); n != Steps+1 || m.New[n-1] != 0 || m.New[n-3] != 3000 || m.New[n-2] != 0 ||
		m.Refused[n-2] != 3000 || sum(m.New) != 33_000 {
		t.Errorf("new series in each step %v, refused %v; want 3000 refused in the step before the last", m.New, m.Refused)
	}
	if r.Began != begin || sum(r.New) != 43_000 || r.New[Steps-12] != 13_000 {
		t.Errorf("%+v", r)
	}
}

// Only values of the last minutes count: series that began long ago are not growth now.
func TestValuesOfALongTimeAgoAreForgotten(t *testing.T) {
	tracker := New()
	for i := range 1000 {
		tracker.Add(begin, series("up", "instance", fmt.Sprint(i)))
	}
	for second := int64(1); second < 180; second++ {
		tracker.Add(begin+second, series("up", "instance", "one", "pod", fmt.Sprint(second)))
	}
	m := only(t, tracker.Report(begin+180)).Metrics[0]
	if m.Labels[0].Name != "pod" || m.Labels[1].Name != "instance" || m.Labels[1].Values != 1 {
		t.Errorf("%+v", m.Labels)
	}
	if r := tracker.Report(begin + 180 + (Steps+1)*Step); len(r) != 0 {
		t.Errorf("after minutes without new series: %+v, want none", r)
	}
}

// The label that grows is found wherever it is among the labels of cAdvisor. The example has this
// label even though the text of all labels is too long.
func TestTheLastOfManyLabelsGrows(t *testing.T) {
	tracker := New()
	pairs := []string{"id", "/kubepods.slice/" + strings.Repeat("kubepods-burstable-pod", 8)}
	for _, name := range []string{"container", "cpu", "endpoint", "image", "instance", "job", "metrics_path", "namespace",
		"node", "service"} {
		pairs = append(pairs, name, "the same in each series")
	}
	for i := range 5000 {
		tracker.Add(begin,
			series("container_cpu_usage_seconds_total", append(slices.Clone(pairs), "zz_pod", fmt.Sprint("app-", i))...))
	}
	m := only(t, tracker.Report(begin)).Metrics[0]
	if m.Labels[0].Name != "zz_pod" || len(m.Labels) != 12 ||
		!strings.HasPrefix(m.Example, `{zz_pod="app-1", container="the same`) || len(m.Example) != maxText {
		t.Errorf("%+v", m)
	}
}

// If a store does not know the senders of its series, Sent adds a sender.
func TestSentByOthers(t *testing.T) {
	tracker := New()
	tracker.Sent("a", "10s", "m", shop) // the metric is not known yet
	for i := range 10 {
		s := series("m", "l", fmt.Sprint(i))
		s.Store, s.Sender = "10s", sender.Sender{}
		tracker.Add(begin, s)
	}
	tracker.Sent("a", "raw", "m", web) // the metric of another store
	tracker.Sent("a", "10s", "m", shop)
	if m := only(t, tracker.Report(begin)).Metrics[0]; sum(m.New) != 10 ||
		!slices.Equal(m.Senders, []string{"10.0.0.7 (shop/1)"}) {
		t.Errorf("%+v", m)
	}
}

// A flood of names has many values of __name__, but no metric with many series.
func TestNames(t *testing.T) {
	tracker := New()
	for i := range 5000 {
		tracker.Add(begin, series(fmt.Sprint("request_", i)))
	}
	if n := only(t, tracker.Report(begin)).Names; n < 4000 || n > 6000 {
		t.Errorf("%d names", n)
	}
}

// Memory is bounded for any series, and a metric that grows is found among many that come and go.
func TestBounds(t *testing.T) {
	tracker := New()
	long := strings.Repeat("x", 5000)
	for i := range 5000 {
		s := series(fmt.Sprint("m", i, long), fmt.Sprint("a", i), "1", long, "2")
		s.Sender = sender.Of(fmt.Sprintf("10.0.%d.%d:9", i>>8, i&255), long)
		tracker.Add(begin, s)
		tracker.Add(begin, series("grows", fmt.Sprint("l", i%100), fmt.Sprint(i)))
	}
	of := tracker.tenants["a"]
	if len(of.metrics) != maxMetrics {
		t.Errorf("%d metrics", len(of.metrics))
	}
	found := false
	for _, m := range of.metrics {
		found = found || m.name == "grows" && m.new.newest() == 5000
		if len(m.labels) > maxLabels || len(m.senders) > maxSenders || len(m.name) > maxText {
			t.Errorf("%d labels, %d senders and a name of %d bytes, want at most %d, %d and %d",
				len(m.labels), len(m.senders), len(m.name), maxLabels, maxSenders, maxText)
		}
		for _, l := range m.labels {
			if len(l.name) > maxText || len(l.example) > maxText {
				t.Errorf("a label's name has %d bytes and its example %d, want at most %d",
					len(l.name), len(l.example), maxText)
			}
		}
		if n := len(m.report(begin).Example); n > maxText {
			t.Errorf("an example of %d bytes", n)
		}
	}
	if !found {
		t.Error("the growing metric is missing")
	}
	for i := range 2 * maxTenants {
		s := series("m")
		s.Tenant = fmt.Sprint("t", i)
		tracker.Add(begin, s)
	}
	if len(tracker.tenants) != maxTenants {
		t.Errorf("%d tenants", len(tracker.tenants))
	}
	later := series("m")
	later.Tenant = "later"
	tracker.Add(begin+(Steps+1)*Step, later)
	if len(tracker.tenants) != maxTenants || tracker.tenants["later"] == nil {
		t.Error("a quiet tenant did not give way to a new one")
	}
}

func (c *counts) newest() (n uint64) {
	for i := range c {
		n = max(n, c[i].new)
	}
	return n
}

// Counting goes on after the clock goes back.
func TestClockGoesBack(t *testing.T) {
	tracker := New()
	for _, now := range []int64{begin, begin - 1010, -5, begin - 1010} {
		tracker.Add(now, series("m", "l", fmt.Sprint(now)))
	}
	if r := only(t, tracker.Report(begin-1010)); sum(r.New) != 2 {
		t.Errorf("%v", r.New)
	}
}

// Counting a series of a known metric allocates nothing.
func TestNoAllocations(t *testing.T) {
	tracker, s := New(), series("m", "pod", "a")
	tracker.Add(begin, s)
	tracker.Add(begin, s)
	if n := testing.AllocsPerRun(100, func() { tracker.Add(begin, s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Bound: 0 allocs/op and 500 ns for a new series of six labels. The store takes at least 5 us for
// such a series.
func BenchmarkAdd(b *testing.B) {
	tracker := New()
	all := make([]*Series, 1000)
	for i := range all {
		all[i] = series(fmt.Sprint("m", i%10), "instance", "web-1", "job", "shop", "path", fmt.Sprint(i%7), "pod",
			fmt.Sprint(i), "zone", "eu")
		all[i].Sender.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 2)}), 0)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		tracker.Add(begin+int64(i/100_000), all[i%len(all)])
		i++
	}
}
