package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Visible is bytes that somebody sent, as a terminal can show them: what would steer
// it, and what is no UTF-8, is written \x1b. It knows where each byte has gone.
type Visible struct {
	Text    string
	offsets []int // in Text, of each byte and of the end
	columns []int // on the screen
}

// Show makes line visible.
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

// Column is where byte i begins; that after the last is the width of all.
func (v Visible) Column(i int) int { return v.columns[i] }

// Cut is what shows the bytes from a to b.
func (v Visible) Cut(a, b int) string { return v.Text[v.offsets[a]:v.offsets[b]] }

// Width is the columns that text takes which can be shown as it is.
func Width(text string) (columns int) {
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

// runeWidth is that of nearly all terminals: two columns for what East Asian scripts
// write in squares, none for what is put over the character before.
func runeWidth(r rune) int {
	if r < 0x300 { // before the first of both
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
