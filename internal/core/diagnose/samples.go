package diagnose

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	dto "github.com/prometheus/client_model/go"
)

// samples are the metrics of /metrics, by name.
type samples map[string]*dto.MetricFamily

func readSamples(text []byte) (samples, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	return families, err
}

// labelled is a metric's value and its labels.
type labelled struct {
	labels map[string]string
	value  float64
	count  float64 // number of observations of a histogram, whose value is their sum
}

// of(name) returns the values of a metric.
func (s samples) of(name string) (all []labelled) {
	for _, m := range s[name].GetMetric() {
		l := labelled{labels: map[string]string{}}
		for _, pair := range m.GetLabel() {
			l.labels[pair.GetName()] = pair.GetValue()
		}
		switch {
		case m.GetCounter() != nil:
			l.value = m.GetCounter().GetValue()
		case m.GetGauge() != nil:
			l.value = m.GetGauge().GetValue()
		case m.GetHistogram() != nil:
			l.value, l.count = m.GetHistogram().GetSampleSum(), float64(m.GetHistogram().GetSampleCount())
		case m.GetUntyped() != nil:
			l.value = m.GetUntyped().GetValue()
		}
		all = append(all, l)
	}
	return all
}

// key identifies a value of a metric by its labels.
func (l labelled) key() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(l.labels)) {
		fmt.Fprintf(&b, "%s=%q ", name, l.labels[name])
	}
	return b.String()
}

// grown returns the increase of each value of a metric during the record.
func (m *moment) grown(name string) (all []labelled) {
	before := map[string]labelled{}
	for _, l := range m.begin.of(name) {
		before[l.key()] = l
	}
	for _, l := range m.end.of(name) {
		b := before[l.key()]
		l.value, l.count = max(0, l.value-b.value), max(0, l.count-b.count)
		all = append(all, l)
	}
	return all
}

// grownBy returns the increase of all values of a metric together.
func (m *moment) grownBy(name string) (sum float64) {
	for _, l := range m.grown(name) {
		sum += l.value
	}
	return sum
}
