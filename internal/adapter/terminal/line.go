package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Line is one line of a terminal that is redrawn during a long operation. For output that is not a
// terminal, the Line is nil and draws nothing.
type Line struct {
	out     io.Writer
	columns func() int
}

// NewLine returns the line at the cursor of out. It returns nil if out is not a terminal, or if it is a
// dumb terminal.
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

// Draw replaces the line's contents by text, which must be ASCII. It cuts text that does not fit.
func (l *Line) Draw(text string) {
	if l == nil {
		return
	}
	if room := l.columns() - 1; len(text) > room { // text in the last column would wrap to the next line
		text = text[:room]
	}
	_, _ = io.WriteString(l.out, "\r"+text+clearLine) // the operation continues even if the line cannot be drawn
}

// Clear erases the line.
func (l *Line) Clear() { l.Draw("") }
