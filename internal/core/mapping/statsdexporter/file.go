package statsdexporter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// file is a mapping file of statsd_exporter 0.31. It also has the keys that older versions used for
// the same settings.
type file struct {
	Defaults defaults  `yaml:"defaults"`
	Mappings []mapping `yaml:"mappings"`
}

type defaults struct {
	ObserverType        string           `yaml:"observer_type"`
	TimerType           string           `yaml:"timer_type"` // the name of observer_type before 0.19
	MatchType           string           `yaml:"match_type"`
	GlobDisableOrdering bool             `yaml:"glob_disable_ordering"`
	TTL                 duration         `yaml:"ttl"`
	SummaryOptions      summaryOptions   `yaml:"summary_options"`
	HistogramOptions    histogramOptions `yaml:"histogram_options"`
}

type mapping struct {
	Match            string            `yaml:"match"`
	Name             string            `yaml:"name"`
	Labels           map[string]string `yaml:"labels"`
	HonorLabels      bool              `yaml:"honor_labels"`
	ObserverType     string            `yaml:"observer_type"`
	TimerType        string            `yaml:"timer_type"`
	MatchType        string            `yaml:"match_type"`
	Help             string            `yaml:"help"`
	Action           string            `yaml:"action"`
	MatchMetricType  string            `yaml:"match_metric_type"`
	TTL              duration          `yaml:"ttl"`
	SummaryOptions   *summaryOptions   `yaml:"summary_options"`
	HistogramOptions *histogramOptions `yaml:"histogram_options"`
	Scale            *float64          `yaml:"scale"`

	line  int            // in the file
	regex *regexp.Regexp // nil for globs
}

type summaryOptions struct {
	Quantiles []struct {
		Quantile float64 `yaml:"quantile"`
		Error    float64 `yaml:"error"`
	} `yaml:"quantiles"`
	MaxAge     duration `yaml:"max_age"`
	AgeBuckets uint32   `yaml:"age_buckets"`
	BufCap     uint32   `yaml:"buf_cap"`
}

type histogramOptions struct {
	Buckets      []float64 `yaml:"buckets"`
	NativeFactor float64   `yaml:"native_histogram_bucket_factor"`
	NativeMax    uint32    `yaml:"native_histogram_max_buckets"`
}

// duration is a time.Duration that may be written as 0, without a unit.
type duration struct{ time.Duration }

// UnmarshalYAML is part of yaml.Unmarshaler.
func (d *duration) UnmarshalYAML(node *yaml.Node) error {
	if node.Value == "0" {
		return nil
	}
	return node.Decode(&d.Duration)
}

