// Package mapping turns a DogStatsD line into a Prometheus series: it decides the kind, the name
// and the labels, and applies the configured rules. docs/names.md says the same for users.
//
// The package looks at one line at a time. Package catalogue handles lines that claim the same
// name, and package limit bounds the number of series.
package mapping

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Mapper applies one configuration. It is immutable, so goroutines may share it; a reload makes
// a new one.
type Mapper struct {
	config        Config // the Mapper was made from config and constant
	utf8          bool
	container     bool // origin_labels has container_id
	podUID        bool // origin_labels has pod_uid
	containerName bool // origin_labels has container_name
	podName       bool // origin_labels has pod_name
	namespace     bool // origin_labels has kube_namespace
	podLabels     []podLabel
	constant      []pair
	rules         []rule
	exact         map[string][]int // indexes of the rules without a wildcard, ascending, by the name that they match
	scan          []int            // indexes of the other rules, ascending
	upDown        bool             // some rule sets updown
}

// Same reports whether both Mappers were made from the same configuration, so that they return the
// same series for every line.
func (m *Mapper) Same(other *Mapper) bool {
	return slices.Equal(m.constant, other.constant) && reflect.DeepEqual(m.config, other.config)
}

// rule is a checked and compiled Rule.
type rule struct {
	metricType
	glob       []string // dot-separated parts, "*" for any part; nil for exact names and regexes
	regex      *regexp.Regexp
	drop       bool
	upDown     bool     // counters become up/down counters
	name       template // new name; nil keeps the old one
	dropLabels []string
	labels     []ruleLabel // in the order of their names
	relabel    []*relabel.Config
	policy     *series.Policy
	buckets    string // bounds of the policy as text
	scale      float64
	unit, help string
}

// metricType is the kind that a rule matches. If wire is set, the rule matches only timers of this type
// on the wire: timings, whose unit is the millisecond. The zero value matches any kind.
type metricType struct {
	kind series.Kind
	wire dogstatsd.Type
}

func (t metricType) fits(in *Input, kind series.Kind) bool {
	return (t.kind == 0 || t.kind == kind) && (t.wire == 0 || t.wire == in.Type)
}

type ruleLabel struct {
	name  string
	value template
}

// Input is one context: a line without its values. Map keeps no reference to the memory of its
// input.
type Input struct {
	Type   dogstatsd.Type // of a metric
	Check  bool           // a service check, which has no Type
	Name   []byte
	Tags   []byte // raw, comma-separated
	Host   []byte // field h: of a service check
	Origin dogstatsd.Origin
	Pod    *Pod // pod of the origin; nil if none is known
}

// Output is the series that a context belongs to. Labels and AppendKey return its labels and its
// key.
type Output struct {
	Kind   series.Kind
	Name   string // the value of __name__; the caller may set another valid name
	Policy *series.Policy
	// Buckets has the upper bounds of a timer with classic buckets, as text. It is empty for other
	// metrics. Timers with different Buckets cannot be one series.
	Buckets string
	Source  uint64  // identifies a value of a gauge that a rule merges by sum, min or max; else 0
	Scale   float64 // factor of each value; 1 for sets and checks
	Unit    string  // for metadata only
	Help    string  // for metadata only
	Drop    bool    // a rule drops the series; then only Kind and Rule are set, too
	Rule    int     // index in mapping.rules, -1 if no rule matched
	Named   bool    // a rule chose the name, so several raw names may share it

	set labelSet // sorted, without empty values
}

// Labels returns the labels of the series, including its name: sorted, unique and without empty
// values.
func (o *Output) Labels() labels.Labels { return o.set.labels(o.Name) }

// AppendKey appends the same key as series.AppendKey does for Labels, without making the labels.
func (o *Output) AppendKey(dst []byte) []byte {
	dst = append(dst, byte(o.Kind))
	set := o.set
	for len(set) > 0 && set[0].name < model.MetricNameLabel {
		dst = series.AppendLabel(dst, set[0].name, set[0].value)
		set = set[1:]
	}
	dst = series.AppendLabel(dst, model.MetricNameLabel, o.Name)
	for i := range set {
		dst = series.AppendLabel(dst, set[i].name, set[i].value)
	}
	return dst
}

var kinds = [...]series.Kind{
	dogstatsd.Count:        series.Counter,
	dogstatsd.Gauge:        series.Gauge,
	dogstatsd.Timing:       series.Timer,
	dogstatsd.Histogram:    series.Timer,
	dogstatsd.Distribution: series.Timer,
	dogstatsd.Set:          series.Set,
	dogstatsd.Buckets:      series.Timer,
}

func kindOf(in *Input) series.Kind {
	if in.Check {
		return series.Check
	}
	return kinds[in.Type]
}

// Map returns the series of a context. The answer does not depend on the order of the tags.
func (m *Mapper) Map(in *Input) (out Output) {
	m.MapInto(&out, in)
	return out
}

