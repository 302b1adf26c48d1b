package promapi

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/index"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// MetadataSource returns a tenant's metrics, in the order of their names, with the kind
// of each.
type MetadataSource interface {
	Metadata(tenant string) []catalogue.Metric
}

// FamilySource has the metadata that senders give for a tenant's metrics, and yields it by metric
// name.
type FamilySource interface {
	All(tenant string, yield func(name string, m metadata.Metadata) bool)
}

// StatsSource describes the newest samples of a tenant: one element for each store. No two
// stores share a series. `limit` bounds each table.
type StatsSource interface {
	Stats(tenant string, limit int) ([]*tsdb.Stats, error)
}

// metadata answers with the type, unit and help of each metric name. Prometheus takes them from its
// scrape targets. We take them from the kind of each series, or from the sender. As in Prometheus,
// limit=0 returns no metrics, and limit_per_metric=0 means no limit.
func (a *api) metadata(r *http.Request) (any, error) {
	limit, err := number(r, "limit", -1)
	if err != nil {
		return nil, err
	}
	perMetric, err := number(r, "limit_per_metric", -1)
	if err != nil {
		return nil, err
	}
	metric := r.FormValue("metric")
	name, _ := tenant.FromContext(r.Context())
	found := map[string][]metadata.Metadata{}
	add := func(of string, m metadata.Metadata) bool {
		if metric != "" && of != metric {
			return true
		}
		known, ok := found[of]
		if !ok && limit >= 0 && len(found) >= limit {
			return false
		}
		if !slices.Contains(known, m) && (perMetric <= 0 || len(known) < perMetric) {
			found[of] = append(known, m)
		}
		return true
	}
	for _, m := range a.Metadata.Metadata(name) {
		if !add(m.Name, metadata.Metadata{Type: model.MetricType(m.Kind.MetricType()), Unit: m.Unit, Help: m.Help}) {
			break
		}
	}
	a.Families.All(name, add)
	return found, nil
}

// number reads a whole number from the parameters.
func number(r *http.Request, name string, preset int) (int, error) {
	text := r.FormValue(name)
	if text == "" {
		return preset, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, parameterError(name + " must be a number")
	}
	return n, nil
}

func (a *api) configuration(*http.Request) (any, error) {
	return map[string]string{"yaml": a.Config()}, nil
}

// walReplay answers that no replay is running, because all stores are open before the API
// answers requests.
func walReplay(*http.Request) (any, error) {
	return map[string]int{"min": 0, "max": 0, "current": 0}, nil
}

// maxStats is the largest limit of status/tsdb, as in Prometheus.
const maxStats = 10_000

// headStats is Prometheus' type without the number of chunks, which we do not know for a single
// tenant.
type headStats struct {
	NumSeries     uint64 `json:"numSeries"`
	NumLabelPairs int    `json:"numLabelPairs"`
	MinTime       int64  `json:"minTime"`
	MaxTime       int64  `json:"maxTime"`
}

// tsdbStatus is the answer of status/tsdb: the figures of all stores of a tenant, added up.
type tsdbStatus struct {
	HeadStats                   headStats     `json:"headStats"`
	SeriesCountByMetricName     []v1.TSDBStat `json:"seriesCountByMetricName"`
	LabelValueCountByLabelName  []v1.TSDBStat `json:"labelValueCountByLabelName"`
	MemoryInBytesByLabelName    []v1.TSDBStat `json:"memoryInBytesByLabelName"`
	SeriesCountByLabelValuePair []v1.TSDBStat `json:"seriesCountByLabelValuePair"`
}

func (a *api) stats(r *http.Request) (any, error) {
	limit, err := number(r, "limit", 10)
	if err != nil {
		return nil, err
	}
	if limit < 1 || limit > maxStats {
		return nil, parameterError(fmt.Sprintf("limit must be between 1 and %d", maxStats))
	}
	name, _ := tenant.FromContext(r.Context())
	// A label may be among the largest in all stores together although it is small in each
	// store, so the limit does not apply to single stores.
	stores, err := a.Stats.Stats(name, maxStats)
	if err != nil {
		return nil, err
	}
	return merge(stores, limit), nil
}

// merge adds up figures of stores that share no series. A label value in two stores counts
// twice.
func merge(stores []*tsdb.Stats, limit int) *tsdbStatus {
	head := headStats{MinTime: math.MaxInt64, MaxTime: math.MinInt64} // the times of an empty store
	var postings []*index.PostingsStats
	for _, s := range stores {
		head.NumSeries += s.NumSeries
		head.NumLabelPairs += s.IndexPostingStats.NumLabelPairs
		head.MinTime = min(head.MinTime, s.MinTime)
		head.MaxTime = max(head.MaxTime, s.MaxTime)
		postings = append(postings, s.IndexPostingStats)
	}
	table := func(of func(*index.PostingsStats) []index.Stat) []v1.TSDBStat {
		return largest(postings, of, limit)
	}
	return &tsdbStatus{
		HeadStats:                   head,
		SeriesCountByMetricName:     table(func(p *index.PostingsStats) []index.Stat { return p.CardinalityMetricsStats }),
		LabelValueCountByLabelName:  table(func(p *index.PostingsStats) []index.Stat { return p.CardinalityLabelStats }),
		MemoryInBytesByLabelName:    table(func(p *index.PostingsStats) []index.Stat { return p.LabelValueStats }),
		SeriesCountByLabelValuePair: table(func(p *index.PostingsStats) []index.Stat { return p.LabelValuePairsStats }),
	}
}

// largest adds up the same table of several stores and keeps the largest counts.
func largest(stores []*index.PostingsStats, of func(*index.PostingsStats) []index.Stat, limit int) []v1.TSDBStat {
	counts := map[string]uint64{}
	for _, s := range stores {
		for _, stat := range of(s) {
			counts[stat.Name] += stat.Count
		}
	}
	table := make([]v1.TSDBStat, 0, len(counts))
	for name, count := range counts {
		table = append(table, v1.TSDBStat{Name: name, Value: count})
	}
	slices.SortFunc(table, func(a, b v1.TSDBStat) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Name, b.Name))
	})
	return table[:min(limit, len(table))]
}
