package dashboard

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"
)

// rewriter rewrites one query.
type rewriter struct {
	*converter
	masked
	in     *query
	edits  []edit
	leave  map[parser.Node][]string // labels to take out of the grouping or the join of a node
	reason []string                 // why parts could not be rewritten
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

func (r *rewriter) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.reason, text) {
		r.reason = append(r.reason, text)
	}
}

// expression rewrites a query in PromQL.
func (c *converter) expression(q *query, source string) (string, []string) {
	m, err := mask(source)
	if err != nil {
		return source, []string{"is not PromQL, or has a variable where none can be understood: " + err.Error()}
	}
	r := &rewriter{converter: c, masked: m, in: q, leave: map[parser.Node][]string{}}
	parser.Inspect(m.expr, func(node parser.Node, path []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			r.selector(s, path)
		} else if node != nil {
			r.groups(node)
		}
		return nil
	})
	r.legend()
	r.ungroup()
	text := r.apply()
	if _, err := mask(text); err != nil {
		return source, append(r.reason, "cannot be rewritten: "+err.Error())
	}
	return text, r.reason
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
		r.note("selects metrics by a pattern of their names")
		return
	}
	s = r.labels(s)
	m := r.meaning(s)
	if m.reason != "" {
		r.note("%s", m.reason)
		return
	}
	if m.aspect == quantileOf && r.From == StatsDExporter {
		s = s.without("quantile")
	}
	matrix, _ := parent(path, 0).(*parser.MatrixSelector)
	switch {
	case matrix == nil && m.aspect == buckets:
		r.note("%s: the buckets of a native histogram are no series; histogram_fraction tells how many values are in a range",
			s.name)
	case matrix == nil:
		was := r.selectorAt(node.PosRange)
		r.replace(node.PosRange, was.text(""), r.labelled(m, s, r.window(m)))
	default:
		call, _ := parent(path, 1).(*parser.Call)
		r.ranged(m, s, matrix, call, path)
	}
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

// usesQuantile finds the label in a grouping or a join.
var usesQuantile = regexp.MustCompile(`\b(?:by|on|group_left|group_right)\s*\([^)]*\bquantile\b`)

// labelled returns the expression for a meaning at one time. A quantile gets its label back where the query or
// its legend uses it.
func (r *rewriter) labelled(m meaning, s selector, window string) string {
	if m.aspect != quantileOf || r.From != StatsDExporter {
		return m.now(s, window)
	}
	several := strings.Split(m.quantile, "|")
	keep := len(several) > 1 || usesQuantile.MatchString(r.source) ||
		strings.Contains(strings.ReplaceAll(r.in.legend, " ", ""), "{{quantile}}")
	for i, q := range several {
		m.quantile = q
		several[i] = m.now(s, window)
		if keep {
			several[i] = fmt.Sprintf(`label_replace(%s, "quantile", "%s", "", "")`, several[i], q)
		}
	}
	if len(several) > 1 {
		return "(" + strings.Join(several, " or ") + ")"
	}
	return several[0]
}

// ranged rewrites a range of a selector.
func (r *rewriter) ranged(m meaning, s selector, matrix *parser.MatrixSelector, call *parser.Call, path []parser.Node) {
	after := r.source[matrix.VectorSelector.PositionRange().End:matrix.EndPos]
	open, end := strings.IndexByte(after, '['), strings.IndexByte(after, ']')
	if strings.HasPrefix(after[open:], "[[[") {
		end = strings.Index(after, "]]]") + 2
	}
	over := strings.TrimSpace(after[open+1 : end])
	s.tail = after[end+1:]
	old := r.selectorAt(matrix.VectorSelector.PositionRange())
	old.tail = s.tail
	was := old.over(over)
	function := ""
	if call != nil {
		function = call.Func.Name
	}
	whole := func(name, over string) string {
		named := s
		named.name = name
		return named.over(over)
	}
	switch {
	case m.aspect == itself:
		over = r.longEnough(function, over, matrix, &s)
		r.replace(matrix.PositionRange(), was, whole(m.name, over))
	case m.aspect == buckets:
		if r.quantileOfBuckets(path) {
			over = r.longEnough(function, over, matrix, &s)
			r.replace(matrix.PositionRange(), was, whole(m.name, over))
		}
	case m.ofRange(function) != "":
		become := m.ofRange(function)
		inner, _, _ := strings.Cut(become, "(%s)")
		over = r.longEnough(inner[strings.LastIndexByte(inner, '(')+1:], over, matrix, &s)
		r.replace(call.PositionRange(), was, fmt.Sprintf(become, whole(m.name, over)))
	case slices.Contains([]string{"rate", "increase", "irate", "deriv", "delta", "idelta", "resets"}, function) &&
		m.aspect != total && m.aspect != totalSum:
		r.note("%s of %s, which is not a counter", function, s.name)
	default:
		r.replace(matrix.PositionRange(), was, r.labelled(m, s, r.window(m))+"["+over+":"+stepOf(over, matrix)+"]")
	}
}

