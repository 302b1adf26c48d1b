package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"
)

// rewriter rewrites one query.
type rewriter struct {
	*converter
	masked
	in    *query
	edits []edit
	leave map[parser.Node][]string // labels to take out of the grouping or the join of a node

	refused  []Reason // why the query stays as it is
	noted    []Reason // what a person must look at, whether the query stays or not
	assumed  []Reason // what the rewritten query rests on
	computed bool     // whether a part became a computed value, which has no name
}

// edit replaces a part of the query.
type edit struct {
	from, to posrange.Pos
	text     string
}

// replace replaces a part of the query, unless the text is what it was. Blanks and commas that have no meaning do not
// count: `was` is the part as this package writes it.
func (r *rewriter) replace(at posrange.PositionRange, was, text string) {
	if was != text {
		r.edits = append(r.edits, edit{at.Start, at.End, text})
	}
}

// refuse leaves the whole query as it is, since half of a rewritten query would have an answer nowhere.
func (r *rewriter) refuse(why, do string) { addOnce(&r.refused, Reason{why, do}) }

func (r *rewriter) note(why, do string) { addOnce(&r.noted, Reason{why, do}) }

func addOnce(to *[]Reason, one Reason) {
	if !slices.Contains(*to, one) {
		*to = append(*to, one)
	}
}

// expression rewrites a query in PromQL.
func (c *converter) expression(q *query, source string) (string, []Reason) {
	m, err := mask(source)
	if err != nil {
		return source, []Reason{notPromQL(source, err)}
	}
	r := &rewriter{converter: c, masked: m, in: q, leave: map[parser.Node][]string{}}
	parser.Inspect(m.expr, func(node parser.Node, path []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			r.selector(s, path)
		} else if node != nil {
			r.groups(node)
			r.experiment(node)
		}
		return nil
	})
	r.legend()
	r.ungroup()
	text := r.apply()
	if _, err := mask(text); err != nil && len(r.refused) == 0 {
		r.refuse("would become "+text+", which is not PromQL: "+err.Error(), "write it by hand")
	}
	if len(r.refused) > 0 {
		return source, append(r.refused, r.noted...)
	}
	return text, append(r.noted, r.assumed...)
}

func notPromQL(source string, err error) Reason {
	if replaceVariables(source, never) != source {
		return Reason{"is not PromQL, or has a variable where none can be understood: " + err.Error(),
			"put a value in the variable's place, convert, and put the variable back"}
	}
	return Reason{"is not PromQL: " + err.Error(), "write it in PromQL"}
}

// experiment notes functions and aggregations that Freshet has only if its configuration says so.
func (r *rewriter) experiment(node parser.Node) {
	name := ""
	switch node := node.(type) {
	case *parser.Call:
		if node.Func.Experimental {
			name = node.Func.Name
		}
	case *parser.AggregateExpr:
		if node.Op.IsExperimentalAggregator() {
			name = node.Op.String()
		}
	}
	if name != "" {
		r.note("uses "+name+", which is experimental in PromQL", "set query.experimental: true")
	}
}

