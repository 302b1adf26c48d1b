// Package mapping holds the one rule by which what a DogStatsD line says becomes
// a Prometheus series: its kind, its name, its labels, and what the configured
// rules decide beyond those. docs/names.md is the same rule for users.
//
// It looks at one line at a time. That two lines may claim one name is
// catalogue's business, and how many series there may be is limit's.
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

// Mapper applies one configuration. It never changes once made, so any number
// of goroutines may share it; a reload makes a new one.
type Mapper struct {
	config        Config // it was made of, with constant
	utf8          bool
	container     bool // origin_labels has container_id
	podUID        bool // origin_labels has pod_uid
	containerName bool // origin_labels has container_name
	constant      []pair
	rules         []rule
	exact         map[string][]int // rules without a wildcard, ascending, by the one name they match
	scan          []int            // the other rules, ascending
}

// Same reports whether both map everything alike, since they were made alike.
func (m *Mapper) Same(other *Mapper) bool {
	return slices.Equal(m.constant, other.constant) && reflect.DeepEqual(m.config, other.config)
}

// rule is a Rule once it was checked.
type rule struct {
	metricType
	glob       []string // dot-separated parts, "*" for any one; nil for exact names and regexes
	regex      *regexp.Regexp
	drop       bool
	name       template // nil keeps the name
	dropLabels []string
	labels     []ruleLabel // in the order of their names
	relabel    []*relabel.Config
	policy     *series.Policy
	buckets    string // policy's bounds as text
	scale      float64
	unit, help string
}

// metricType is what a rule takes: a kind, and of timers perhaps those alone that
// are timings on the wire, whose unit is the millisecond. Zero is any.
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

// Input is one context: what a line says besides its values. Map keeps none of
// its memory.
type Input struct {
	Type   dogstatsd.Type // of a metric
	Check  bool           // a service check, which has no Type
	Name   []byte
	Tags   []byte // raw, comma-separated
	Host   []byte // h: of a service check
	Origin dogstatsd.Origin
}

// Output is the series that a context belongs to.
type Output struct {
	Kind   series.Kind
	Name   string        // the value of __name__
	Labels labels.Labels // with __name__; sorted, unique, none empty
	Policy *series.Policy
	// Buckets is the upper bounds of a timer with classic buckets as text, empty
	// for all else. Timers that differ in it cannot be one series.
	Buckets string
	Source  uint64  // of a gauge that a rule merges by sum, min or max: which of its senders; else 0
	Scale   float64 // each value is multiplied by it; 1 for sets and checks
	Unit    string  // for metadata only
	Help    string  // for metadata only
	Drop    bool    // a rule says to drop it; only Kind and Rule are set besides
	Rule    int     // index in mapping.rules, -1 if none matched
	Named   bool    // a rule chose the name: several raw names in one is then what it asked for
}

// SetName gives the series another name, which must be a valid one.
func (o *Output) SetName(name string) {
	o.Name = name
	o.Labels = labels.NewBuilder(o.Labels).Set(model.MetricNameLabel, name).Labels()
}

var kinds = [...]series.Kind{
	dogstatsd.Count:        series.Counter,
	dogstatsd.Gauge:        series.Gauge,
	dogstatsd.Timing:       series.Timer,
	dogstatsd.Histogram:    series.Timer,
	dogstatsd.Distribution: series.Timer,
	dogstatsd.Set:          series.Set,
}

func kindOf(in *Input) series.Kind {
	if in.Check {
		return series.Check
	}
	return kinds[in.Type]
}

// Map returns the series that a context belongs to. It is called once for each
// new context, so it may allocate; the answer does not depend on the order of
// the tags.
func (m *Mapper) Map(in *Input) Output {
	out := Output{Kind: kindOf(in), Policy: &series.DefaultPolicy, Scale: 1}
	raw := string(in.Name)
	var captureBuf [16]string
	var captures []string
	out.Rule, captures = m.match(raw, in, out.Kind, captureBuf[:0])
	if out.Rule >= 0 && m.rules[out.Rule].drop {
		return Output{Kind: out.Kind, Rule: out.Rule, Drop: true}
	}

	out.Name = m.metricName(raw)
	var pairBuf [32]pair
	set := m.senderLabels(pairBuf[:0], in)
	set = m.addOrigin(set, &in.Origin)
	for _, c := range m.constant {
		set = set.add(c.name, c.value)
	}
	if out.Rule < 0 {
		out.Labels = set.labels(out.Name)
		return out
	}
	m.apply(&m.rules[out.Rule], captures, set, &out)
	return out
}

// apply lets rule r decide about the series: labels are dropped first, so that a
// rule may put another in the place of one that it drops, then set, then
// relabelled.
func (m *Mapper) apply(r *rule, captures []string, set labelSet, out *Output) {
	out.Policy, out.Unit, out.Help = r.policy, r.unit, r.help
	if out.Kind == series.Gauge && r.policy.Merge != series.MergeLast {
		out.Source = source(set.labels(out.Name))
	}
	if out.Kind == series.Timer {
		out.Buckets = r.buckets
	}
	if out.Kind != series.Set && out.Kind != series.Check {
		out.Scale = r.scale
	}
	if r.name != nil {
		out.Name = m.metricName(r.name.expand(captures))
		out.Named = true
	}
	for _, name := range r.dropLabels {
		set = set.drop(name)
	}
	for i := range r.labels {
		set = set.put(r.labels[i].name, validUTF8(r.labels[i].value.expand(captures)))
	}
	out.Labels = set.labels(out.Name)
	if len(r.relabel) > 0 {
		m.relabel(r.relabel, out)
	}
}

// source is a number for the series that there would be without the rule. It
// goes into journals, so it is the same in every process.
func source(ls labels.Labels) uint64 {
	return max(1, xxhash.Sum64(series.AppendKey(nil, series.Gauge, ls)))
}

// relabel applies Prometheus' relabelling, whose steps may make any label of
// any other. What comes out passes through the same rule as a sender's tags, so
// that no step can make what validation would refuse.
func (m *Mapper) relabel(steps []*relabel.Config, out *Output) {
	b := labels.NewBuilder(out.Labels)
	if !relabel.ProcessBuilder(b, steps...) {
		*out = Output{Kind: out.Kind, Rule: out.Rule, Drop: true}
		return
	}
	var set labelSet
	name := out.Name // stays if a step removed it: a series has a name
	b.Range(func(l labels.Label) {
		switch {
		case l.Name == model.MetricNameLabel:
			name = m.metricName(l.Value)
		case l.Name == "" || strings.HasPrefix(l.Name, "__"): // scratch labels end here, as in Prometheus
		default:
			set = append(set, pair{m.labelName(l.Name), validUTF8(l.Value)})
		}
	})
	out.Named = out.Named || name != out.Name
	out.Name = name
	out.Labels = set.merge().labels(name)
}

// OriginLabels reports whether any origin field becomes a label, so that lines
// which differ there alone may be of different series.
func (m *Mapper) OriginLabels() bool { return m.container || m.podUID || m.containerName }

// match returns the first rule for a raw name and its type, or -1, and what its
// wildcards or groups stand for, appended to captures; [0] is the whole name.
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
