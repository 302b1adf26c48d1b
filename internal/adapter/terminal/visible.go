package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Visible shows received bytes in a form that is safe for a terminal: control characters and
// invalid UTF-8 are written like \x1b. Visible knows the place of each byte in that text.
type Visible struct {
	Text    string
	offsets []int // the index in Text of each byte, and of the end of the line
	columns []int // the screen column of each byte, and of the end of the line
}

// Show returns `line` as a Visible.
func Show(line []byte) Visible {
	var b strings.Builder
	var v Visible
	column := 0
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		printable := unicode.IsPrint(r) && (r != utf8.RuneError || size > 1)
		for _, c := range line[:size] {
			v.offsets, v.columns = append(v.offsets, b.Len()), append(v.columns, column)
			if !printable {
				fmt.Fprintf(&b, `\x%02x`, c)
				column += len(`\x00`)
			}
		}
		if printable {
			b.WriteRune(r)
			column += runeWidth(r)
		}
		line = line[size:]
	}
	v.Text, v.offsets, v.columns = b.String(), append(v.offsets, b.Len()), append(v.columns, column)
	return v
}

// Column returns the screen column where byte i begins. If i is the number of bytes, it returns the
// whole width.
func (v Visible) Column(i int) int { return v.columns[i] }

// Cut returns the part of Text that shows the bytes from `a` to `b`.
func (v Visible) Cut(a, b int) string { return v.Text[v.offsets[a]:v.offsets[b]] }

// Width returns how many columns printable text takes.
func Width(text string) (columns int) {
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

// runeWidth returns the width of r on nearly all terminals: two columns for full-width East
// Asian characters, none for combining characters.
func runeWidth(r rune) int {
	if r < 0x300 { // no wide or combining character is below this
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
