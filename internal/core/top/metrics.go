package top

import (
	"strings"

	"github.com/freshet-io/freshet/internal/core/series"
)

// maxMetrics bounds the metrics of a tenant: 20,000 x 650 bytes = 13 MB, if all had samples
// within Span seconds.
const maxMetrics = 20_000

// Metrics counts the samples of a tenant by metric.
type Metrics struct {
	rows   rows[metric]
	others recent
}

type metric struct {
	name string
	kind series.Kind
}

// Metric is one row.
type Metric struct {
	Name    string
	Kind    series.Kind
	Samples uint64
}

// NewMetrics returns an empty table.
func NewMetrics() *Metrics { return &Metrics{rows: newRows[metric](maxMetrics)} }

// Add adds the samples of a series in the window of a second.
func (m *Metrics) Add(second int64, key []byte, samples uint64) {
	if len(key) == 0 {
		return
	}
	name, kind := series.Name(key), series.Kind(key[0])
	row := m.rows.byKey[metric{string(name), kind}] // allocates nothing
	if row == nil && m.rows.room(second) {
		row = m.rows.insert(metric{string(name), kind}) // allocates the name
	}
	if row == nil {
		row = &m.others
	}
	row.add(second, Amount{Count: samples})
}

// Len returns the number of metrics held.
func (m *Metrics) Len() int { return len(m.rows.byKey) }

// Busiest returns the metrics with the most samples in the seconds [from, to), and the sum of
// the others.
func (m *Metrics) Busiest(from, to int64, limit int) ([]Metric, Rest) {
	var all []Metric
	for key, row := range m.rows.byKey {
		if n := row.sum(from, to).Count; n > 0 {
			all = append(all, Metric{key.name, key.kind, n})
		}
	}
	kept, rest := busiest(all, limit, func(m Metric) Amount { return Amount{Count: m.Samples} },
		func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	rest.add(m.others.sum(from, to))
	return kept, rest
}
