package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/freshet-io/freshet/internal/core/stage"
)

// stages exports a stage.Watch as metrics.
type stages struct{ *stage.Watch }

var (
	stageSpent = prometheus.NewDesc("freshet_stage_seconds",
		"How long batches stay in each stage, in the order of flow: read, parse, window, forward, journal, tile, "+
			"distribute, queue, append; visible is the whole way, from birth until queries see them. At high rates one "+
			"batch in four is timed, and one datagram in 16. Rising: this stage takes the time; see docs/stages.md.",
		[]string{"stage", "input"}, nil)
	stageAge = prometheus.NewDesc("freshet_stage_age_seconds",
		"How old batches are when they reach a stage: the time since their first measurement was read, or for tiles "+
			"since their end. Rising while freshet_stage_seconds of the stage does not: an earlier stage holds them up.",
		[]string{"stage", "input"}, nil)
	stageSamples = prometheus.NewDesc("freshet_stage_samples_total",
		"Samples that passed each stage.",
		[]string{"stage", "input"}, nil)
	stageBudget = prometheus.NewDesc("freshet_stage_budget_seconds",
		"How long a batch may take in each stage (self.budgets); 0 for no budget.",
		[]string{"stage"}, nil)
)

// Describe implements prometheus.Collector.
func (s stages) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{stageSpent, stageAge, stageSamples, stageBudget} {
		to <- desc
	}
}

// collectorStages exports the sum of what collectors on other hosts told this node of their stages. The page adds it to
// the nodes' own stages.
type collectorStages struct{ *stage.Sum }

var (
	collectorSpent = prometheus.NewDesc("freshet_collectors_stage_seconds",
		"As freshet_stage_seconds, of collectors on other hosts: what they told this node since it started.",
		[]string{"stage", "input"}, nil)
	collectorAge = prometheus.NewDesc("freshet_collectors_stage_age_seconds",
		"As freshet_stage_age_seconds, of collectors on other hosts: what they told this node since it started.",
		[]string{"stage", "input"}, nil)
	collectorSamples = prometheus.NewDesc("freshet_collectors_stage_samples_total",
		"As freshet_stage_samples_total, of collectors on other hosts: what they told this node since it started.",
		[]string{"stage", "input"}, nil)
)

// Describe implements prometheus.Collector.
func (s collectorStages) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{collectorSpent, collectorAge, collectorSamples} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (s collectorStages) Collect(to chan<- prometheus.Metric) {
	collectStages(to, s.Stats(), collectorSpent, collectorAge, collectorSamples)
}

// Collect implements prometheus.Collector.
func (s stages) Collect(to chan<- prometheus.Metric) {
	for st, budget := range s.Budgets() {
		to <- prometheus.MustNewConstMetric(stageBudget, prometheus.GaugeValue, budget.Seconds(), stage.Stage(st).String())
	}
	collectStages(to, s.Stats(), stageSpent, stageAge, stageSamples)
}

func collectStages(to chan<- prometheus.Metric, all []stage.Stats, spent, age, samples *prometheus.Desc) {
	for _, of := range all {
		in, by := of.Stage.String(), of.Input.String()
		to <- durations(spent, of.Spent, in, by)
		if of.Stage != stage.Visible {
			to <- durations(age, of.Age, in, by)
		}
		to <- prometheus.MustNewConstMetric(samples, prometheus.CounterValue, float64(of.Samples), in, by)
	}
}

// stageBuckets are the upper bounds of the classic buckets in seconds: 0.24 ms to 16 s. Powers of
// two are bounds of native buckets, too, so both forms agree. The usual budgets are among the
// bounds.
var stageBuckets = []float64{1.0 / 4096, 1.0 / 1024, 1.0 / 256, 1.0 / 64, 1.0 / 16, 0.125, 0.25, 0.5, 1, 2, 4, 16}

// durations returns a histogram in both forms, native and with classic buckets. The scraper chooses
// a form; Prometheus chooses the classic form by default. The exemplar names a trace.
func durations(desc *prometheus.Desc, h stage.Histogram, labels ...string) prometheus.Metric {
	m, err := prometheus.NewConstNativeHistogram(desc, h.Count, h.Sum, h.Buckets, nil, h.Zero,
		stage.Schema, stage.ZeroThreshold, time.Time{}, labels...)
	if err == nil && h.Exemplar != nil {
		m, err = prometheus.NewMetricWithExemplars(m, prometheus.Exemplar{
			Value: h.Exemplar.Spent.Seconds(), Timestamp: h.Exemplar.At, Labels: prometheus.Labels{"trace_id": h.Exemplar.Trace},
		})
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: %v of %v: %v", desc, labels, err))
	}
	return bothForms{m, h}
}

// bothForms adds classic buckets to a native histogram, which Prometheus' client cannot do.
type bothForms struct {
	prometheus.Metric
	counted stage.Histogram
}

// Write implements prometheus.Metric.
func (b bothForms) Write(to *dto.Metric) error {
	if err := b.Metric.Write(to); err != nil {
		return err
	}
	for i, n := range b.counted.Classic(stageBuckets) {
		to.Histogram.Bucket = append(to.Histogram.Bucket, &dto.Bucket{UpperBound: &stageBuckets[i], CumulativeCount: &n})
	}
	return nil
}