// stepOf returns the step of a subquery: the width of a tile, unless the range is long.
func stepOf(over string, matrix *parser.MatrixSelector) string {
	if strings.ContainsAny(over, "$[") || matrix.Range >= longRange {
		return ""
	}
	return "10s"
}

// quantileOfBuckets reports whether buckets are only used for histogram_quantile, perhaps of a sum. If so, it
// takes the label le out of the sum.
func (r *rewriter) quantileOfBuckets(path []parser.Node) bool {
	var sums []parser.Node
	for i := len(path) - 2; i >= 0; i-- {
		switch node := path[i].(type) {
		case *parser.ParenExpr:
		case *parser.AggregateExpr:
			if node.Op != parser.SUM || node.Without || !slices.Contains(node.Grouping, "le") {
				r.note("buckets in %s", node.Op)
				return false
			}
			sums = append(sums, node)
		case *parser.Call:
			switch node.Func.Name {
			case "rate", "increase", "irate":
			case "histogram_quantile":
				for _, sum := range sums {
					r.leave[sum] = append(r.leave[sum], "le")
				}
				return true
			default:
				r.note("buckets in %s", node.Func.Name)
				return false
			}
		default:
			r.note("buckets in an expression")
			return false
		}
	}
	r.note("the buckets of a native histogram are no series: draw the histogram itself")
	return false
}

// meaning says what a selector of the old system is here.
func (r *rewriter) meaning(s selector) meaning {
	var m meaning
	part := false
	switch r.From {
	case StatsDExporter:
		m, part = r.exported(s)
	case StatsD:
		m, part = statsd(s)
	case Datadog:
		m, part = r.aggregated(s)
	}
	if !part {
		m = meaning{name: s.name, plain: s.plain}
	}
	if m.reason == "" {
		m.setName(r.metricName(m.name, m.plain))
	}
	if m.reason == "" && r.kind(m.name, m.plain) == Absent {
		m.reason = fmt.Sprintf("the server has no %s", m.name)
	}
	return m
}

// exported says what a name of statsd_exporter is.
func (r *rewriter) exported(s selector) (m meaning, part bool) {
	if strings.HasPrefix(s.plain, "statsd_exporter_") {
		return meaning{reason: s.name + " is about statsd_exporter itself; Freshet has metrics of its own"}, true
	}
	if quantiles := s.find("quantile"); len(quantiles) > 0 {
		q, reason := quantileOfMatchers(quantiles)
		if reason == "" && r.kind(s.name, s.plain) == Plain {
			reason = s.name + " is no native histogram on the server"
		}
		return meaning{aspect: quantileOf, name: s.name, plain: s.plain, quantile: q, reason: reason}, true
	}
	if r.summaries[s.plain] {
		return meaning{reason: s.name + " without a label quantile selects all quantiles; here it is a histogram"}, true
	}
	m, part = observer(s)
	if !part {
		return m, false
	}
	switch kind := r.kind(m.name, m.plain); {
	case r.kind(s.name, s.plain) == Plain || kind == Plain:
		return m, false // a counter, or of a timer with classic buckets
	case r.classic[m.plain] && kind != Native:
		return m, false
	case kind == Native:
		return m, true
	case r.Kind != nil:
		return meaning{reason: fmt.Sprintf("the server has neither %s nor a timer %s", s.name, m.name)}, true
	}
	m.reason = fmt.Sprintf("%s may be a counter, or belong to a timer: --server asks which", s.name)
	return m, true
}

// quantileOfMatchers returns the quantiles that matchers of the label select: a number, several between |, or
// a variable.
func quantileOfMatchers(all []matcher) (quantiles, reason string) {
	m := all[0]
	value := unquoted(m.value)
	if len(all) > 1 || m.op != "=" && m.op != "=~" {
		return "", "selects quantiles by what they are not: ask histogram_quantile for each"
	}
	if variable.FindString(value) == value && m.op == "=" {
		return value, ""
	}
	for _, q := range strings.Split(value, "|") {
		if f, err := strconv.ParseFloat(q, 64); err != nil || f < 0 || f > 1 || m.op == "=" && q != value {
			return "", fmt.Sprintf("selects the quantiles %s: ask histogram_quantile for each", m.value)
		}
	}
	return value, ""
}

// aggregated says what a name of the Datadog Agent is.
func (r *rewriter) aggregated(s selector) (m meaning, part bool) {
	m, part = datadog(s)
	if !part || r.kind(s.name, s.plain) == Plain {
		return m, false
	}
	switch kind := r.kind(m.name, m.plain); {
	case kind == Native || r.summaries[m.plain]:
		return m, true
	case kind == Plain || r.Kind != nil:
		return m, false
	}
	m.reason = fmt.Sprintf("%s may be a metric, or an aggregate of the histogram %s: --server asks which", s.name, m.name)
	return m, true
}
