// Package statsdexporter converts mapping files of Prometheus' statsd_exporter into our
// configuration, so that the same line gets the same name and labels. It notes each setting that
// has no equivalent or changes its meaning, both beside the rule and in a list. This code does not
// run while metrics are mapped.
package statsdexporter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ours "github.com/freshet-io/freshet/internal/core/mapping"
)

// Conversion is a converted file.
type Conversion struct {
	Text  string // text of a configuration file, with comments
	Notes []Note // differences from statsd_exporter
}

// Note describes one difference from statsd_exporter.
type Note struct {
	Line int    `json:"line"` // line of the mapping in its file; 0 for the defaults
	Text string `json:"text"`
}

// shortestTTL is the aggregator's shortest TTL: the width of a tile.
const shortestTTL = 10 * time.Second

// Convert converts a mapping file. It returns an error if statsd_exporter itself would refuse the
// file at its start.
func Convert(text []byte) (Conversion, error) {
	f, err := read(text)
	if err != nil {
		return Conversion{}, err
	}
	c := &converter{file: f, shadowed: shadowed(f)}
	rankedRules, dead := order(f)
	for _, r := range rankedRules {
		c.rule(r)
	}
	for _, i := range dead {
		c.comments = append(c.comments,
			fmt.Sprintf("line %d: %s is left out: because of an earlier mapping, statsd_exporter never applies it.",
				f.Mappings[i].line, f.Mappings[i].Match))
	}
	c.rest()
	c.defaults()
	slices.SortStableFunc(c.notes, func(a, b Note) int { return a.Line - b.Line })
	return Conversion{Text: c.write(), Notes: c.notes}, nil
}

type converter struct {
	file     *file
	shadowed map[int]string
	rules    []rule
	comments []string // comments that belong to no rule
	notes    []Note
}

// rule is one of our rules, with its comments.
type rule struct {
	ours.Rule
	source   string   // the mapping from which the rule comes
	comments []string // about behaviour that has not changed, but may surprise a user
	notes    []string // differences
}

func (c *converter) note(r *rule, line int, text string, args ...any) {
	n := Note{line, fmt.Sprintf(text, args...)}
	r.notes = append(r.notes, n.Text)
	if !slices.Contains(c.notes, n) { // a mapping that becomes two rules repeats its notes
		c.notes = append(c.notes, n)
	}
}

// rule converts one mapping, for the kinds to which it applies.
func (c *converter) rule(ranked ranked) {
	m := &c.file.Mappings[ranked.index]
	r := rule{source: fmt.Sprintf("line %d", m.line)}
	r.Match, r.Help = m.Match, m.Help
	if example := c.shadowed[ranked.index]; example != "" {
		c.note(&r, m.line,
			"takes names such as %s, which statsd_exporter may leave without a mapping: with glob_disable_ordering it does "+
				"not always try * again", example)
	}
	read := c.pattern(m, &r)
	name := read(m.Name)
	c.lost(&r, m, "name", m.Name, name)
	switch {
	case m.Action == "drop":
		r.Action = "drop"
	case len(name.parts) == 0:
		r.Action = "drop"
		r.comments = append(r.comments,
			fmt.Sprintf("the name %s is always empty in statsd_exporter, which drops such metrics; "+
				"write ${1}_total in place of $1_total", m.Name))
	}
	if r.Action == "drop" {
		r.Help = ""
		c.split(r, m, ranked.kinds)
		return
	}
	r.Name = name.String()
	if name.garbled {
		c.note(&r, m.line, "statsd_exporter garbles the name %q; it is written here as it was meant", m.Name)
	}
	c.labels(&r, m, read)
	if m.TTL.Duration != 0 && m.TTL != c.file.Defaults.TTL {
		c.note(&r, m.line,
			"ttl: %v has no equivalent for one rule; see counter_ttl and gauge_ttl of the aggregator, which are for all series",
			m.TTL)
	}
	if m.Scale != nil {
		r.Scale = *m.Scale
		if !(r.Scale > 0) {
			c.note(&r, m.line, "scale: %v is left out: a scale must be above 0", *m.Scale)
			r.Scale = 0
		}
	}
	if ranked.kinds&observer != 0 {
		c.timers(&r, m)
	}
	c.split(r, m, ranked.kinds)
}

// pattern writes the pattern of m into r, and returns the parser of its templates.
func (c *converter) pattern(m *mapping, r *rule) func(string) template {
	if m.regex == nil {
		captures := strings.Count(m.Match, "*")
		return func(s string) template { return globTemplate(s, captures) }
	}
	whole := strings.Contains(m.Name, "$0") || strings.Contains(m.Name, "${0}")
	for _, value := range m.Labels {
		whole = whole || strings.Contains(value, "$0") || strings.Contains(value, "${0}")
	}
	expr, shift := anchored(m.Match, whole)
	r.Match, r.MatchType = expr, "regex"
	return func(s string) template { return regexTemplate(s, m.regex, shift) }
}

// lost adds a comment if the template has references to captures that do not exist.
func (c *converter) lost(r *rule, m *mapping, what, text string, t template) {
	if len(t.lost) > 0 && m.Action != "drop" {
		r.comments = append(r.comments,
			fmt.Sprintf("%s: %s refers to nothing in statsd_exporter, which leaves it out of %s",
				what, strings.Join(t.lost, ", "), text))
	}
}