// defaultBuckets are the default buckets of statsd_exporter, from Prometheus' client library.
var defaultBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// The values that statsd_exporter accepts when it starts.
var (
	globForm  = regexp.MustCompile(`^(\*|[a-zA-Z_][a-zA-Z0-9_-]*)(\.(\*|[a-zA-Z0-9_][a-zA-Z0-9_-]*))*$`)
	nameForm  = regexp.MustCompile(`^([a-zA-Z_]|\$\{?\d+\}?)([a-zA-Z0-9_]|\$\{?\d+\}?)*$`)
	labelForm = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]+$`)
)

// read reads a mapping file as statsd_exporter does, and refuses what statsd_exporter refuses.
func read(text []byte) (*file, error) {
	f := &file{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(f); err != nil && !errors.Is(err, io.EOF) {
		return nil, plainly(err)
	}
	var lines struct {
		Mappings []yaml.Node `yaml:"mappings"`
	}
	if err := yaml.Unmarshal(text, &lines); err != nil {
		return nil, plainly(err)
	}
	d := &f.Defaults
	if d.ObserverType == "" {
		d.ObserverType = d.TimerType
	}
	if len(d.HistogramOptions.Buckets) == 0 {
		d.HistogramOptions.Buckets = defaultBuckets
	}
	if err := oneOf("defaults.observer_type", d.ObserverType, "", "summary", "histogram"); err != nil {
		return nil, err
	}
	for i := range f.Mappings {
		m := &f.Mappings[i]
		m.line = lines.Mappings[i].Line
		if err := m.complete(d); err != nil {
			return nil, fmt.Errorf("line %d: mapping %q: %w", m.line, m.Match, err)
		}
	}
	return f, nil
}

// complete fills in m from the defaults, and checks it.
func (m *mapping) complete(d *defaults) error {
	if m.ObserverType == "" {
		m.ObserverType = m.TimerType
	}
	if m.MatchType == "" {
		m.MatchType = d.MatchType
	}
	if m.MatchMetricType == "timer" { // the name of observer before 0.19
		m.MatchMetricType = "observer"
	}
	if err := errors.Join(
		oneOf("match_type", m.MatchType, "", "glob", "regex"),
		oneOf("action", m.Action, "", "map", "drop"),
		oneOf("observer_type", m.ObserverType, "", "summary", "histogram"),
		oneOf("match_metric_type", m.MatchMetricType, "", "counter", "gauge", "observer"),
	); err != nil {
		return err
	}
	if !nameForm.MatchString(m.Name) {
		return fmt.Errorf("name = %q: is not a metric name; statsd_exporter refuses it, too", m.Name)
	}
	for label := range m.Labels {
		if !labelForm.MatchString(label) {
			return fmt.Errorf("labels.%s: is not a label name; statsd_exporter refuses it, too", label)
		}
	}
	if m.MatchType == "regex" {
		var err error
		m.regex, err = regexp.Compile(m.Match)
		return err
	}
	if !globForm.MatchString(m.Match) {
		return errors.New("match is not a glob; statsd_exporter refuses it, too")
	}
	return nil
}

func oneOf(key, value string, known ...string) error {
	if slices.Contains(known, value) {
		return nil
	}
	return fmt.Errorf("%s = %q: statsd_exporter knows only %q", key, value, known[1:])
}

// observer returns how timers of m are exported: histogram or summary.
func (m *mapping) observer(d *defaults) string {
	if m.ObserverType != "" {
		return m.ObserverType
	}
	if d.ObserverType != "" {
		return d.ObserverType
	}
	return "summary"
}

// buckets returns the bounds of m's histograms.
func (m *mapping) buckets(d *defaults) []float64 {
	if m.HistogramOptions != nil && len(m.HistogramOptions.Buckets) > 0 {
		return m.HistogramOptions.Buckets
	}
	return d.HistogramOptions.Buckets
}

var (
	unknownKey = regexp.MustCompile(`field (.*) not found in type .*`)
	wrongType  = regexp.MustCompile(`cannot unmarshal \S+ (.*) ?into .*`)
)

// plainly returns the decoder's error without the names of our types, which the author of the file
// does not know.
func plainly(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		return err
	}
	var all []error
	for _, text := range wrong.Errors {
		if found := unknownKey.FindStringSubmatchIndex(text); found != nil {
			key := text[found[2]:found[3]]
			text = text[:found[0]] + "unknown key " + key
			if near := conf.Nearest(key, keysOf(nil, reflect.TypeFor[file]())); near != "" {
				text += "; did you mean " + near + "?"
			}
		} else if found := wrongType.FindStringSubmatchIndex(text); found != nil {
			text = text[:found[0]] + strings.TrimSpace(text[found[2]:found[3]]) + " cannot stand here"
		}
		all = append(all, errors.New(text))
	}
	return errors.Join(all...)
}

// keysOf appends the keys of t and of all types in it.
func keysOf(keys []string, t reflect.Type) []string {
	switch t.Kind() {
	case reflect.Slice, reflect.Pointer:
		return keysOf(keys, t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if name := t.Field(i).Tag.Get("yaml"); name != "" {
				keys = keysOf(append(keys, name), t.Field(i).Type)
			}
		}
	}
	return keys
}
