package mapping

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// checker compiles a Config into rules and collects all mistakes in it, so that a user can correct all
// of them at once.
type checker struct {
	m        *Mapper
	problems []problem
}

type problem struct {
	key   string // "rules[3].match"
	value string // " = " and the value, or "" if none is shown
	why   string // what is wrong and, after a semicolon, how to correct it
}

// add appends a problem. It does not show a value of nil.
func (k *checker) add(key string, value any, why string, args ...any) {
	p := problem{key: key, why: fmt.Sprintf(why, args...)}
	switch value.(type) {
	case nil:
	case string:
		p.value = fmt.Sprintf(" = %q", value)
	default:
		p.value = fmt.Sprintf(" = %v", value)
	}
	k.problems = append(k.problems, p)
}

// compile makes a Mapper without constant labels, and returns the problems of c.
func compile(c Config) (*Mapper, []problem) {
	k := &checker{m: &Mapper{utf8: c.UTF8Names, exact: map[string][]int{}}}
	k.origin(c.OriginLabels)
	k.podLabels(c.PodLabels)
	for i := range c.Rules {
		r := k.rule(fmt.Sprintf("rules[%d]", i), &c.Rules[i])
		k.m.rules = append(k.m.rules, r)
		if r.glob == nil && r.regex == nil {
			k.m.exact[c.Rules[i].Match] = append(k.m.exact[c.Rules[i].Match], i)
		} else {
			k.m.scan = append(k.m.scan, i)
		}
	}
	return k.m, k.problems
}

// choose returns the value that a word stands for.
func choose[T any](k *checker, key, text string, words []word[T]) T {
	var known []string
	for _, w := range words {
		if w.text == text {
			return w.value
		}
		if w.text != "" {
			known = append(known, w.text)
		}
	}
	k.add(key, text, "is not known; set it to one of %s", strings.Join(known, ", "))
	var none T
	return none
}

func (k *checker) origin(names []string) {
	for i, name := range names {
		switch name {
		case "container_id":
			k.m.container = true
		case "pod_uid":
			k.m.podUID = true
		case "container_name":
			k.m.containerName = true
		case "pod_name":
			k.m.podName = true
		case "kube_namespace":
			k.m.namespace = true
		default:
			k.add(fmt.Sprintf("origin_labels[%d]", i), name,
				"is not known; set it to one of container_id, pod_uid, container_name, pod_name, kube_namespace")
		}
	}
}

func (k *checker) podLabels(names map[string]string) {
	for _, of := range slices.Sorted(maps.Keys(names)) {
		if k.label("pod_labels."+of, names[of]) {
			k.m.podLabels = append(k.m.podLabels, podLabel{of: of, name: names[of]})
		}
	}
}

// labelProblem returns why no series can have a label of this name, or "" if a series can.
func (m *Mapper) labelProblem(name string) string {
	switch {
	case name == "":
		return "a label has no name; give it one"
	case name == model.MetricNameLabel:
		return "is the metric's name, not a label; change it by name or relabel"
	case m.labelName(name) != name:
		return fmt.Sprintf("no label has this name; write %s, the label that a tag of this name becomes", m.labelName(name))
	}
	return ""
}

// label reports whether a series can have a label of this name.
func (k *checker) label(key, name string) bool {
	why := k.m.labelProblem(name)
	if why != "" {
		k.add(key, name, "%s", why)
	}
	return why == ""
}

