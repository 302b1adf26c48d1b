package tsdb

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// apart are the metrics of tsdb that each open database has for itself. Those without a label would make 130
// series of each database, and more with buckets: with a thousand tenants, Freshet would spend more on its own
// metrics than on samples.
var apart = []string{"prometheus_tsdb_head_series", "prometheus_tsdb_reloads_failures_total"}

// noSums are parts of the names of tsdb's gauges whose sum over databases says nothing: times, numbers, limits, states.
var noSums = []string{"_time", "_watermark", "_segment_current", "_retention_limit_", "_clean_start"}

// registrations are the metrics that one open database registered. tsdb does not unregister them when it closes,
// so the next opening could not register them again.
type registrations struct {
	prometheus.Registerer // of the metrics that are `apart`
	sums                  *sums
	apart                 []prometheus.Collector
	summed                []summed
}

// summed is a collector of one database, and its metric. All databases share the metric.
type summed struct {
	*named
	prometheus.Collector
}

// named is a metric of tsdb.
type named struct{ name, help string }

// Register is called by tsdb, before the database is shared.
func (r *registrations) Register(c prometheus.Collector) error {
	n := r.sums.nameOf(c)
	if !slices.Contains(apart, n.name) {
		r.summed = append(r.summed, summed{n, c})
		return nil
	}
	if err := r.Registerer.Register(c); err != nil {
		return err
	}
	r.apart = append(r.apart, c)
	return nil
}

// MustRegister is called by tsdb.
func (r *registrations) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

func (r *registrations) unregister() {
	for _, c := range r.apart {
		r.Unregister(c)
	}
	r.sums.leave(r)
}

// sums has the metrics of tsdb, added up over the open databases of one kind. What a database has counted stays
// in the sums when it closes, so that counters do not fall.
type sums struct {
	kind string

	mu     sync.Mutex
	names  map[string]*named // by the text of a Desc
	open   map[*registrations]struct{}
	closed totals
}

func newSums(kind string) *sums {
	return &sums{kind: kind, names: map[string]*named{}, open: map[*registrations]struct{}{}, closed: totals{}}
}

// nameOf returns the metric of a collector.
func (s *sums) nameOf(c prometheus.Collector) *named {
	descs := make(chan *prometheus.Desc, 1)
	c.Describe(descs) // a collector of tsdb has one Desc
	text := (<-descs).String()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.names[text]
	if n == nil {
		n = &named{}
		// The library shows the name in this text alone.
		if _, err := fmt.Sscanf(text, "Desc{fqName: %q, help: %q,", &n.name, &n.help); err != nil {
			panic(fmt.Sprintf("BUG: %s does not begin with a name and a help: %v", text, err))
		}
		s.names[text] = n
	}
	return n
}

// join adds a database that was opened.
func (s *sums) join(r *registrations) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[r] = struct{}{}
}

// leave removes a database that is closed, or that could not be opened.
func (s *sums) leave(r *registrations) {
	counted := totals{}
	counted.addAll(r) // without the lock, since some metrics read the disk, which may hang
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, joined := s.open[r]; !joined {
		return
	}
	delete(s.open, r)
	for of, t := range counted {
		if t.of != prometheus.GaugeValue { // a closed database has no gauges
			s.closed.at(of, t).plus(t)
		}
	}
}

// Describe implements prometheus.Collector. It names no metrics, since tsdb decides which there are.
func (s *sums) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *sums) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	all := totals{}
	for of, t := range s.closed {
		all.at(of, t).plus(t)
	}
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, r := range open {
		all.addAll(r)
	}
	for _, t := range all {
		to <- t.metric(s.kind)
	}
}

// totals are sums by the name and the labels of a metric.
type totals map[totalOf]*total

type totalOf struct{ name, labels string }

// total is the sum of one metric over databases.
type total struct {
	*named
	labels  []*dto.LabelPair
	of      prometheus.ValueType // if it is neither a histogram nor a summary
	value   float64              // or the sum of what a histogram or a summary has observed
	count   uint64
	buckets map[float64]uint64 // nil if it is no histogram
	summary bool
}

// at returns the total of a metric. If there is none, it makes one for a metric like t.
func (all totals) at(of totalOf, t *total) *total {
	if all[of] == nil {
		all[of] = &total{named: t.named, labels: t.labels, of: t.of, summary: t.summary}
	}
	return all[of]
}

// plus adds the values of a metric.
func (t *total) plus(more *total) {
	t.value += more.value
	t.count += more.count
	if t.buckets == nil && more.buckets != nil {
		t.buckets = map[float64]uint64{}
	}
	for bound, n := range more.buckets {
		t.buckets[bound] += n
	}
}

// addAll adds the metrics of a database.
func (all totals) addAll(r *registrations) {
	for _, c := range r.summed {
		metrics := make(chan prometheus.Metric, 16) // a collector of tsdb has at most three
		c.Collect(metrics)
		close(metrics)
		for m := range metrics {
			var read dto.Metric
			if err := m.Write(&read); err == nil { // otherwise the metric is not known
				all.add(c, &read)
			}
		}
	}
}

func (all totals) add(c summed, read *dto.Metric) {
	gauge := read.Gauge != nil
	if gauge && slices.ContainsFunc(noSums, func(part string) bool { return strings.Contains(c.name, part) }) {
		return
	}
	of := totalOf{name: c.name}
	for _, l := range read.Label {
		of.labels += l.GetName() + "\xff" + l.GetValue() + "\xff"
	}
	t := total{named: c.named, labels: read.Label, of: prometheus.CounterValue}
	switch {
	case gauge:
		t.of = prometheus.GaugeValue
		t.value = read.Gauge.GetValue()
	case read.Counter != nil:
		t.value = read.Counter.GetValue()
	case read.Summary != nil: // its quantiles have no sum
		t.summary = true
		t.count, t.value = read.Summary.GetSampleCount(), read.Summary.GetSampleSum()
	case read.Histogram != nil:
		t.count, t.value = read.Histogram.GetSampleCount(), read.Histogram.GetSampleSum()
		t.buckets = make(map[float64]uint64, len(read.Histogram.Bucket))
		for _, b := range read.Histogram.Bucket {
			t.buckets[b.GetUpperBound()] = b.GetCumulativeCount()
		}
	}
	all.at(of, &t).plus(&t)
}

// metric returns the sum as a metric with the label `store`.
func (t *total) metric(kind string) prometheus.Metric {
	names, values := []string{"store"}, []string{kind}
	for _, l := range t.labels {
		names, values = append(names, l.GetName()), append(values, l.GetValue())
	}
	desc := prometheus.NewDesc(t.name, t.help, names, nil)
	switch {
	case t.buckets != nil:
		return prometheus.MustNewConstHistogram(desc, t.count, t.value, t.buckets, values...)
	case t.summary:
		return prometheus.MustNewConstSummary(desc, t.count, t.value, nil, values...)
	}
	return prometheus.MustNewConstMetric(desc, t.of, t.value, values...)
}
