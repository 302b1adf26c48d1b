package querycost

import "strings"

// Normal is a query with a question mark in place of each number, duration and value of a
// matcher, and one space or none in place of any others and of comments. Dashboards whose variables
// and ranges differ ask the same query. Text that is no query comes out as some text, too.
func Normal(text string) string {
	var b strings.Builder
	b.Grow(min(len(text), maxText))
	space := false
	last := byte(0) // written last, but for spaces
	write := func(piece string) {
		if space && b.Len() > 0 && !strings.ContainsRune("([{,", rune(last)) && !strings.ContainsRune(")]},", rune(piece[0])) {
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
			if last == '=' || last == '~' { // of a matcher; others are names
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

// isWord reports whether a byte is of a name or a number. Those beyond ASCII are of names.
func isWord(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == ':' || c == '.' || c >= 0x80
}

func endOfWord(text string, i int) int {
	for i < len(text) && isWord(text[i]) {
		i++
	}
	return i
}

// endOfString is behind the string that begins at from, or at the end if it does not end.
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
