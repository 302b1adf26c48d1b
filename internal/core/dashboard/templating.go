package dashboard

import (
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

var (
	labelValues = regexp.MustCompile(`^(\s*label_values\(\s*)(.+?)(\s*,\s*)([^,{}()]+?)(\s*\)\s*)$`)
	queryResult = regexp.MustCompile(`^(\s*query_result\()(.*)(\)\s*)$`)
	oneWord     = regexp.MustCompile(`^\s*(?:label_values|label_names|metrics)\(([^,{}]*)\)\s*$`)
)

// query converts a query. The reasons say what could not be converted.
func (c *converter) query(q *query) (is string, reasons []Reason) {
	text := q.at.text
	if !q.ofVariable {
		return c.expression(q, text)
	}
	if found := oneWord.FindStringSubmatch(text); found != nil {
		return text, c.missing(found[1])
	}
	if found := queryResult.FindStringSubmatch(text); found != nil {
		is, reasons = c.expression(q, found[2])
		return found[1] + is + found[3], reasons
	}
	if found := labelValues.FindStringSubmatch(text); found != nil {
		is, reasons = c.series(q, found[2])
		return found[1] + is + found[3] + c.mapped(found[4]) + found[5], append(reasons, c.missing(found[4])...)
	}
	return c.expression(q, text)
}

// missing says that series do not have a label here.
func (c *converter) missing(label string) []Reason {
	switch {
	case label == quantileLabel && c.From == StatsDExporter:
		return []Reason{{"asks for the label quantile, which a histogram does not have",
			"make it a variable of the type Custom, such as 0.5,0.9,0.99"}}
	case slices.Contains(c.DropLabels, label) || c.From == StatsDExporter && slices.Contains(scraped, label):
		return []Reason{{"asks for the label " + label + " of the scrape, which series do not have here",
			"remove the variable"}}
	}
	return nil
}

// series rewrites the selector of label_values. A part of a timer becomes the timer itself, whose series have the
// labels.
func (c *converter) series(q *query, source string) (string, []Reason) {
	m, err := mask(source)
	if err != nil {
		return source, []Reason{notPromQL(source, err)}
	}
	node, ok := m.expr.(*parser.VectorSelector)
	if !ok {
		return source, []Reason{{"label_values takes a selector", "write one selector, or use query_result"}}
	}
	r := &rewriter{converter: c, masked: m, in: q}
	s := m.selectorAt(node.PosRange)
	if s.name == "" {
		return source, []Reason{byPattern}
	}
	s = r.labels(s).without(quantileLabel)
	var means meaning
	if c.summaries[s.name] || c.kind(s.name, s.plain) == Native {
		means = meaning{name: s.name} // all series of the summary
	} else if means = r.meaning(s, nil); means.not.Why != "" {
		return source, append(r.noted, means.not)
	}
	s.name = means.name
	return strings.TrimSpace(s.text("")), r.noted
}
