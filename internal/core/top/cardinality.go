package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// maxHashes bounds the hashes of a Cardinality: 32 MiB. A metric with ten labels has room for 200,000 series.
const maxHashes = 4 << 20

// Cardinality counts the series of one metric: by label, by value of one of its labels, and how many would be left
// without each label. The counts are exact, but for two hashes of 64 bits that are alike.
type Cardinality struct {
	label  string // whose values are counted
	series int
	hashes int      // of all labels
	whole  []uint64 // hash of each series
	labels map[string]*labelSeries
	values map[string]int // series by value of `label`
	buffer []byte
}

// labelSeries has the series that have a label.
type labelSeries struct {
	series  int      // that have it
	values  []uint64 // hash of its value in each of them
	without []uint64 // hash of each of these series without the label
}

// ViewCardinality is how many series a tenant had in a day, in UTC: by metric, or of one metric by label. It may have
// the days before, too. Servers return it as JSON.
type ViewCardinality struct {
	Metric string       `json:"metric,omitempty"`
	Day    string       `json:"day"` // such as 2026-11-28
	Series int          `json:"series"`
	Short  string       `json:"short,omitempty"`   // why counts are too low; empty if they are exact
	Counts []NameCount  `json:"metrics,omitempty"` // without a metric: most series first
	Labels []LabelCost  `json:"labels,omitempty"`  // of a metric: the one first that saves most series
	Label  string       `json:"label,omitempty"`
	Values []NameCount  `json:"values,omitempty"` // of the label: most series first
	Others int          `json:"others"`           // metrics or values that are not listed
	Days   []DayCount   `json:"days,omitempty"`   // if several were asked for: this day, and the days before it
	Since  string       `json:"since,omitempty"`  // the first of these days with series and an exact count
	Grown  []NameGrowth `json:"grown,omitempty"`  // metrics with more series than then: the one first that has most more
}

// DayCount is the number of series of a day.
type DayCount struct {
	Day    string `json:"day"`
	Series int    `json:"series"`
	Short  string `json:"short,omitempty"` // why the number is too low; empty if it is exact
}

// NameGrowth is a metric that has more series than on an earlier day.
type NameGrowth struct {
	Name   string `json:"name"`
	Was    int    `json:"was"` // its series on the earlier day
	Series int    `json:"series"`
}

// LabelCost is what a label costs its metric.
type LabelCost struct {
	Name   string `json:"label"`
	Values int    `json:"values"`
	Series int    `json:"series"` // that have the label
	Saved  int    `json:"saved"`  // series that the metric would not have without the label
}

// NameCount is the number of series of a metric, or with a value of a label.
type NameCount struct {
	Name   string `json:"name"`
	Series int    `json:"series"`
}

// NewCardinality returns a count without series. It counts the values of `label`, if that is not empty.
func NewCardinality(label string) *Cardinality {
	return &Cardinality{label: label, labels: map[string]*labelSeries{}, values: map[string]int{}}
}

// Add counts a series, and reports whether there was room for it. It must not come twice.
func (c *Cardinality) Add(ls labels.Labels) bool {
	if c.hashes+2*ls.Len() > maxHashes {
		return false
	}
	c.hashes += 2 * ls.Len()
	c.series++
	var whole uint64
	whole, c.buffer = ls.HashWithoutLabels(c.buffer)
	c.whole = append(c.whole, whole)
	ls.Range(func(l labels.Label) {
		if l.Name == model.MetricNameLabel {
			return
		}
		of := c.labels[l.Name]
		if of == nil {
			of = new(labelSeries)
			c.labels[strings.Clone(l.Name)] = of
		}
		of.series++
		of.values = append(of.values, xxhash.Sum64String(l.Value))
		var without uint64
		without, c.buffer = ls.HashWithoutLabels(c.buffer, l.Name)
		of.without = append(of.without, without)
		if l.Name == c.label {
			c.count(l.Value)
		}
	})
	return true
}

func (c *Cardinality) count(value string) {
	n, known := c.values[value]
	if !known {
		value = strings.Clone(value)
	}
	c.values[value] = n + 1
}

// Series returns how many series were counted.
func (c *Cardinality) Series() int { return c.series }

// Labels returns what each label costs, the one first that saves most series. Series that are alike without a label
// would become one, and so would a series that lacks the label and is like them.
func (c *Cardinality) Labels() (all []LabelCost) {
	slices.Sort(c.whole)
	for name, of := range c.labels {
		left := 0
		for _, h := range distinctOf(of.without) {
			if _, lacks := slices.BinarySearch(c.whole, h); !lacks {
				left++
			}
		}
		all = append(all, LabelCost{name, len(distinctOf(of.values)), of.series, of.series - left})
	}
	slices.SortFunc(all, func(a, b LabelCost) int {
		return cmp.Or(cmp.Compare(b.Saved, a.Saved), cmp.Compare(b.Values, a.Values), strings.Compare(a.Name, b.Name))
	})
	return all
}

// Values returns the values of the label with the most series, and how many more values there are than `limit`.
func (c *Cardinality) Values(limit int) (all []NameCount, others int) {
	return MostSeries(c.values, limit)
}

// MostSeries returns the names with the most series, and how many more names there are than `limit`.
func MostSeries(counts map[string]int, limit int) (all []NameCount, others int) {
	for name, n := range counts {
		all = append(all, NameCount{name, n})
	}
	slices.SortFunc(all, func(a, b NameCount) int {
		return cmp.Or(cmp.Compare(b.Series, a.Series), strings.Compare(a.Name, b.Name))
	})
	others = max(0, len(all)-limit)
	return all[:len(all)-others], others
}

// MostGrown returns the names that have gained most series since they had the counts `was`, at most `limit` names.
func MostGrown(was, is map[string]int, limit int) (all []NameGrowth) {
	for name, n := range is {
		if n > was[name] {
			all = append(all, NameGrowth{name, was[name], n})
		}
	}
	slices.SortFunc(all, func(a, b NameGrowth) int {
		return cmp.Or(cmp.Compare(b.Series-b.Was, a.Series-a.Was), strings.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), limit)]
}

// ShortDays says which days have counts that are too low, and why. It is empty if all counts are exact.
func ShortDays(all []DayCount) string {
	var reasons []string
	days := map[string][]string{}
	for _, d := range all {
		if d.Short == "" {
			continue
		}
		if days[d.Short] == nil {
			reasons = append(reasons, d.Short)
		}
		days[d.Short] = append(days[d.Short], d.Day)
	}
	for i, why := range reasons {
		reasons[i] = fmt.Sprintf("on %s: %s", strings.Join(days[why], ", "), why)
	}
	return strings.Join(reasons, "; ")
}

func distinctOf(hashes []uint64) []uint64 {
	slices.Sort(hashes)
	return slices.Compact(hashes)
}
