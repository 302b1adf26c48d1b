package dashboard

import (
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"
)

// scraped are the labels that a scrape adds, which series have here only if senders give them.
var scraped = []string{"job", "instance"}

// labels rewrites the matchers of a selector.
func (r *rewriter) labels(s selector) selector {
	for _, label := range r.DropLabels {
		s = s.without(label)
	}
	for i, m := range s.matchers {
		r.scraped(m.label)
		if plain := r.mapped(m.label); m.label != "" && plain != m.label {
			m.text = plain + m.op + m.value
			s.matchers[i] = m
		}
	}
	return s
}

// scraped adds a note if only a scrape sets a label, and the user did not ask for its removal.
func (r *rewriter) scraped(label string) {
	if r.From == StatsDExporter && slices.Contains(scraped, label) && !slices.Contains(r.DropLabels, label) {
		r.note("uses the label "+label+" of the scrape: Freshet has none, unless dogstatsd.labels sets it",
			"--drop-label "+label+" removes it")
	}
}

// usesName finds the label __name__ in a grouping, a join, or the arguments of a function.
var usesName = regexp.MustCompile(`\b__name__["']?\s*[,)]`)

// legend notes the labels that a legend shows, and that series do not have here: Grafana would show nothing in their
// place.
func (r *rewriter) legend() {
	for _, label := range r.in.shown() {
		switch {
		case slices.Contains(r.DropLabels, label):
			r.note("the legend shows the label "+label+", which series do not have here", "change the legend")
		case label == model.MetricNameLabel && r.computed:
			r.note("the legend shows the name of the metric, which a computed value does not have",
				"write the name in the legend")
		default:
			r.scraped(label)
		}
	}
	if r.computed && usesName.MatchString(r.source) {
		r.note("uses the name of the metric as a label, which a computed value does not have",
			"add a label by label_replace")
	}
}

// uses reports whether a query needs a label of a part of it: for a grouping, for a join, for a function, or for a
// reader. `path` leads to the part.
func (r *rewriter) uses(label string, part parser.Node, path []parser.Node) bool {
	for _, node := range slices.Backward(path) {
		switch usageOf(label, node, part) {
		case used:
			return true
		case gone:
			return false
		}
		part = node
	}
	return r.in.shows(label)
}

// usage says what an operation does with a label of its operand.
type usage int

const (
	stays usage = iota // the result has it
	used               // the result depends on it
	gone               // the result neither has it nor depends on it
)

func usageOf(label string, node, operand parser.Node) usage {
	switch node := node.(type) {
	case *parser.AggregateExpr:
		return usageOfGrouping(label, node, operand)
	case *parser.BinaryExpr:
		return usageOfMatching(label, node, operand)
	case *parser.Call:
		switch name := node.Func.Name; {
		case strings.HasPrefix(name, "label_") || strings.HasPrefix(name, "sort_by_label"):
			for _, arg := range node.Args {
				if text, ok := arg.(*parser.StringLiteral); ok && text.Val == label {
					return used
				}
			}
		case name == "absent" || name == "absent_over_time" || name == "scalar":
			return gone
		}
	}
	return stays
}

func usageOfGrouping(label string, node *parser.AggregateExpr, operand parser.Node) usage {
	named := slices.Contains(node.Grouping, label)
	choice := slices.Contains([]parser.ItemType{parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO}, node.Op)
	switch {
	case operand == node.Param:
		return gone
	case named && !node.Without:
		return used
	case choice || !named && node.Without:
		return stays
	}
	return gone
}

func usageOfMatching(label string, node *parser.BinaryExpr, operand parser.Node) usage {
	m := node.VectorMatching
	if m == nil {
		return stays // a number is on the other side
	}
	if slices.Contains(m.MatchingLabels, label) == m.On || slices.Contains(m.Include, label) {
		return used
	}
	left := operand == node.LHS
	switch {
	case node.Op == parser.LOR, m.Card == parser.CardManyToOne && left, m.Card == parser.CardOneToMany && !left,
		(node.Op == parser.LAND || node.Op == parser.LUNLESS) && left:
		return stays
	}
	return gone
}

// groups marks the labels to take out of the grouping or the join of a node.
func (r *rewriter) groups(node parser.Node) {
	var labels []string
	switch node := node.(type) {
	case *parser.AggregateExpr:
		if !node.Without {
			labels = node.Grouping
		}
	case *parser.BinaryExpr:
		if m := node.VectorMatching; m != nil {
			labels = slices.Concat(m.Include, m.MatchingLabels)
		}
	}
	for _, label := range labels {
		r.scraped(label)
		if slices.Contains(r.DropLabels, label) {
			r.leave[node] = append(r.leave[node], label)
		}
	}
}

// clause is a list of labels behind its keyword.
var clause = regexp.MustCompile(`\s*\b(by|on|ignoring|group_left|group_right)\s*\(([^()]*)\)[ \t]*`)

// ungroup takes the marked labels out.
func (r *rewriter) ungroup() {
	for node, labels := range r.leave {
		for _, gap := range gaps(node) {
			text := r.source[gap.Start:gap.End]
			for _, found := range clause.FindAllStringSubmatchIndex(text, -1) {
				r.shorten(gap.Start, text, found, labels)
			}
		}
	}
}

// shorten takes labels out of a clause, and an aggregation's clause away if it has no other.
func (r *rewriter) shorten(start posrange.Pos, text string, found []int, labels []string) {
	keyword, list := text[found[2]:found[3]], text[found[4]:found[5]]
	var stay []string
	for label := range strings.SplitSeq(list, ",") {
		if label = strings.TrimSpace(label); label != "" && !slices.Contains(labels, label) {
			stay = append(stay, label)
		}
	}
	at := posrange.PositionRange{Start: start + posrange.Pos(found[4]), End: start + posrange.Pos(found[5])}
	if len(stay) == 0 && keyword == "by" {
		at = posrange.PositionRange{Start: start + posrange.Pos(found[0]), End: start + posrange.Pos(found[1])}
	}
	if now := strings.Join(stay, ", "); len(stay) < strings.Count(list, ",")+1 {
		r.replace(at, list, now)
	}
}

// gaps returns the parts of a node's text that are outside of its operands.
func gaps(node parser.Node) []posrange.PositionRange {
	switch node := node.(type) {
	case *parser.AggregateExpr:
		whole, inner := node.PosRange, node.Expr.PositionRange()
		first := inner.Start
		if node.Param != nil {
			first = min(first, node.Param.PositionRange().Start)
		}
		return []posrange.PositionRange{{Start: whole.Start, End: first}, {Start: inner.End, End: whole.End}}
	case *parser.BinaryExpr:
		return []posrange.PositionRange{{Start: node.LHS.PositionRange().End, End: node.RHS.PositionRange().Start}}
	}
	return nil
}
