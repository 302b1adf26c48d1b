// Package ruleset checks groups of rules that tenants set by Mimir's API, and their limits. The adapter
// rulesets keeps them on one machine, and Kept in a cluster.
package ruleset

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Group is a group of rules as Mimir's API takes it: in Prometheus' format, with three more keys.
type Group struct {
	rulefmt.RuleGroup `yaml:",inline"`

	EvaluationDelay *model.Duration `yaml:"evaluation_delay,omitempty"` // the former name of query_offset
	SourceTenants   []string        `yaml:"source_tenants,omitempty"`
	Align           bool            `yaml:"align_evaluation_time_on_interval,omitempty"`
}

// Mistakes are what is wrong with a request, one line for each mistake.
type Mistakes []string

// Error implements error.
func (m Mistakes) Error() string { return strings.Join(m, "\n") }

// ErrMistakes is what errors.Is finds in Mistakes, also in those of another node.
var ErrMistakes = errors.New("the rules have mistakes")

// Is makes them an ErrMistakes.
func (m Mistakes) Is(target error) bool { return target == ErrMistakes }

const (
	// maxName bounds the names of namespaces and groups, in bytes. They are in metrics and in each answer.
	maxName = 1024

	// minInterval is the least interval of a group. Tenants share the processors.
	minInterval = time.Second

	// undecodable is how Mimir's answer about text that is no group begins.
	undecodable = "unable to decoded rule group"
)

// Parse reads a group, in YAML, and checks it. The error is of the type Mistakes.
func Parse(text []byte, tenant string, p parser.Parser) (g Group, err error) {
	var lines rulefmt.RuleGroupNode // where the rules stand in the text
	if problems := Decode(text, &g, &lines); len(problems) > 0 {
		return Group{}, append(Mistakes{undecodable + ":"}, problems...)
	}
	if problems := g.Check(lines.Rules, tenant, p); len(problems) > 0 {
		return Group{}, Mistakes(problems)
	}
	return g, nil
}

// Decode reads YAML with known keys only, and the same text again into a type that keeps the lines. It
// returns one line for each mistake.
func Decode(text []byte, into, lines any) (problems []string) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return Lines(err)
	}
	var second any
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return []string{"there is a second YAML document; send each group in a request of its own"}
	}
	if err := yaml.Unmarshal(text, lines); err != nil {
		return Lines(err)
	}
	return nil
}

// Check returns what is wrong with a group, one line for each mistake. The first two texts are Mimir's, by
// which clients go.
func (g *Group) Check(lines []rulefmt.RuleNode, tenant string, p parser.Parser) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch {
	case g.Name == "":
		add("invalid rules configuration: rule group name must not be empty")
	case len(g.Rules) == 0:
		add("invalid rules configuration: rule group '%.80s' has no rules", g.Name)
	}
	if why := nameProblem(g.Name); why != "" {
		add("the name of the group %s", why)
	}
	if every := time.Duration(g.Interval); every != 0 && every < minInterval {
		add("interval is %v, but must be at least %v; leave it out for rules.interval", every, minInterval)
	}
	if g.EvaluationDelay != nil && g.QueryOffset != nil && *g.EvaluationDelay != *g.QueryOffset {
		add("query_offset is %v, but evaluation_delay, its former name, is %v; remove evaluation_delay",
			*g.QueryOffset, *g.EvaluationDelay)
	}
	if slices.ContainsFunc(g.SourceTenants, func(t string) bool { return t != tenant }) {
		add("source_tenants is %.200q, but rules see only the data of their own tenant, %q; leave it out",
			g.SourceTenants, tenant)
	}
	for name, value := range g.Labels {
		if !model.UTF8Validation.IsValidLabelName(name) || name == model.MetricNameLabel {
			add("labels: %.80q is not a name of a label; use letters, digits and underscores", name)
		}
		if !model.LabelValue(value).IsValid() {
			add("labels: the value of %.80q is not UTF-8", name)
		}
	}
	return append(problems, g.checkRules(lines, p)...)
}