func (k *checker) rule(key string, c *Rule) rule {
	r := rule{
		metricType: choose(k, key+".match_metric_type", c.MetricType, metricTypes),

		drop: choose(k, key+".action", c.Action, actions),
		unit: c.Unit, help: c.Help, scale: 1, upDown: c.UpDown,
	}
	k.m.upDown = k.m.upDown || c.UpDown
	if c.UpDown && r.kind != 0 && r.kind != series.Counter {
		k.add(key+".updown", c.UpDown,
			"is for counters only, and match_metric_type selects another kind; set that to counter, or leave updown out")
	}
	if c.UpDown && r.drop {
		k.add(key+".updown", c.UpDown, "has no meaning for a rule that drops; leave out updown or action")
	}
	groups, ok := k.match(key, c, &r)
	if ok && c.Name != "" {
		r.name = k.name(key+".name", c.Name, groups)
	}
	for i, name := range c.DropLabels {
		k.label(fmt.Sprintf("%s.drop_labels[%d]", key, i), name)
	}
	r.dropLabels = c.DropLabels
	for _, name := range slices.Sorted(maps.Keys(c.Labels)) {
		at := key + ".labels." + name
		if !k.label(at, name) || !ok {
			continue
		}
		value, err := parseTemplate(c.Labels[name], groups)
		if err != nil {
			k.add(at, c.Labels[name], "%v", err)
		}
		r.labels = append(r.labels, ruleLabel{name, value})
	}
	for i := range c.Relabel {
		r.relabel = append(r.relabel, k.relabel(fmt.Sprintf("%s.relabel[%d]", key, i), &c.Relabel[i]))
	}
	if c.Scale != 0 {
		r.scale = c.Scale
		if !(c.Scale > 0) || math.IsInf(c.Scale, 0) {
			k.add(key+".scale", c.Scale,
				"would make counters fall or become infinite; set it above 0, such as 0.001 for milliseconds to seconds")
		}
	}
	r.policy = k.policy(key, c)
	r.buckets = r.policy.Buckets()
	return r
}

// match compiles the pattern into r and returns the names of its captures. The first capture is the
// whole name.
func (k *checker) match(key string, c *Rule, r *rule) (groups []string, ok bool) {
	regex := choose(k, key+".match_type", c.MatchType, matchTypes)
	key += ".match"
	if c.Match == "" {
		k.add(key, nil, `is missing; name the metric, or match every one by match: ".*" with match_type: regex`)
		return nil, false
	}
	if !regex {
		parts, err := parseGlob(c.Match)
		if err != nil {
			k.add(key, c.Match, "%v; use match_type: regex for parts of names", err)
			return nil, false
		}
		r.glob = parts
		return make([]string, 1+strings.Count(c.Match, "*")), true
	}
	re, err := regexp.Compile("^(?s:" + c.Match + ")$")
	if err != nil {
		k.add(key, c.Match, "is not a regular expression: %v; see https://golang.org/s/re2syntax", err)
		return nil, false
	}
	r.regex = re
	return re.SubexpNames(), true
}

// name parses the template of a name. The text outside references must be a valid name. The text of
// references is made valid when a line is mapped.
func (k *checker) name(key, text string, groups []string) template {
	t, err := parseTemplate(text, groups)
	if err != nil {
		k.add(key, text, "%v", err)
		return nil
	}
	captures := make([]string, len(groups))
	for i := range captures {
		captures[i] = "x"
	}
	if example := t.expand(captures); k.m.metricName(example) != example {
		k.add(key, text, "would be stored as a name such as %q; write it in this form, or set mapping.utf8_names "+
			"to keep every character", k.m.metricName(example))
	}
	return t
}

// relabel compiles one step. Prometheus' code does most of the checks.
func (k *checker) relabel(key string, c *Relabel) *relabel.Config {
	scheme := model.LegacyValidation
	if k.m.utf8 {
		scheme = model.UTF8Validation
	}
	r, ok := k.step(key, c, scheme)
	// A target such as __scratch is allowed, since it does not outlive the rule. The target le is
	// not allowed.
	if t := r.TargetLabel; ok && t != model.MetricNameLabel && !strings.HasPrefix(t, "__") && !strings.Contains(t, "$") &&
		t != "" {
		k.label(key+".target_label", t)
	}
	return r
}

// CompileRelabel compiles `steps` for samples that come with labels, and returns the problems of the
// steps.
func CompileRelabel(steps []Relabel) (compiled []*relabel.Config, problems []conf.Problem) {
	var k checker
	for i := range steps {
		r, _ := k.step(fmt.Sprintf("[%d]", i), &steps[i], model.UTF8Validation)
		compiled = append(compiled, r)
	}
	for _, p := range k.problems {
		problems = append(problems, conf.Problem{Key: p.key, Text: p.why})
	}
	return compiled, problems
}

