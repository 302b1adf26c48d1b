package dashboard

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser/posrange"
	"github.com/prometheus/prometheus/util/strutil"
)

// selector is the text of a selector of series, in parts. Variables stay in it.
type selector struct {
	name     string // empty if only a pattern selects the name
	plain    string // the name with its variables masked
	matchers []matcher
	comma    string // between matchers
	tail     string // offset and @
}

type matcher struct {
	label string // empty if it is a variable
	op    string
	value string // as written, with quotes
	text  string // the whole
}

// compiled returns the matcher, unless it has a variable.
func (m *matcher) compiled() (*labels.Matcher, error) {
	value, err := strutil.Unquote(m.value)
	if err != nil || maskName(value) != value {
		return nil, fmt.Errorf("%s is no constant", m.value)
	}
	kinds := map[string]labels.MatchType{"=": labels.MatchEqual, "!=": labels.MatchNotEqual, "=~": labels.MatchRegexp,
		"!~": labels.MatchNotRegexp}
	return labels.NewMatcher(kinds[m.op], m.label, value)
}

var matcherForm = regexp.MustCompile(`^("(?:[^"\\]|\\.)*"|\w+)\s*(=~|!~|!=|=)\s*(.+)$`)

// selectorAt reads the selector at a place of a query.
func (m *masked) selectorAt(at posrange.PositionRange) selector {
	source, text := m.source[at.Start:at.End], m.text[at.Start:at.End]
	n := strings.IndexFunc(text, func(r rune) bool { return r != ':' && r != '_' && !isWord(r) })
	if n < 0 {
		n = len(text)
	}
	s := selector{name: source[:n], plain: text[:n], comma: ","}
	open := n + len(text[n:]) - len(strings.TrimLeft(text[n:], " \t\r\n"))
	if open == len(text) || text[open] != '{' {
		s.tail = source[n:]
		return s
	}
	part := open + 1
	for i := part; i < len(text); i++ {
		if n := skipped(text[i:]); n > 0 {
			i += n - 1
			continue
		}
		if text[i] != ',' && text[i] != '}' {
			continue
		}
		s.add(strings.TrimSpace(source[part:i]))
		part = i + 1
		if text[i] == '}' {
			break
		}
	}
	if strings.Contains(source[open:part], ", ") {
		s.comma = ", "
	}
	s.tail = source[part:]
	return s
}

func isWord(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// add reads one part between the braces: a matcher, or a quoted name.
func (s *selector) add(text string) {
	if text == "" {
		return
	}
	found := matcherForm.FindStringSubmatch(text)
	switch {
	case found != nil && found[1] == "__name__" && found[2] == "=":
		s.setName(unquoted(found[3]))
	case found != nil:
		s.matchers = append(s.matchers, matcher{unquoted(found[1]), found[2], found[3], text})
	case skipped(text) == len(text):
		s.setName(unquoted(text))
	default:
		s.matchers = append(s.matchers, matcher{text: text})
	}
}

// setName sets a name that stood in quotes.
func (s *selector) setName(name string) { s.name, s.plain = name, maskName(name) }

// unquoted returns a string without its quotes. Escapes stay, since names and numbers have none.
func unquoted(s string) string { return strings.Trim(s, "\"'`") }

// find returns the matchers of a label.
func (s *selector) find(label string) (all []matcher) {
	for _, m := range s.matchers {
		if m.label == label {
			all = append(all, m)
		}
	}
	return all
}

// without returns the selector without the matchers of a label.
func (s selector) without(label string) selector {
	s.matchers = slices.DeleteFunc(slices.Clone(s.matchers), func(m matcher) bool { return m.label == label })
	return s
}

// text returns the selector with `between` before offset and @: a range, or nothing.
func (s selector) text(between string) string {
	var all []string
	for _, m := range s.matchers {
		all = append(all, m.text)
	}
	name := s.name
	if !recorded.MatchString(maskName(name)) { // PromQL takes such a name in quotes only
		all, name = append([]string{`"` + name + `"`}, all...), ""
	}
	if len(all) == 0 && name != "" {
		return name + between + s.tail
	}
	return name + "{" + strings.Join(all, s.comma) + "}" + between + s.tail
}

// over returns the selector with a range.
func (s selector) over(window string) string { return s.text("[" + window + "]") }
