package main

import (
	"testing"

	"github.com/freshet-io/freshet/internal/core/growth"
)

// The label that is shown makes the new series: one whose values are few does not.
func TestGrowingMetricShowsTheLabelThatGrows(t *testing.T) {
	label := func(name string, values uint64) growth.Label { return growth.Label{Name: name, Values: values} }
	for name, c := range map[string]struct {
		counted uint64
		labels  []growth.Label // most values first
		want    growth.Label
	}{
		"a new value with each series":        {60_000, []growth.Label{label("request", 58_000), label("zone", 3)}, label("request", 58_000)},
		"a pod with many series":              {6_000, []growth.Label{label("pod", 200), label("le", 12)}, label("pod", 200)},
		"one value alone":                     {6_000, []growth.Label{label("cluster", 1), label("zone", 1)}, growth.Label{}},
		"few values that make not so many":    {60_000, []growth.Label{label("le", 12), label("zone", 3)}, growth.Label{}},
		"no label":                            {1, nil, growth.Label{}},
		"series that a limit refuses, no new": {0, []growth.Label{label("request", 40)}, label("request", 40)},
	} {
		m := newGrowingMetric(growth.Metric{Name: "m", New: []uint64{c.counted, 0}, Counted: c.counted, Labels: c.labels})
		if got := (growth.Label{Name: m.Label, Values: m.Values}); got != c.want {
			t.Errorf("%s: %+v, not %+v", name, got, c.want)
		}
	}
}
