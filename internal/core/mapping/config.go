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
	UTF8Names    bool     `yaml:"utf8_names" help:"keep names as sent; false: underscores replace characters that older versions of Prometheus refuse"`
	OriginLabels []string `yaml:"origin_labels" help:"labels from origin detection: container_id, pod_uid, container_name, and with kubelet.url pod_name and kube_namespace; all but container_name and kube_namespace add series with every new pod"`

	PodLabels map[string]string `yaml:"pod_labels" help:"with kubelet.url: labels of pods that become labels of series, each with its name there, such as app.kubernetes.io/name: app"`

	Rules []Rule `yaml:"rules" help:"rules; only the first that matches applies"`
}

// Rule is one entry of mapping.rules. Keys that also exist in statsd_exporter have the same names here.
type Rule struct {
	Match      string `yaml:"match" help:"raw names that the rule is for: app.*.time, where * is one part between dots, or a regular expression for the whole name"`
	MatchType  string `yaml:"match_type" help:"form of match: glob (default) or regex"`
	MetricType string `yaml:"match_metric_type" help:"kind of metric that the rule is for: counter, gauge, timer, timing (timers sent as ms), set or check; default any"`

	Action     string            `yaml:"action" help:"map (default), or drop, which counts samples and does not store them"`
	Name       string            `yaml:"name" help:"new name, in which $1 is the text of the first * or group; default: the old name"`
	DropLabels []string          `yaml:"drop_labels" help:"labels to remove, before labels and relabel apply"`
	Labels     map[string]string `yaml:"labels" help:"labels to set after drop_labels, with $1 as in name; an empty value removes the label"`
	Relabel    []Relabel         `yaml:"relabel" help:"steps of Prometheus' relabel_config, after labels"`

	UpDown       bool      `yaml:"updown" help:"let counters go down, as by -1|c: each becomes a gauge of its total, kept for aggregator.updown_ttl"`
	GaugeMerge   string    `yaml:"gauge_merge" help:"how to merge gauges that this rule turns into one series: last (default), sum, min or max"`
	Histogram    string    `yaml:"histogram" help:"histogram for timers: native (default), or classic (default with buckets)"`
	Buckets      []float64 `yaml:"buckets" help:"upper bounds of a classic histogram, ascending, at most 256, without +Inf"`
	NativeSchema Optional  `yaml:"native_schema" help:"resolution of a native histogram, -4 (coarsest) to 8; default 3: each bound is 9 % above the bound before"`
	MaxBuckets   int       `yaml:"max_buckets" help:"largest number of buckets of a native histogram, 1 to 65535; with more, the resolution is halved; default 160"`

	Unit  string  `yaml:"unit" help:"unit for the metadata; changes no name and no value"`
	Scale float64 `yaml:"scale" help:"factor for each value, above 0; 0.001 turns milliseconds into seconds; default 1"`
	Help  string  `yaml:"help" help:"help text for the metadata"`
}

// Relabel is one step of Prometheus' relabelling, with Prometheus' defaults. Its expressions are plain
// text, so that New can report a bad expression together with all other problems. With Prometheus' own
// type, reading the file would stop at the first problem.
type Relabel struct {
	SourceLabels []string `yaml:"source_labels" help:"labels whose values are joined; __name__ is the metric's name"`
	Separator    Optional `yaml:"separator" help:"text between the joined values; default: a semicolon"`
	Regex        Optional `yaml:"regex" help:"regular expression that must match the whole joined value; default (.*)"`
	Modulus      uint64   `yaml:"modulus" help:"modulus for the hash of the action hashmod, above 0"`
	TargetLabel  string   `yaml:"target_label" help:"label to set"`
	Replacement  Optional `yaml:"replacement" help:"new value of the label; default $1"`
	Action       string   `yaml:"action" help:"replace (default), keep, drop, keepequal, dropequal, hashmod, labelmap, labeldrop, labelkeep, lowercase or uppercase"`
}

// Optional is a text that may be missing. A missing text differs from an empty text.
type Optional struct {
	Text  string
	Given bool
}

// UnmarshalText reads the text of a configuration file.
func (o *Optional) UnmarshalText(text []byte) error {
	*o = Optional{string(text), true}
	return nil
}

// MarshalText returns the text that UnmarshalText reads.
func (o Optional) MarshalText() ([]byte, error) { return []byte(o.Text), nil }

// Validate returns the problems of c, with keys relative to the section.
func (c Config) Validate() []conf.Problem {
	_, problems := compile(c)
	var out []conf.Problem
	for _, p := range problems {
		out = append(out, conf.Problem{Key: p.key, Text: p.why})
	}
	return out
}

// New makes a Mapper from c. It adds the constant labels to every series whose sender did not
// give the label itself. The error joins all problems.
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

// The words that a key may have as its value, and their meanings.
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

// word is a value's spelling. An empty word means that the key is missing.
type word[T any] struct {
	text  string
	value T
}