// step compiles c and reports whether Prometheus accepts it.
func (k *checker) step(key string, c *Relabel, scheme model.ValidationScheme) (*relabel.Config, bool) {
	r := relabel.DefaultRelabelConfig
	r.Modulus, r.TargetLabel = c.Modulus, c.TargetLabel
	for _, name := range c.SourceLabels {
		r.SourceLabels = append(r.SourceLabels, model.LabelName(name))
	}
	if c.Separator.Given {
		r.Separator = c.Separator.Text
	}
	if c.Replacement.Given {
		r.Replacement = c.Replacement.Text
	}
	if c.Action != "" {
		// Only Prometheus' decoder can look up an action by its name.
		err := r.Action.UnmarshalYAML(func(v any) error { *v.(*string) = c.Action; return nil })
		if err != nil {
			k.add(key+".action", c.Action, "is not known; use an action of Prometheus' relabel_config")
			return &r, false
		}
	}
	if c.Regex.Given {
		re, err := relabel.NewRegexp(c.Regex.Text)
		if err != nil {
			k.add(key+".regex", c.Regex.Text, "is not a regular expression: %v; see https://golang.org/s/re2syntax", err)
			return &r, false
		}
		r.Regex = re
	}
	if err := r.Validate(scheme); err != nil {
		k.add(key, nil, "%v; see relabel_config in Prometheus' documentation", err)
		return &r, false
	}
	return &r, true
}

// policy returns the part of a rule that the tiles need. All rules with default values share one
// policy, which takes no bytes in a batch.
func (k *checker) policy(key string, c *Rule) *series.Policy {
	p := series.DefaultPolicy
	p.Merge = choose(k, key+".gauge_merge", c.GaugeMerge, merges)
	kind := choose(k, key+".histogram", c.Histogram, histograms)
	switch {
	case kind == "native" && len(c.Buckets) > 0:
		k.add(key+".buckets", nil, "a native histogram makes its own buckets; leave them out, or set histogram to classic")
	case kind == "classic" && len(c.Buckets) == 0:
		k.add(key+".buckets", nil, "a classic histogram needs its upper bounds; list them, as in [0.1, 0.5, 1]")
	case len(c.Buckets) > 0 && c.NativeSchema.Given:
		k.add(key+".native_schema", c.NativeSchema.Text,
			"has no meaning for a classic histogram; leave out this key or buckets")
	case len(c.Buckets) > 0 && c.MaxBuckets != 0:
		k.add(key+".max_buckets", c.MaxBuckets, "has no meaning for a classic histogram; leave out this key or buckets")
	}
	if len(c.Buckets) > series.MaxBounds {
		k.add(key+".buckets", nil, "has %d bounds, and a series may have %d; list fewer, or use a native histogram",
			len(c.Buckets), series.MaxBounds)
	}
	for i, b := range c.Buckets {
		at := fmt.Sprintf("%s.buckets[%d]", key, i)
		if math.IsNaN(b) || math.IsInf(b, 0) {
			k.add(at, b, "cannot be a bucket's bound; leave it out, +Inf is always there")
		} else if i > 0 && b <= c.Buckets[i-1] {
			k.add(at, b, "is not above the bound before it (%v); list them ascending, each once", c.Buckets[i-1])
		}
	}
	if len(c.Buckets) > 0 {
		p.Bounds = slices.Clone(c.Buckets)
	}
	if c.NativeSchema.Given {
		schema, err := strconv.Atoi(c.NativeSchema.Text)
		if err != nil || schema < -4 || schema > 8 {
			k.add(key+".native_schema", c.NativeSchema.Text,
				"is not a schema of Prometheus; set it to -4 (coarsest) to 8 (finest)")
		}
		p.Schema = int8(schema)
	}
	if n := c.MaxBuckets; n != 0 {
		if n < 1 || n > math.MaxUint16 {
			k.add(key+".max_buckets", n, "is out of range; set it to 1 to %d, or leave it out for %d", math.MaxUint16,
				p.MaxBuckets)
		}
		p.MaxBuckets = uint16(n)
	}
	if c.GaugeMerge == "" && len(c.Buckets) == 0 && !c.NativeSchema.Given && c.MaxBuckets == 0 {
		return &series.DefaultPolicy
	}
	return &p
}