// labels converts the mapping's labels. They win over the sender's tags unless honor_labels is set.
func (c *converter) labels(r *rule, m *mapping, read func(string) template) {
	for _, label := range slices.Sorted(maps.Keys(m.Labels)) {
		t := read(m.Labels[label])
		c.lost(r, m, "label "+label, m.Labels[label], t)
		if t.garbled {
			c.note(r, m.line, "statsd_exporter garbles the label %s: %q; it is written here as it was meant", label,
				m.Labels[label])
		}
		name := label
		switch {
		case label == "le" && strings.HasSuffix(r.Name, "_bucket"):
			name = "tag_le" // package mapping turns tag_le back into le for a counter
		case label == "le" || label == "quantile" || strings.HasPrefix(label, "__"):
			c.note(r, m.line, "the label %s is left out: Prometheus gives it a special meaning", label)
			continue
		}
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		if !m.HonorLabels {
			r.Labels[name] = t.String()
			continue
		}
		// The sender's label wins, so the rule first sets its own value under another name.
		own := "mapped_" + name
		r.Labels[own] = t.String()
		r.Relabel = append(r.Relabel, ours.Relabel{
			SourceLabels: []string{name, own}, Separator: given(";"), Regex: given(";(.*)"), TargetLabel: name,
			Replacement: given("$1"),
		}, ours.Relabel{Regex: given(own), Action: "labeldrop"})
	}
	if m.HonorLabels && len(m.Labels) > 0 {
		r.comments = append(r.comments, "honor_labels: the sender's label wins over the rule's")
	}
}

func given(text string) ours.Optional { return ours.Optional{Text: text, Given: true} }

// timers converts the keys that are only for timers.
func (c *converter) timers(r *rule, m *mapping) {
	d := &c.file.Defaults
	if m.observer(d) == "histogram" {
		r.Buckets = m.buckets(d)
		if m.HistogramOptions != nil && m.HistogramOptions.NativeFactor != 0 {
			c.note(r, m.line,
				"native_histogram_bucket_factor: a timer has classic buckets or a native histogram, not both; "+
					"for the native one, take out buckets and see native_schema")
		}
		return
	}
	if m.ObserverType == "summary" || m.SummaryOptions != nil || m.MatchMetricType == "observer" {
		c.note(r, m.line,
			`a summary becomes a native histogram: in place of NAME{quantile="0.9"} ask histogram_quantile(0.9, `+
				`rate(NAME[5m])), `+
				"of NAME_sum and NAME_count histogram_sum(NAME) and histogram_count(NAME)")
	}
}

// split appends r for the kinds to which it applies. Timings are sent in milliseconds and exported
// in seconds, so they get a rule of their own.
func (c *converter) split(r rule, m *mapping, in kinds) {
	add := func(metricType string) {
		part := r
		part.MetricType = metricType
		if metricType == "counter" || metricType == "gauge" {
			part.Buckets = nil
		}
		if metricType == "timing" {
			part.Scale = seconds(r.Scale)
		}
		for _, problem := range (ours.Config{Rules: []ours.Rule{part.Rule}}).Validate() {
			c.note(&part, m.line, "the server refuses this rule until it is corrected: %s %s",
				strings.TrimPrefix(problem.Key, "rules[0]."), problem.Text)
		}
		c.rules = append(c.rules, part)
		r.comments, r.notes = nil, nil // comments and notes are only on the first rule
	}
	if in&observer != 0 && r.Action != "drop" {
		add("timing")
	}
	switch {
	case in == allKinds:
		add("")
		return
	case in&observer != 0:
		add("timer")
	}
	if in&counter != 0 {
		add("counter")
	}
	if in&gauge != 0 {
		add("gauge")
	}
}

// seconds returns the scale of a mapping for milliseconds, changed so that it also converts to seconds.
func seconds(scale float64) float64 {
	if scale == 0 {
		scale = 1
	}
	return scale / 1000
}

// rest adds rules that treat timers without a mapping as statsd_exporter does.
func (c *converter) rest() {
	var buckets []float64
	if c.file.Defaults.ObserverType == "histogram" {
		buckets = c.file.Defaults.HistogramOptions.Buckets
	}
	r := rule{source: "timings without a mapping are converted to seconds, too"}
	r.Match, r.MatchType, r.MetricType, r.Scale, r.Buckets = ".*", "regex", "timing", seconds(0), buckets
	c.rules = append(c.rules, r)
	if buckets != nil {
		r.source, r.MetricType, r.Scale = "other timers without a mapping have the same buckets", "timer", 0
		c.rules = append(c.rules, r)
	}
}

// defaults adds notes about those settings in the file's defaults that rules do not have.
func (c *converter) defaults() {
	d := &c.file.Defaults
	add := func(text string, args ...any) { c.notes = append(c.notes, Note{0, fmt.Sprintf(text, args...)}) }
	if d.ObserverType == "histogram" && d.HistogramOptions.NativeFactor != 0 {
		add("defaults.histogram_options.native_histogram_bucket_factor: a timer has classic buckets or a native " +
			"histogram, not both; for native ones, take out buckets and see native_schema")
	}
	if d.ObserverType == "summary" {
		add(`defaults.observer_type: summaries become native histograms: in place of NAME{quantile="0.9"} ask ` +
			`histogram_quantile(0.9, rate(NAME[5m]))`)
	}
	if d.TTL.Duration > 0 && d.TTL.Duration < shortestTTL {
		add("defaults.ttl: %v is shorter than a tile, so it is %v here", d.TTL, shortestTTL)
	}
}
