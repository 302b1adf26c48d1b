// Package promqlcomplete finds what could stand at the cursor of a PromQL expression that a person is
// writing. Prometheus' lexer reads the expression, since its parser takes only complete ones.
package promqlcomplete

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// Names are the names and values that a server has. Selectors are PromQL; a name or value counts if a
// series matches one of them. Without selectors all series count. Answers may be cut short or empty.
type Names interface {
	Metrics(prefix string) []string
	Labels(selectors ...string) []string
	Values(label string, selectors ...string) []string
}

// Completion lists what could replace text[Start:cursor]. The options are sorted PromQL without control
// characters, so a terminal can show them.
type Completion struct {
	Start   int
	Options []string
}

// Common returns the text with which all options begin, or nothing if there are no options.
func (c Completion) Common() string {
	if len(c.Options) == 0 {
		return ""
	}
	common := []rune(c.Options[0])
	for _, o := range c.Options[1:] {
		n := 0
		for _, r := range o {
			if n == len(common) || r != common[n] {
				break
			}
			n++
		}
		common = common[:n]
	}
	return string(common)
}

// At completes `text` at the cursor, a place in bytes. What stands behind the cursor stays, and may name the
// metrics whose labels a grouping takes.
func At(text string, cursor int, names Names) Completion {
	p := placeAt(text, cursor)
	c := Completion{Start: p.start, Options: p.options(names)}
	slices.Sort(c.Options)
	c.Options = slices.Compact(c.Options)
	return c
}

// maxGrouped is the number of metrics whose labels a grouping offers, which bounds the request to the server.
const maxGrouped = 8

func (p place) options(names Names) []string {
	switch opening := p.opening(); {
	case p.nothing, opening == parser.LEFT_BRACKET:
		return nil // in brackets are durations
	case opening == parser.LEFT_BRACE:
		return p.inBraces(names)
	case p.quote != "":
		return nil // the string is an argument of a function
	case p.grouping():
		if p.last() != parser.LEFT_PAREN && p.last() != parser.COMMA {
			return nil
		}
		metrics := metricsOf(p.text)
		return labelNames(p.word, names.Labels(metrics[:min(len(metrics), maxGrouped)]...))
	default:
		return p.inExpression(names)
	}
}

// inExpression completes where an operand, an operator or a modifier stands.
func (p place) inExpression(names Names) []string {
	last := p.last()
	switch {
	case last.IsAggregator():
		return beginning(p.word, "by", "without")
	case last == parser.OFFSET || last == parser.AT:
		return nil // a duration or a time
	case last == parser.RIGHT_PAREN:
		return p.afterParenthesis(names)
	case isOperandEnd(last):
		return beginning(p.word, afterOperand...)
	case last.IsOperator():
		return append(p.operands(names), beginning(p.word, afterOperator...)...)
	default:
		return p.operands(names)
	}
}

var (
	afterOperand  = []string{"and", "or", "unless", "atan2", "offset", "smoothed", "anchored"}
	afterOperator = []string{"on", "ignoring", "bool"}
)

func isOperandEnd(t parser.ItemType) bool {
	switch t {
	case parser.IDENTIFIER, parser.METRIC_IDENTIFIER, parser.RIGHT_BRACE, parser.RIGHT_BRACKET, parser.NUMBER,
		parser.DURATION, parser.STRING, parser.SMOOTHED, parser.ANCHORED:
		return true
	}
	return false
}

// afterParenthesis completes behind a closed parenthesis. What may follow depends on the word before its opening.
func (p place) afterParenthesis(names Names) []string {
	switch before := p.beforeParenthesis(); {
	case before == parser.BY || before == parser.WITHOUT:
		return nil // an opening parenthesis, or an operator if the grouping stands behind the aggregation
	case before == parser.ON || before == parser.IGNORING:
		return append(p.operands(names), beginning(p.word, "group_left", "group_right")...)
	case before == parser.GROUP_LEFT || before == parser.GROUP_RIGHT:
		return p.operands(names)
	case before.IsAggregator():
		return beginning(p.word, append(afterOperand, "by", "without")...)
	default:
		return beginning(p.word, afterOperand...)
	}
}

// operands returns metrics and, once the first character is written, functions and aggregations.
func (p place) operands(names Names) []string {
	var options []string
	for _, m := range names.Metrics(p.word) {
		switch {
		case !strings.HasPrefix(m, p.word):
		case bare.IsValidMetricName(m):
			options = append(options, m)
		default:
			options = append(options, "{"+quoted(m, `"`)+"}")
		}
	}
	if p.word == "" {
		return options
	}
	return append(options, beginning(p.word, callable...)...)
}

// callable lists functions and aggregations, each as it begins in an expression. Experiments are left out,
// because servers refuse them by default.
var callable = func() (all []string) {
	for name, f := range parser.Functions {
		switch {
		case f.Experimental:
		case len(f.ArgTypes) == 0:
			all = append(all, name+"()")
		default:
			all = append(all, name+"(")
		}
	}
	for item, name := range parser.ItemTypeStr {
		if item.IsAggregator() && !item.IsExperimentalAggregator() {
			all = append(all, name)
		}
	}
	return all
}()

// inBraces completes a matcher.
func (p place) inBraces(names Names) []string {
	switch last := p.last(); last {
	case parser.LEFT_BRACE, parser.COMMA:
		if p.quote == "" {
			return labelNames(p.word, names.Labels(p.selector("")...))
		}
		found := append(names.Metrics(p.content()), names.Labels(p.selector("")...)...)
		return p.strings(found)
	case parser.EQL, parser.NEQ:
		label := p.matcherLabel()
		return p.strings(names.Values(label, p.selector(startsWith(label, p.content()))...))
	case parser.EQL_REGEX, parser.NEQ_REGEX:
		return p.patterns(names.Values(p.matcherLabel(), p.selector("")...))
	default:
		return nil
	}
}

// labelNames returns the labels that begin with `word`, as PromQL writes them.
func labelNames(word string, found []string) (options []string) {
	for _, l := range found {
		switch {
		case !strings.HasPrefix(l, word):
		case bare.IsValidLabelName(l):
			options = append(options, l)
		default:
			options = append(options, quoted(l, `"`))
		}
	}
	return options
}

// beginning returns the words that begin with `word`.
func beginning(word string, words ...string) (options []string) {
	for _, w := range words {
		if strings.HasPrefix(w, word) {
			options = append(options, w)
		}
	}
	return options
}