// checkRules returns what Prometheus finds wrong with the rules.
func (g *Group) checkRules(lines []rulefmt.RuleNode, p parser.Parser) (problems []string) {
	for i, rule := range g.Rules {
		for _, wrong := range rule.Validate(lines[i], model.UTF8Validation, p) {
			err := rulefmt.Error{Group: g.Name, Rule: i + 1, RuleName: rule.Alert + rule.Record, Err: wrong}
			problems = append(problems, Lines(&err)...)
		}
	}
	return problems
}

// nameProblem returns what is wrong with the name of a namespace or of a group, or an empty text.
func nameProblem(name string) string {
	switch {
	case len(name) > maxName:
		return fmt.Sprintf("has %d bytes, but at most %d are allowed; shorten it", len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return "must be UTF-8 without control characters; rename it"
	}
	return ""
}

// IsName reports whether a namespace or a group may have this name. Namespaces may have fewer: see CheckNamespace.
func IsName(name string) bool { return nameProblem(name) == "" }

// CheckNamespace returns an error, of the type Mistakes, if a namespace must not have this name.
func CheckNamespace(name string) error {
	why := nameProblem(name)
	if strings.Contains(name, ";") { // Prometheus puts one between a file and a group's name, as the key of the group
		why = "must not have a semicolon; rename it"
	}
	if why != "" {
		return Mistakes{"the name of the namespace " + why}
	}
	return nil
}

// Evaluated returns the group in the form in which it is evaluated.
func (g *Group) Evaluated() rulefmt.RuleGroup {
	of := g.RuleGroup
	if of.QueryOffset == nil {
		of.QueryOffset = g.EvaluationDelay
	}
	return of
}

// Lines splits the error of a rule file, or of a group. One error of YAML has a line for each mistake.
func Lines(err error) []string {
	text := strings.TrimPrefix(err.Error(), "0:0: ") // rulefmt does not know the line of a group
	text, isList := strings.CutPrefix(text, "yaml: unmarshal errors:\n")
	if !isList {
		return []string{strings.ReplaceAll(text, "\n", " ")}
	}
	all := strings.Split(text, "\n")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// Limits bound the rules that tenants set.
type Limits struct {
	MaxTenants int        `yaml:"max_tenants" help:"tenants that may set rules by the API between two starts; in a cluster, in all"`
	MaxGroups  int        `yaml:"max_groups" help:"groups that a tenant may set by the API"`
	MaxRules   int        `yaml:"max_rules" help:"rules that a tenant may set by the API, in all groups"`
	MaxBytes   conf.Bytes `yaml:"max_bytes" help:"bytes of YAML that a tenant may set by the API, in all groups; larger requests get 413"`
}

// DefaultLimits lets many teams use the API, each for as many rules as a large Prometheus has.
func DefaultLimits() Limits {
	return Limits{MaxTenants: 100, MaxGroups: 1000, MaxRules: 10_000, MaxBytes: 4 << 20}
}

// Validate implements conf.Validator.
func (l Limits) Validate() (problems []conf.Problem) {
	for key, n := range map[string]int64{
		"max_tenants": int64(l.MaxTenants), "max_groups": int64(l.MaxGroups), "max_rules": int64(l.MaxRules),
		"max_bytes": int64(l.MaxBytes),
	} {
		if n < 1 {
			problems = append(problems, conf.Problem{Key: key, Text: "must be at least 1"})
		}
	}
	return problems
}

// Size is how much a tenant has set.
type Size struct{ Groups, Rules, Bytes int }

// Check returns an error, of the type Mistakes, if a tenant has set more than it may. The first text is
// Mimir's, with a way out.
func (l Limits) Check(s Size) error {
	var problems Mistakes
	if s.Groups > l.MaxGroups {
		problems = append(problems, fmt.Sprintf("per-user rule groups limit (limit: %d actual: %d) exceeded; delete groups, "+
			"or raise rules.api.max_groups", l.MaxGroups, s.Groups))
	}
	if s.Rules > l.MaxRules {
		problems = append(problems, fmt.Sprintf("all groups together would have %d rules, but rules.api.max_rules is %d; "+
			"delete groups, or raise it", s.Rules, l.MaxRules))
	}
	if s.Bytes > int(l.MaxBytes) {
		problems = append(problems, fmt.Sprintf("all groups together would have %d bytes, but rules.api.max_bytes is %s; "+
			"delete groups, or raise it", s.Bytes, l.MaxBytes))
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}
