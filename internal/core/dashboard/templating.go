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
func (c *converter) query(q *query) (is string, reasons []string) {
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
func (c *converter) missing(label string) []string {
	switch {
	case label == "quantile" && c.From == StatsDExporter:
		return []string{"asks for the label quantile: make it a variable of the type Custom, such as 0.5,0.9,0.99"}
	case slices.Contains(c.DropLabels, label) || c.From == StatsDExporter && slices.Contains(scraped, label):
		return []string{"asks for the label " + label + " of the scrape, which series do not have here: " +
			"remove the variable"}
	}
	return nil
}

// series rewrites the selector of label_values. A part of a timer becomes the timer itself, whose series have the
// labels.
func (c *converter) series(q *query, source string) (string, []string) {
	m, err := mask(source)
	if err != nil {
		return source, []string{"has a selector that is not PromQL: " + err.Error()}
	}
	node, ok := m.expr.(*parser.VectorSelector)
	if !ok {
		return source, []string{"label_values takes a selector"}
	}
	r := &rewriter{converter: c, masked: m, in: q}
	s := m.selectorAt(node.PosRange)
	if s.name == "" {
		return source, []string{"selects metrics by a pattern of their names"}
	}
	s = r.labels(s)
	s = s.without("quantile")
	means := r.meaning(s)
	if c.summaries[s.plain] {
		means = meaning{name: s.name} // all series of the summary
	}
	if means.reason != "" {
		return source, append(r.reason, means.reason)
	}
	s.name = means.name
	return strings.TrimSpace(s.text("")), r.reason
}
