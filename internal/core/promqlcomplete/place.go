package promqlcomplete

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// place is a cursor in an expression.
type place struct {
	text    string
	start   int           // where the word or string at the cursor begins; the cursor itself if there is none
	word    string        // what is written of it, without its quote
	quote   string        // the quote of the string in which the cursor stands, if any
	closed  bool          // whether this string has its closing quote at the cursor
	nothing bool          // whether the cursor stands in a number, a duration or a comment, which nothing completes
	before  []parser.Item // what stands before the word
	open    []int         // the brackets of all kinds in `before` that are open, the innermost last
	paren   int           // the opening of the parenthesis that was closed last
}

func placeAt(text string, cursor int) place {
	p := place{text: text, start: cursor}
	var rest int
	p.before, rest = lex(text[:cursor])
	if rest < cursor && strings.ContainsRune("\"'`", rune(text[rest])) {
		p.start, p.quote, p.word = rest, text[rest:rest+1], text[rest+1:cursor]
		p.closed = strings.HasPrefix(text[cursor:], p.quote)
	} else if n := len(p.before); n > 0 && end(p.before[n-1]) == cursor {
		switch touched := p.before[n-1]; {
		case isWord(touched.Val):
			p.start, p.word = int(touched.Pos), touched.Val
			p.before = p.before[:n-1]
		case touched.Typ == parser.NUMBER, touched.Typ == parser.DURATION, touched.Typ == parser.COMMENT:
			p.nothing = true
		}
	}
	p.before = slices.DeleteFunc(p.before, func(item parser.Item) bool { return item.Typ == parser.COMMENT })
	for i, item := range p.before {
		switch item.Typ {
		case parser.LEFT_PAREN, parser.LEFT_BRACE, parser.LEFT_BRACKET:
			p.open = append(p.open, i)
		case parser.RIGHT_PAREN, parser.RIGHT_BRACE, parser.RIGHT_BRACKET:
			if n := len(p.open); n > 0 {
				p.paren, p.open = p.open[n-1], p.open[:n-1]
			}
		}
	}
	return p
}

// lex returns the items of an expression. It ends at the first fault, such as a string without an end, and
// returns where the fault begins.
func lex(text string) (items []parser.Item, rest int) {
	lexer := parser.Lex(text)
	for {
		var item parser.Item
		lexer.NextItem(&item)
		switch item.Typ {
		case parser.EOF:
			return items, len(text)
		case parser.ERROR:
			return items, min(int(item.Pos), len(text))
		default:
			items = append(items, item)
		}
	}
}

func end(item parser.Item) int { return int(item.Pos) + len(item.Val) }

// isWord is true for names and keywords, and false for operators, numbers and strings.
func isWord(text string) bool {
	c := text[0]
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == ':'
}

// last returns what stands before the word, or 0 at the beginning.
func (p place) last() parser.ItemType { return p.item(len(p.before) - 1) }

func (p place) item(i int) parser.ItemType {
	if i < 0 || i >= len(p.before) {
		return 0
	}
	return p.before[i].Typ
}

// innermost returns the innermost open bracket of any kind, or -1.
func (p place) innermost() int {
	if len(p.open) == 0 {
		return -1
	}
	return p.open[len(p.open)-1]
}

func (p place) opening() parser.ItemType { return p.item(p.innermost()) }

// grouping is true in the list of labels of by, on and their like.
func (p place) grouping() bool {
	return p.opening() == parser.LEFT_PAREN && takesLabels(p.item(p.innermost()-1))
}

func takesLabels(t parser.ItemType) bool {
	switch t {
	case parser.BY, parser.WITHOUT, parser.ON, parser.IGNORING, parser.GROUP_LEFT, parser.GROUP_RIGHT:
		return true
	}
	return false
}

// beforeParenthesis returns what stands before the opening of the parenthesis that has just been closed.
func (p place) beforeParenthesis() parser.ItemType { return p.item(p.paren - 1) }

// matcherLabel returns the label whose value is written.
func (p place) matcherLabel() string {
	if len(p.before) < 2 {
		return ""
	}
	return unquoted(p.before[len(p.before)-2])
}

// selector returns the selector up to the matcher at the cursor, with one more matcher if it is not empty. It
// returns nothing if this would select all series.
func (p place) selector(matcher string) []string {
	opening := p.innermost()
	from, to := p.before[opening], p.before[opening]
	if metric := opening - 1; metric >= 0 && (p.item(metric) == parser.IDENTIFIER ||
		p.item(metric) == parser.METRIC_IDENTIFIER) {
		from = p.before[metric]
	}
	for _, item := range p.before[opening:] {
		if item.Typ == parser.COMMA {
			to = item
		}
	}
	if from.Typ == parser.LEFT_BRACE && to.Typ == parser.LEFT_BRACE && matcher == "" {
		return nil
	}
	return []string{p.text[from.Pos:end(to)] + matcher + "}"}
}

// metricsOf returns the metrics that an expression names, as selectors, each once.
func metricsOf(text string) (metrics []string) {
	items, _ := lex(text)
	inside := 0 // within braces or a list of labels
	for i, item := range items {
		next := parser.ItemType(0)
		if i+1 < len(items) {
			next = items[i+1].Typ
		}
		switch {
		case item.Typ == parser.LEFT_BRACE, item.Typ == parser.LEFT_PAREN && i > 0 && takesLabels(items[i-1].Typ):
			inside++
		case inside > 0:
			if item.Typ == parser.RIGHT_BRACE || item.Typ == parser.RIGHT_PAREN {
				inside--
			}
		case item.Typ == parser.METRIC_IDENTIFIER, item.Typ == parser.IDENTIFIER && next != parser.LEFT_PAREN:
			if !slices.Contains(metrics, item.Val) {
				metrics = append(metrics, item.Val)
			}
		}
	}
	return metrics
}