// apply returns the query with the edits.
func (r *rewriter) apply() string {
	slices.SortFunc(r.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var b strings.Builder
	at := posrange.Pos(0)
	for _, e := range r.edits {
		b.WriteString(r.source[at:e.from] + e.text)
		at = e.to
	}
	return b.String() + r.source[at:]
}

// selector rewrites a selector, with the range and the function around it if they change, too.
func (r *rewriter) selector(node *parser.VectorSelector, path []parser.Node) {
	s := r.selectorAt(node.PosRange)
	if s.name == "" {
		r.refuse(byPattern.Why, byPattern.Do)
		return
	}
	s = r.labels(s)
	m := r.meaning(s, path)
	if m.not.Why != "" {
		r.refuse(m.not.Why, m.not.Do)
		return
	}
	if m.aspect == quantileOf && r.From == StatsDExporter {
		s = s.without(quantileLabel)
	}
	matrix, _ := parent(path, 0).(*parser.MatrixSelector)
	function := functionOver(matrix, path)
	if function == "absent" || function == "absent_over_time" {
		m.aspect = itself // the whole metric is absent if one of its aspects is
	}
	switch {
	case m.aspect != itself && slices.ContainsFunc(path, countsValues):
		r.refuse("count_values counts equal values, and those of a histogram are only near", "write it by hand")
	case m.aspect != itself && slices.Contains(timeOfSample, function):
		r.refuse(function+" gives the time of a sample, and a computed value has none",
			"ask "+function+" for "+m.name+" itself")
	case matrix != nil:
		call, _ := parent(path, 1).(*parser.Call)
		r.ranged(m, s, matrix, call, path)
	case m.aspect == buckets && !r.quantileOfBuckets(s, path): // which says why not
	default:
		was := r.selectorAt(node.PosRange)
		r.replace(node.PosRange, was.text(""), r.labelled(m, s, node, path))
	}
}

// byPattern is why a selector without a name stays.
var byPattern = Reason{"selects metrics by a pattern of their names",
	"write one query for each name, or join them by or"}

func countsValues(node parser.Node) bool {
	a, ok := node.(*parser.AggregateExpr)
	return ok && a.Op == parser.COUNT_VALUES
}

// functionOver returns the name of the function that takes a selector, or the selector's range.
func functionOver(matrix *parser.MatrixSelector, path []parser.Node) string {
	above := 0
	if matrix != nil {
		above = 1
	}
	if call, ok := parent(path, above).(*parser.Call); ok {
		return call.Func.Name
	}
	return ""
}

func parent(path []parser.Node, n int) parser.Node {
	if len(path) <= n {
		return nil
	}
	return path[len(path)-1-n]
}

// window returns the range of rate for what the old system showed as a gauge.
func (r *rewriter) window(m meaning) string {
	switch {
	case r.From == StatsDExporter:
		return r.SummaryAge
	case r.in.ofVariable:
		return "5m" // in the query of a variable, Grafana does not know $__rate_interval
	}
	return rateInterval
}

// labelled returns the expression for a meaning at one time. A quantile gets its label back where the query or
// its legend uses it.
func (r *rewriter) labelled(m meaning, s selector, node parser.Node, path []parser.Node) string {
	r.computed = r.computed || m.aspect != itself
	window := r.window(m)
	if m.aspect != quantileOf || r.From != StatsDExporter {
		return m.now(s, window)
	}
	if m.assumed {
		addOnce(&r.assumed, Reason{"became " + m.name + " with the quantiles " + strings.Join(m.quantiles, ", ") +
			", of those that statsd_exporter has by default", "--summary-quantiles says which there are"})
	}
	keep := len(m.quantiles) > 1 || r.uses(quantileLabel, node, path)
	var all []string
	for _, q := range m.quantiles {
		one := m
		one.quantiles = []string{q}
		text := one.now(s, window)
		if keep {
			text = fmt.Sprintf(`label_replace(%s, "quantile", "%s", "", "")`, text, q)
		}
		all = append(all, text)
	}
	if len(all) > 1 {
		return "(" + strings.Join(all, " or ") + ")"
	}
	return all[0]
}

// meaning says what a selector of the old system is here. `path` leads to it.
func (r *rewriter) meaning(s selector, path []parser.Node) meaning {
	var m meaning
	part := false
	switch r.From {
	case StatsDExporter:
		m, part = r.exported(s, path)
	case StatsD:
		m, part = statsd(s)
	case Datadog:
		m, part = r.aggregated(s)
	}
	if !part {
		m = meaning{name: s.name, plain: s.plain}
	}
	if m.not.Why == "" {
		m.setName(r.metricName(m.name, m.plain))
	}
	if m.not.Why == "" && r.kind(m.name, m.plain) == Absent {
		m.not = Reason{fmt.Sprintf("asks for %s, of which the server has no sample of the last hour", m.name),
			"let clients send it, or remove the query"}
	}
	return m
}

// inHistogramFunction reports whether a function of native histograms takes what a selector selects: then the query
// is for Freshet, or another server with native histograms, already.
func inHistogramFunction(path []parser.Node) bool {
	return slices.ContainsFunc(path, func(node parser.Node) bool {
		call, ok := node.(*parser.Call)
		return ok && strings.HasPrefix(call.Func.Name, "histogram_")
	})
}

// exported says what a name of statsd_exporter is.
func (r *rewriter) exported(s selector, path []parser.Node) (m meaning, part bool) {
	if strings.HasPrefix(s.plain, "statsd_exporter_") {
		return meaning{not: Reason{s.name + " is about statsd_exporter itself",
			"ask for one of Freshet's own metrics: docs/metrics.md"}}, true
	}
	if slices.Contains(ofScrape, s.name) && r.kind(s.name, s.plain) != Plain {
		return meaning{not: Reason{s.name + " is a metric of the scrape, which clients do not send",
			"ask for a metric that clients send"}}, true
	}
	matchers := s.find(quantileLabel)
	isSummary := r.summaries[s.name] || r.kind(s.name, s.plain) == Native
	if len(matchers) > 0 || isSummary && !inHistogramFunction(path) {
		m = meaning{aspect: quantileOf, name: s.name, plain: s.plain}
		m.quantiles, m.assumed, m.not = r.quantiles(s.name, matchers)
		if m.not.Why == "" && r.kind(s.name, s.plain) == Plain {
			m.not = Reason{s.name + " is no native histogram on the server",
				"remove the buckets of its rule in mapping, or ask histogram_quantile for " + s.name + "_bucket"}
		}
		return m, true
	}
	if isSummary {
		return m, false
	}
	m, part = observer(s)
	if !part {
		return m, false
	}
	switch kind := r.kind(m.name, m.plain); {
	case r.kind(s.name, s.plain) == Plain || kind == Plain:
		return m, false // a counter, or of a timer with classic buckets
	case r.classic[m.name] && kind != Native:
		return m, false
	case kind == Native:
		return m, true
	case r.Kind != nil && s.name == s.plain:
		return meaning{not: Reason{fmt.Sprintf("the server has neither %s nor a timer %s", s.name, m.name),
			"let clients send it, or remove the query"}}, true
	case r.parts[m.name+"_sum"] && r.parts[m.name+"_count"]:
		addOnce(&r.assumed, Reason{"takes " + m.name + " for a timer, since the dashboard has its _sum and its _count",
			askKind(s)})
		return m, true
	}
	m.not = Reason{s.name + " may be a counter, or belong to a timer", askKind(s)}
	return m, true
}

// askKind says how to learn what a name is. A server cannot be asked for a name with a variable.
func askKind(s selector) string {
	if s.name != s.plain {
		return "put a value in the variable's place, convert with --server, and put the variable back"
	}
	return "--server asks Freshet which"
}

// ofScrape are metrics that a scrape makes.
var ofScrape = []string{"up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_series_added",
	"scrape_samples_post_metric_relabeling"}

// aggregated says what a name of the Datadog Agent is.
func (r *rewriter) aggregated(s selector) (m meaning, part bool) {
	m, part = datadog(s)
	if !part || r.kind(s.name, s.plain) == Plain {
		return m, false
	}
	switch kind := r.kind(m.name, m.plain); {
	case kind == Native || r.summaries[m.name]:
		return m, true
	case kind == Plain || r.Kind != nil:
		return m, false
	}
	m.not = Reason{fmt.Sprintf("%s may be a metric, or an aggregate of the histogram %s", s.name, m.name),
		askKind(s)}
	return m, true
}
