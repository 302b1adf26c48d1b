package promqlcomplete

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/strutil"
)

// bare tells which names PromQL takes without quotes.
const bare = model.LegacyValidation

// quoted writes a string of PromQL, and escapes what a terminal would not print. It returns nothing if the
// quote allows no such string: a backquote takes no escapes.
func quoted(text, quote string) string {
	escaped := strconv.Quote(text)
	switch quote {
	case `"`:
		return escaped
	case `'`:
		escaped = strings.ReplaceAll(escaped[1:len(escaped)-1], `\"`, `"`)
		return `'` + strings.ReplaceAll(escaped, `'`, `\'`) + `'`
	default:
		if inner := escaped[1 : len(escaped)-1]; strings.Contains(text, "`") ||
			strings.ReplaceAll(strings.ReplaceAll(inner, `\"`, `"`), `\\`, `\`) != text {
			return ""
		}
		return "`" + text + "`"
	}
}

// unquoted returns the name that an item stands for.
func unquoted(item parser.Item) string {
	if name, err := strutil.Unquote(item.Val); err == nil {
		return name
	}
	return item.Val
}

// content returns what the string at the cursor says so far. An escape that is not complete stands for itself.
func (p place) content() string {
	if text, err := strutil.Unquote(p.quote + p.word + p.quote); err == nil {
		return text
	}
	return p.word
}

// startsWith returns the matcher of the values of a label that begin with a prefix.
func startsWith(label, prefix string) string {
	if prefix == "" {
		return ""
	}
	if !bare.IsValidLabelName(label) {
		label = quoted(label, `"`)
	}
	return label + "=~" + quoted(regexp.QuoteMeta(prefix)+".*", `"`)
}

// strings returns values as strings that begin with what is written, in the quotes that are written.
func (p place) strings(values []string) (options []string) {
	return p.quotedOptions(values, "", true)
}

// patterns returns values as regular expressions. The values follow the last |, and the string stays open,
// because it may go on.
func (p place) patterns(values []string) (options []string) {
	earlier := p.word[:strings.LastIndexByte(p.word, '|')+1]
	var literal []string
	for _, v := range values {
		literal = append(literal, regexp.QuoteMeta(v))
	}
	return p.quotedOptions(literal, earlier, false)
}

// quotedOptions quotes values and puts `earlier`, which is already written in PromQL, before each. It leaves
// out values that do not begin with the rest of the word.
func (p place) quotedOptions(values []string, earlier string, closes bool) (options []string) {
	quote := p.quote
	if quote == "" {
		quote = `"`
	}
	for _, v := range values {
		text := quoted(v, quote)
		if text == "" {
			continue
		}
		text = quote + earlier + strings.TrimPrefix(text, quote)
		if !strings.HasPrefix(text, quote+p.word) {
			continue
		}
		if !closes || p.closed {
			text = strings.TrimSuffix(text, quote)
		}
		options = append(options, text)
	}
	return options
}
