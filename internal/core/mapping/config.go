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
	Rules        []Rule   `yaml:"rules" help:"rules; the first that matches decides alone"`
}

// Rule is one entry of mapping.rules. Keys are those of statsd_exporter where
// it has them.
type Rule struct {
	Match      string `yaml:"match" help:"which raw names it is for, such as app.*.time; * is one whole part between dots, and with match_type regex it is an expression for the whole name"`
	MatchType  string `yaml:"match_type" help:"how match is read: glob (the default) or regex"`
	MetricType string `yaml:"match_metric_type" help:"kind of metric it is for: counter, gauge, timer, timing (timers sent as ms), set or check; any if it is not given"`

	Action     string            `yaml:"action" help:"map (the default) or drop, which is counted and not stored"`
	Name       string            `yaml:"name" help:"the new name; $1 is what the first * or group stood for; kept if it is not given"`
	DropLabels []string          `yaml:"drop_labels" help:"labels to remove, before anything else below"`
	Labels     map[string]string `yaml:"labels" help:"then labels to set, name and value, with $1 as in name; an empty value removes the label"`
	Relabel    []Relabel         `yaml:"relabel" help:"then steps of Prometheus' relabel_config"`

	UpDown       bool      `yaml:"updown" help:"counters may go down, as by -1|c: each becomes a gauge of the total of all increments, which aggregator.updown_ttl keeps"`
	GaugeMerge   string    `yaml:"gauge_merge" help:"how gauges become one that differed only in what the rule took away: last (the default), sum, min or max"`
	Histogram    string    `yaml:"histogram" help:"how timers are stored: native (the default), or classic, which is the default if there are buckets"`
	Buckets      []float64 `yaml:"buckets" help:"upper bounds of a classic histogram, ascending, at most 256, without +Inf"`
	NativeSchema Optional  `yaml:"native_schema" help:"resolution of a native histogram: -4 (coarsest) to 8; 3 if it is not given, each bound 9 % above the one before"`
	MaxBuckets   int       `yaml:"max_buckets" help:"buckets of a native histogram, 1 to 65535, beyond which its resolution halves; 160 if it is not given"`

	Unit  string  `yaml:"unit" help:"unit for the metadata; changes no name and no value"`
	Scale float64 `yaml:"scale" help:"each value is multiplied by it; above 0, such as 0.001 for milliseconds to seconds; 1 if it is not given"`
	Help  string  `yaml:"help" help:"help text for the metadata"`
}

// Relabel is one step of Prometheus' relabelling, with Prometheus' defaults. It
// is plain text, and not Prometheus' own type, so that a bad expression is one
// of the problems that New finds and not the end of reading the file.
type Relabel struct {
	SourceLabels []string `yaml:"source_labels" help:"labels whose values are joined, __name__ being the name"`
	Separator    Optional `yaml:"separator" help:"what stands between them; ; if it is not given"`
	Regex        Optional `yaml:"regex" help:"expression for the whole of the joined values; (.*) if it is not given"`
	Modulus      uint64   `yaml:"modulus" help:"for the action hashmod, above 0"`
	TargetLabel  string   `yaml:"target_label" help:"label that is set"`
	Replacement  Optional `yaml:"replacement" help:"what it is set to; $1 if it is not given"`
	Action       string   `yaml:"action" help:"replace (the default), keep, drop, keepequal, dropequal, hashmod, labelmap, labeldrop, labelkeep, lowercase or uppercase"`
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

// MarshalText is what UnmarshalText reads.
func (o Optional) MarshalText() ([]byte, error) { return []byte(o.Text), nil }

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
	m.config = c
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
