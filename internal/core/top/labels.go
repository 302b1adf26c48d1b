package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/common/model"

	"github.com/freshet-io/freshet/internal/core/series"
)

// maxExamples is how many values of a label are shown.
const maxExamples = 3

// Label is a label of a metric.
type Label struct {
	Metric, Name string
	Values       int      // distinct values among the series
	Examples     []string // the first few in order, so that they stay the same
}

// Labels returns the labels with the most values in a list of series, given by their keys. It
// leaves out labels with one value. It reads each label of each series.
func Labels(keys [][]byte, limit int) []Label {
	metrics := map[string][][]byte{}
	for _, key := range keys {
		name := series.Name(key)
		metrics[string(name)] = append(metrics[string(name)], key)
	}
	var all []Label
	for name, keys := range metrics {
		all = append(all, labelsOf(name, keys)...)
		if len(all) > 4*limit { // keep memory bounded
			all = mostValues(all, limit)
		}
	}
	return mostValues(all, limit)
}

// labelValues distinguishes values by their hash. With a million values, the chance that it misses a
// value is below one in ten million.
type labelValues struct {
	hashes   map[uint64]struct{}
	examples [][]byte // sorted
}

func (v *labelValues) add(value []byte) {
	hash := xxhash.Sum64(value)
	if _, known := v.hashes[hash]; known {
		return
	}
	v.hashes[hash] = struct{}{}
	at, _ := slices.BinarySearchFunc(v.examples, value, slices.Compare[[]byte])
	if at < maxExamples {
		v.examples = slices.Insert(v.examples, at, value)
		v.examples = v.examples[:min(len(v.examples), maxExamples)]
	}
}

func labelsOf(metric string, keys [][]byte) (all []Label) {
	labels := map[string]*labelValues{}
	for _, key := range keys {
		for name, value := range series.KeyLabels(key) {
			v := labels[string(name)]
			if v == nil {
				v = &labelValues{hashes: map[uint64]struct{}{}}
				labels[string(name)] = v
			}
			v.add(value)
		}
	}
	delete(labels, model.MetricNameLabel)
	for name, v := range labels {
		if len(v.hashes) < 2 {
			continue
		}
		l := Label{Metric: metric, Name: name, Values: len(v.hashes)}
		for _, e := range v.examples {
			l.Examples = append(l.Examples, string(e))
		}
		all = append(all, l)
	}
	return all
}

func mostValues(all []Label, limit int) []Label {
	slices.SortFunc(all, func(a, b Label) int {
		return cmp.Or(cmp.Compare(b.Values, a.Values), strings.Compare(a.Metric, b.Metric), strings.Compare(a.Name, b.Name))
	})
	return all[:min(limit, len(all))]
}