// MapInto is Map for a caller that asks about each new context: it reuses the memory of the
// previous answer. A context that matches no rule costs one allocation, for the text from which its
// labels are cut.
func (m *Mapper) MapInto(out *Output, in *Input) {
	set := out.set[:0]
	if cap(set) > keepLabels {
		set = nil
	}
	*out = Output{Kind: kindOf(in), Policy: &series.DefaultPolicy, Scale: 1, set: set}
	text := string(append(append(make([]byte, 0, 256), in.Name...), in.Tags...))
	raw, tags := text[:len(in.Name)], text[len(in.Name):]
	var captureBuf [16]string
	var captures []string
	out.Rule, captures = m.match(raw, in, out.Kind, captureBuf[:0])
	if out.Rule >= 0 && m.rules[out.Rule].drop {
		out.dropped()
		return
	}

	out.Name = m.metricName(raw)
	out.set = m.senderLabels(out.set, tags, in.Host)
	out.set = m.addOrigin(out.set, in)
	for _, c := range m.constant {
		out.set = out.set.add(c.name, c.value)
	}
	if out.Rule >= 0 {
		m.apply(&m.rules[out.Rule], captures, out)
	}
	if out.Kind == series.Counter && isBucket(out.Name) {
		out.set.restoreBound()
	}
	out.set = out.set.finish()
}

// keepLabels is the number of labels for which MapInto keeps memory. A sender may give thousands.
const keepLabels = 256

// dropped turns o into the output for a context that the rule drops.
func (o *Output) dropped() { *o = Output{Kind: o.Kind, Rule: o.Rule, Drop: true, set: o.set[:0]} }

// apply applies rule r to the series. It first drops labels, then sets labels, then relabels. So a rule
// may set a label again that it has dropped.
func (m *Mapper) apply(r *rule, captures []string, out *Output) {
	out.Policy, out.Unit, out.Help = r.policy, r.unit, r.help
	if out.Kind == series.Gauge && r.policy.Merge != series.MergeLast {
		out.Source = source(out.Labels())
	}
	if out.Kind == series.Timer {
		out.Buckets = r.buckets
	}
	if out.Kind == series.Counter && r.upDown {
		out.Kind = series.UpDown
	}
	if out.Kind != series.Set && out.Kind != series.Check {
		out.Scale = r.scale
	}
	if r.name != nil {
		out.Name = m.metricName(r.name.expand(captures))
		out.Named = true
	}
	for _, name := range r.dropLabels {
		out.set = out.set.drop(name)
	}
	for i := range r.labels {
		out.set = out.set.put(r.labels[i].name, validUTF8(r.labels[i].value.expand(captures)))
	}
	if len(r.relabel) > 0 {
		m.relabel(r.relabel, out)
	}
}

// source returns a number for the series that the context would have without the rule. The number must
// be the same in every process, since journals contain it.
func source(ls labels.Labels) uint64 {
	return max(1, xxhash.Sum64(series.AppendKey(nil, series.Gauge, ls)))
}

// relabel applies Prometheus' relabelling, whose steps may make any label. The result is checked
// like a sender's tags, so that no step can make a label that validation would refuse.
func (m *Mapper) relabel(steps []*relabel.Config, out *Output) {
	b := labels.NewBuilder(out.Labels())
	if !relabel.ProcessBuilder(b, steps...) {
		out.dropped()
		return
	}
	out.set = out.set[:0]
	name := out.Name // kept if a step removes the name, since a series needs one
	b.Range(func(l labels.Label) {
		switch {
		case l.Name == model.MetricNameLabel:
			name = m.metricName(l.Value)
		case l.Name == "" || strings.HasPrefix(l.Name, "__"): // as in Prometheus, scratch labels are dropped here
		default:
			out.set = append(out.set, pair{m.labelName(l.Name), validUTF8(l.Value)})
		}
	})
	out.Named = out.Named || name != out.Name
	out.Name = name
	out.set = out.set.merge()
}

// OriginLabels reports whether any origin field becomes a label. If so, lines that differ only in
// their origin may belong to different series.
func (m *Mapper) OriginLabels() bool {
	return m.container || m.podUID || m.containerName || m.PodLabels()
}

// PodLabels reports whether any label of a series comes from what Kubernetes knows of a pod.
func (m *Mapper) PodLabels() bool { return m.podName || m.namespace || len(m.podLabels) > 0 }

// UpDown reports whether any rule makes up/down counters.
func (m *Mapper) UpDown() bool { return m.upDown }

// match returns the index of the first rule for a raw name and its type, or -1. It appends the texts of
// the rule's wildcards or groups to captures; captures[0] is the whole name.
func (m *Mapper) match(raw string, in *Input, kind series.Kind, captures []string) (int, []string) {
	fits := func(i int) bool { return m.rules[i].fits(in, kind) }
	first := len(m.rules)
	if at := slices.IndexFunc(m.exact[raw], fits); at >= 0 {
		first = m.exact[raw][at]
	}
	for _, i := range m.scan {
		if i > first {
			break
		}
		if !fits(i) {
			continue
		}
		if c, ok := m.rules[i].match(raw, captures); ok {
			return i, c
		}
	}
	if first == len(m.rules) {
		return -1, nil
	}
	return first, append(captures, raw)
}
