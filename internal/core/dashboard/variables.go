package dashboard

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// variable is a variable of Grafana in a query, in each of its three notations. $1 belongs to label_replace.
var variable = regexp.MustCompile(`^(?:\$[a-zA-Z_]\w*|\$\{[a-zA-Z_][^}]*\}|\[\[\w+(?::\w+)?\]\])`)

// masked is a query whose variables are replaced by words that PromQL can parse. A word is as long as its
// variable, so a position in one text is a position in the other.
type masked struct {
	source, text string
	expr         parser.Expr
}

// promql parses queries. It knows what Freshet's own parser knows.
var promql = parser.NewParser(parser.Options{EnableExtendedRangeSelectors: true, EnableExperimentalFunctions: true})

// mask parses a query with variables. A variable alone may stand for a name or for a number. mask tries what
// the text around it says, then names everywhere, then numbers.
func mask(source string) (masked, error) {
	var first error
	for _, guess := range []func(before string) bool{isNumber, never, always} {
		m := masked{source: source, text: replaceVariables(source, guess)}
		var err error
		if m.expr, err = promql.ParseExpr(m.text); err == nil {
			return m, nil
		}
		if first == nil {
			first = err
		}
	}
	return masked{}, first
}

// maskName returns a name with its variables masked.
func maskName(name string) string { return replaceVariables(name, never) }

func never(string) bool  { return false }
func always(string) bool { return true }

// takesNumber ends with the name of a function or an aggregation whose first argument is a number.
var takesNumber = regexp.MustCompile(`\b(?:histogram_quantile|quantile|quantile_over_time|topk|bottomk|limitk|` +
	`limit_ratio|vector)\s*(?:(?:by|without)\s*\([^)]*\)\s*)?\(\s*$`)

func isNumber(before string) bool { return takesNumber.MatchString(before) }

var (
	word        = regexp.MustCompile(`^[\w:]`)
	wordBefore  = regexp.MustCompile(`[\w:]$`)
	nameFollows = regexp.MustCompile(`^\s*[\[{(]`)
	offsetOf    = regexp.MustCompile(`\boffset\s*-?\s*$`)
)

// replaceVariables replaces the variables outside of strings and comments.
func replaceVariables(source string, number func(before string) bool) string {
	var b strings.Builder
	brackets := 0
	for at := 0; at < len(source); {
		rest := source[at:]
		if n := skipped(rest); n > 0 {
			b.WriteString(rest[:n])
			at += n
			continue
		}
		if found := variable.FindString(rest); found != "" {
			before, after := b.String(), rest[len(found):]
			switch {
			case brackets > 0 || offsetOf.MatchString(before):
				b.WriteString(duration(len(found), word.MatchString(after)))
			case !wordBefore.MatchString(before) && !word.MatchString(after) && !nameFollows.MatchString(after) &&
				number(before):
				b.WriteString(strings.Repeat("0", len(found)-1) + "1")
			default:
				b.WriteString("v" + strings.Repeat("_", len(found)-1))
			}
			at += len(found)
			continue
		}
		switch rest[0] {
		case '[':
			brackets++
		case ']':
			brackets--
		}
		b.WriteByte(rest[0])
		at++
	}
	return b.String()
}

// duration returns a duration of n bytes, at least 2, or its number if the unit follows.
func duration(n int, unitFollows bool) string {
	if unitFollows {
		return strings.Repeat("0", n-1) + "1"
	}
	return strings.Repeat("0", n-2) + "1h"
}

// skipped returns the length of the string or comment at the beginning of a query.
func skipped(s string) int {
	switch s[0] {
	case '#':
		if n := strings.IndexByte(s, '\n'); n >= 0 {
			return n
		}
		return len(s)
	case '"', '\'', '`':
		for i := 1; i < len(s); i++ {
			switch {
			case s[i] == '\\' && s[0] != '`':
				i++
			case s[i] == s[0]:
				return i + 1
			}
		}
		return len(s)
	}
	return 0
}

// values returns the present values of the variables of a dashboard, as Grafana writes them into a query. Grafana's
// own variables get values for tiles of 10 s.
func values(dashboard *value) map[string]string {
	all := map[string]string{"__rate_interval": "40s", "__interval": "10s", "__interval_ms": "10000", "__range": "1h",
		"__range_s": "3600", "__range_ms": "3600000"}
	var collect func(v *value)
	collect = func(v *value) {
		if current := v.get("current"); current != nil && v.textOf("name") != "" {
			all[v.textOf("name")] = present(current.get("value"), cmp.Or(v.textOf("allValue"), ".*"))
		}
		for _, m := range v.members {
			collect(m.value)
		}
	}
	collect(dashboard)
	return all
}

// present writes the value of a variable: a string, or the strings of a list as a regular expression.
func present(v *value, all string) string {
	if v == nil {
		return all
	}
	texts := []string{v.text}
	if v.kind == list {
		texts = nil
		for _, m := range v.members {
			texts = append(texts, m.value.text)
		}
	}
	switch {
	case len(texts) == 0 || slices.Contains(texts, "$__all"):
		return all
	case len(texts) == 1:
		return texts[0]
	}
	return "(" + strings.Join(texts, "|") + ")"
}

// several returns the variables that may have several values at once.
func several(dashboard *value) map[string]bool {
	all := map[string]bool{}
	var collect func(v *value)
	collect = func(v *value) {
		if many, every := v.get("multi"), v.get("includeAll"); many != nil && many.truth || every != nil && every.truth {
			all[v.textOf("name")] = true
		}
		for _, m := range v.members {
			collect(m.value)
		}
	}
	collect(dashboard)
	return all
}

var variableName = regexp.MustCompile(`\w+`)

// Filled returns a query with the present values of the dashboard's variables. A variable without a value matches
// everything.
func (c *Conversion) Filled(query string) string {
	var b strings.Builder
	for at := 0; at < len(query); {
		found := variable.FindString(query[at:])
		if found == "" {
			b.WriteByte(query[at])
			at++
			continue
		}
		value, known := c.values[variableName.FindString(found)]
		if !known {
			value = ".*"
		}
		b.WriteString(value)
		at += len(found)
	}
	return b.String()
}
