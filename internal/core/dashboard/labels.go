package dashboard

import (
	"regexp"
	"slices"
	"strings"
	"time"

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
		r.note("uses the label %s of the scrape: Freshet has none, unless dogstatsd.labels sets it; "+
			"--drop-label %s removes it", label, label)
	}
}

// shown finds the labels in a legend.
var shown = regexp.MustCompile(`{{\s*(\w+)\s*}}`)

// legend notes the labels that a legend shows, and that series do not have here: Grafana would show nothing in their
// place.
func (r *rewriter) legend() {
	for _, found := range shown.FindAllStringSubmatch(r.in.legend, -1) {
		if label := found[1]; slices.Contains(r.DropLabels, label) {
			r.note("the legend shows the label %s, which series do not have here", label)
		} else {
			r.scraped(label)
		}
	}
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

const (
	rateInterval = "$__rate_interval"

	// shortestRange is the range in which tiles of one minute always have two samples.
	shortestRange = 2 * time.Minute

	// longRange is the range from which on a subquery has its default step.
	longRange = time.Hour
)

// longEnough returns a range in which tiles of one minute, which answer for older data, have as many samples as
// the function needs.
func (r *rewriter) longEnough(function, over string, matrix *parser.MatrixSelector, s *selector) string {
	isInterval := slices.Contains([]string{"$__interval", "${__interval}", "[[__interval]]"}, over)
	if !isInterval && (strings.ContainsAny(over, "$[") || matrix.Range >= shortestRange) {
		return over
	}
	if series, ok := matrix.VectorSelector.(*parser.VectorSelector); ok && (series.Anchored || series.Smoothed) {
		return over
	}
	switch function {
	case "increase", "delta", "changes", "resets":
		s.tail = " anchored" + s.tail
	case "rate", "irate", "deriv", "idelta":
		if r.in.ofVariable {
			return "5m"
		}
		return rateInterval
	default:
		if !isInterval && matrix.Range < time.Minute {
			r.note("%s over %s has no answer from tiles of 1 min, which remain after 2 days", function, over)
		}
	}
	return over
}
