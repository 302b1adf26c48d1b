package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Line is one line of a terminal that is drawn again and again while something
// takes long. A nil Line, for what is no terminal, draws nothing.
type Line struct {
	out     io.Writer
	columns func() int
}

// NewLine returns the line at the cursor of out, nil if that is no terminal or a
// dumb one.
func NewLine(out io.Writer) *Line {
	file, ok := out.(*os.File)
	if !ok || dumb() || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return &Line{out: out, columns: func() int {
		columns, _, err := term.GetSize(int(file.Fd()))
		if err != nil || columns < 2 {
			return 80
		}
		return columns
	}}
}

// Draw shows text, which is plain ASCII, in the place of what was there. What the
// line has no room for is not shown.
func (l *Line) Draw(text string) {
	if l == nil {
		return
	}
	if room := l.columns() - 1; len(text) > room { // the last column would wrap
		text = text[:room]
	}
	_, _ = io.WriteString(l.out, "\r"+text+clearLine) // what it reports goes on without it
}

// Clear takes the line away.
func (l *Line) Clear() { l.Draw("") }
