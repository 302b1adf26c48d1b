// Package promqlguard refuses PromQL queries that could cost too much, before they are evaluated.
// Prometheus' parser and engine take any query. Parsing 100,000 nested parentheses takes a quarter of a
// minute, and printing the result takes far longer. count_over_time(vector(1)[1000d:1ms]) asks for 691
// GB at once. An evaluation checks its deadline only once per series.
//
// Parser bounds the text, its nesting and its selectors; Limits.CheckStatement bounds the steps
// of a parsed query. The engine and its callers bound how many samples a query loads, how long it
// runs, and how many queries run at once.
package promqlguard

import (
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Limits of one query. Errors name them by their keys in the configuration.
type Limits struct {
	Bytes         int   // max_query_bytes: length of a query, or of all match[] parameters together
	Depth         int   // max_query_depth: levels of a query's syntax tree
	SubquerySteps int64 // max_subquery_steps: steps of all subqueries together
	WindowSamples int64 // max_window_samples: see CheckStatement
}

// Parser is Prometheus' parser with limits on text and depth. The API and the engine both use it,
// so it sees all text that becomes a query or a selector.
type Parser struct {
	parser.Parser
	limits  Limits
	refused func()
}

// NewParser returns a parser with the options and the limits l. It calls `refused` for each text
// that it refuses.
func NewParser(o parser.Options, l Limits, refused func()) Parser {
	return Parser{parser.NewParser(o), l, refused}
}

// ParseExpr parses a query.
func (p Parser) ParseExpr(query string) (parser.Expr, error) {
	if err := p.limits.checkText(query); err != nil {
		p.refused()
		return nil, err
	}
	expr, err := p.Parser.ParseExpr(query)
	if err != nil {
		parser.EnrichParseError(err, nameSetting)
		return nil, err
	}
	if n := len(parser.ExtractSelectors(expr)); n > maxSelectors {
		p.refused()
		return nil,
			fmt.Errorf("the query has %d selectors; at most %d are allowed: have recording rules compute its parts",
				n, maxSelectors)
	}
	return expr, nil
}

// nameSetting changes the error about an experimental function or aggregation: it adds our setting
// that enables it. Prometheus' error names a flag of Prometheus, or no setting at all.
func nameSetting(e *parser.ParseErr) {
	const setting = "query.experimental: true in the configuration"
	text := e.Err.Error()
	if of, ok := strings.CutSuffix(text, "--enable-feature=promql-experimental-functions"); ok {
		e.Err = errors.New(of + setting)
	} else if strings.HasPrefix(text, "function ") && strings.HasSuffix(text, " is not enabled") {
		e.Err = fmt.Errorf("%w: it is experimental and must be enabled with %s", e.Err, setting)
	}
}

// ParseMetricSelector parses a selector of series.
func (p Parser) ParseMetricSelector(selector string) ([]*labels.Matcher, error) {
	if err := p.limits.checkText(selector); err != nil {
		p.refused()
		return nil, err
	}
	return p.Parser.ParseMetricSelector(selector)
}

// maxSelectors bounds the selectors of a query, and the match[] parameters of a request. Each
// selector is a separate search in every store and in all open tiles. Dashboards have a handful of
// selectors.
const maxSelectors = 1000

// ParseMetricSelectors parses the match[] parameters of one request.
func (p Parser) ParseMetricSelectors(selectors []string) ([][]*labels.Matcher, error) {
	if err := p.limits.checkSelectors(selectors); err != nil {
		p.refused()
		return nil, err
	}
	return p.Parser.ParseMetricSelectors(selectors)
}

func (l Limits) checkSelectors(selectors []string) error {
	if len(selectors) > maxSelectors {
		return fmt.Errorf("%d match[] parameters in one request; at most %d are allowed: send several requests",
			len(selectors), maxSelectors)
	}
	length := 0
	for _, s := range selectors {
		length += len(s)
	}
	if err := l.checkLength(length); err != nil {
		return err
	}
	for _, s := range selectors {
		if err := l.checkDepth(s); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses a query that is too long or too deep to parse. It takes time linear in the
// length.
func (l Limits) checkText(query string) error {
	if err := l.checkLength(len(query)); err != nil {
		return err
	}
	return l.checkDepth(query)
}

func (l Limits) checkLength(length int) error {
	if length > l.Bytes {
		return fmt.Errorf("the query is %d bytes long; the limit is %d (query.max_query_bytes): shorten it, "+
			"or have recording rules compute its parts", length, l.Bytes)
	}
	return nil
}

func (l Limits) checkDepth(query string) error {
	if d := Depth(query); d > l.Depth {
		return fmt.Errorf("the query is %d levels deep; the limit is %d (query.max_query_depth), "+
			"where each bracket and each operator of a chain is a level: nest less, or have recording rules compute its parts",
			d, l.Depth)
	}
	return nil
}

// level is the state of one open bracket, or of the query itself. Commas split it into branches.
type level struct {
	links   int // operators and subqueries of this branch, each of which may deepen the tree by one level
	below   int // depth of the deepest bracket of this branch
	deepest int // depth of the deepest earlier branch
}

func (v level) depth() int { return max(v.deepest, v.links+v.below) }

// Depth returns an upper bound of the depth of query's syntax tree. The query need not be
// well-formed. Depth reads tokens with the parser's lexer, so strings, escapes and comments cannot
// hide a bracket. Like the parser, Depth stops at the first token that is an error.
func Depth(query string) int {
	var item parser.Item
	lexer := parser.Lex(query)
	open := make([]level, 1, 16)
	for {
		lexer.NextItem(&item)
		top := &open[len(open)-1]
		switch item.Typ {
		case parser.EOF, parser.ERROR:
			for len(open) > 1 { // brackets that are not closed count, too
				open = closeBracket(open)
			}
			return 1 + open[0].depth()
		case parser.LEFT_BRACKET:
			top.links++ // x[5m:1m] is one level deeper than x
			open = append(open, level{})
		case parser.LEFT_PAREN, parser.LEFT_BRACE:
			open = append(open, level{})
		case parser.RIGHT_PAREN, parser.RIGHT_BRACE, parser.RIGHT_BRACKET:
			if len(open) > 1 {
				open = closeBracket(open)
			}
		case parser.COMMA:
			*top = level{deepest: top.depth()}
		default:
			if item.Typ.IsOperator() {
				top.links++
			}
		}
	}
}

func closeBracket(open []level) []level {
	top := open[len(open)-1]
	open = open[:len(open)-1]
	outer := &open[len(open)-1]
	outer.below = max(outer.below, 1+top.depth())
	return open
}
