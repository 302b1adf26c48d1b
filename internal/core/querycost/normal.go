package querycost

import "strings"

// Normal returns a query with a question mark for each number, duration and value of a matcher,
// without comments, and with at most one space between words. So queries of dashboards that differ
// only in variables and ranges become the same text. Normal returns some text even if the input is
// not a query.
func Normal(text string) string {
	var b strings.Builder
	b.Grow(min(len(text), maxText))
	space := false
	last := byte(0) // last byte written, except spaces
	write := func(piece string) {
		if space && b.Len() > 0 && !strings.ContainsRune("([{,", rune(last)) &&
			!strings.ContainsRune(")]},", rune(piece[0])) {
			b.WriteByte(' ')
		}
		space = false
		b.WriteString(piece)
		last = piece[len(piece)-1]
	}
	for i := 0; i < len(text); {
		c, from := text[i], i
		i++
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			space = true
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
			space = true
		case c == '"' || c == '\'' || c == '`':
			i = endOfString(text, from)
			if last == '=' || last == '~' { // the value of a matcher; other strings are names
				write("?")
			} else {
				write(text[from:i])
			}
		case isDigit(c) || c == '.' && i < len(text) && isDigit(text[i]):
			i = endOfWord(text, i)
			write("?")
		case isWord(c):
			i = endOfWord(text, i)
			write(text[from:i])
		default:
			write(text[from:i])
		}
	}
	return b.String()
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isWord reports whether a byte belongs to a name or a number. Bytes beyond ASCII belong to
// names.
func isWord(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == ':' || c == '.' || c >= 0x80
}

func endOfWord(text string, i int) int {
	for i < len(text) && isWord(text[i]) {
		i++
	}
	return i
}

// endOfString returns the position after the string that begins at `from`, or the end of the text
// if the string is not terminated.
func endOfString(text string, from int) int {
	quote := text[from]
	for i := from + 1; i < len(text); i++ {
		switch {
		case text[i] == quote:
			return i + 1
		case text[i] == '\\' && quote != '`':
			i++
		}
	}
	return len(text)
}
