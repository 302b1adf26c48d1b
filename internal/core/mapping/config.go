package mapping

import (
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Config is the "mapping" section of the configuration file.
type Config struct {
	UTF8Names    bool     `yaml:"utf8_names" help:"keep names as they were sent, in place of underscores for what Prometheus did not always allow"`
	OriginLabels []string `yaml:"origin_labels" help:"labels from origin detection: container_id, pod_uid, container_name; each makes new series with every pod"`
	Rules        []Rule   `yaml:"rules"` // the first that matches decides alone
}

// Rule is one entry of mapping.rules. Keys are those of statsd_exporter where
// it has them.
type Rule struct {
	Match      string `yaml:"match"`             // against the raw name
	MatchType  string `yaml:"match_type"`        // glob (default) or regex, which is anchored
	MetricType string `yaml:"match_metric_type"` // counter, gauge, timer, timing, set or check; empty for any

	Action     string            `yaml:"action"`      // map (default) or drop
	Name       string            `yaml:"name"`        // $1 is what the first * or group stood for; empty keeps the name
	DropLabels []string          `yaml:"drop_labels"` // first
	Labels     map[string]string `yaml:"labels"`      // then; an empty value removes the label
	Relabel    []Relabel         `yaml:"relabel"`     // last

	GaugeMerge   string    `yaml:"gauge_merge"`   // last (default), sum, min or max
	Histogram    string    `yaml:"histogram"`     // native (default), or classic if there are buckets
	Buckets      []float64 `yaml:"buckets"`       // upper bounds, ascending, without +Inf
	NativeSchema Optional  `yaml:"native_schema"` // -4 to 8; default 3, 9 % between bounds
	MaxBuckets   int       `yaml:"max_buckets"`   // of a native histogram; default 160

	Unit  string  `yaml:"unit"`  // metadata only
	Scale float64 `yaml:"scale"` // each value is multiplied by it; default 1
	Help  string  `yaml:"help"`  // metadata only
}

// Relabel is one step of Prometheus' relabelling, with Prometheus' defaults. It
// is plain text, and not Prometheus' own type, so that a bad expression is one
// of the problems that New finds and not the end of reading the file.
type Relabel struct {
	SourceLabels []string `yaml:"source_labels"`
	Separator    Optional `yaml:"separator"`
	Regex        Optional `yaml:"regex"`
	Modulus      uint64   `yaml:"modulus"`
	TargetLabel  string   `yaml:"target_label"`
	Replacement  Optional `yaml:"replacement"`
	Action       string   `yaml:"action"`
}

// Optional is a text that may be missing, where an empty one says something else.
type Optional struct {
	Text  string
	Given bool
}

// UnmarshalText reads what a configuration file holds.
func (o *Optional) UnmarshalText(text []byte) error {
	*o = Optional{string(text), true}
	return nil
}

// Validate returns what is wrong with c, keys relative to the section.
func (c Config) Validate() []conf.Problem {
	_, problems := compile(c)
	var out []conf.Problem
	for _, p := range problems {
		out = append(out, conf.Problem{Key: p.key, Text: p.why})
	}
	return out
}

// New makes a Mapper of c. The constant labels are added to every series whose
// sender did not give the label itself. The error joins all that is wrong.
func New(c Config, constant labels.Labels) (*Mapper, error) {
	m, problems := compile(c)
	var errs []error
	for _, p := range problems {
		errs = append(errs, fmt.Errorf("mapping.%s%s: %s", p.key, p.value, p.why))
	}
	constant.Range(func(l labels.Label) {
		if why := m.labelProblem(l.Name); why != "" {
			errs = append(errs, fmt.Errorf("constant label %q: %s", l.Name, why))
		} else if validUTF8(l.Value) != l.Value {
			errs = append(errs, fmt.Errorf("constant label %q = %q: is not UTF-8; write the value in UTF-8", l.Name, l.Value))
		}
		m.constant = append(m.constant, pair{l.Name, l.Value})
	})
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return m, nil
}

// The values of keys that take one of a few.
var (
	matchTypes  = []word[bool]{{"", false}, {"glob", false}, {"regex", true}}
	actions     = []word[bool]{{"", false}, {"map", false}, {"drop", true}}
	metricTypes = []word[metricType]{{"", metricType{}}, {"counter", metricType{kind: series.Counter}},
		{"gauge", metricType{kind: series.Gauge}}, {"timer", metricType{kind: series.Timer}},
		{"timing", metricType{kind: series.Timer, wire: dogstatsd.Timing}}, {"set", metricType{kind: series.Set}},
		{"check", metricType{kind: series.Check}}}
	merges = []word[series.Merge]{{"", series.MergeLast}, {"last", series.MergeLast},
		{"sum", series.MergeSum}, {"min", series.MergeMin}, {"max", series.MergeMax}}
	histograms = []word[string]{{"", ""}, {"native", "native"}, {"classic", "classic"}}
)

// word is a value's spelling; an empty one stands for a key that is not there.
type word[T any] struct {
	text  string
	value T
}
