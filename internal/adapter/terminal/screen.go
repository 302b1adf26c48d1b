package terminal

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Screen shows one page after another in place of the terminal's contents, which Close
// restores.
type Screen struct {
	out  io.Writer
	size func() (columns, rows int)
}

// NewScreen returns the screen of out. It returns nil if out is not a terminal, or if it is a dumb
// terminal.
func NewScreen(out io.Writer) *Screen {
	file, ok := out.(*os.File)
	if !ok || dumb() || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return &Screen{out: out, size: func() (columns, rows int) {
		columns, rows, err := term.GetSize(int(file.Fd()))
		if err != nil || columns < 1 || rows < 1 {
			return 80, 24 // the usual size, for terminals that do not report theirs
		}
		return columns, rows
	}}
}

// Control sequences that all terminals since the VT220 and xterm know.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // shows the alternate page and hides the cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	topLeft     = "\x1b[H"
	clearLine   = "\x1b[K" // from the cursor to the end of the line
	clearBelow  = "\x1b[J"
)

// Size returns the present size of the window in characters. Users may resize the window at any time.
func (s *Screen) Size() (columns, rows int) { return s.size() }

// Open takes over the screen. The caller must call Close, even after an error.
func (s *Screen) Open() error {
	_, err := io.WriteString(s.out, enterScreen)
	return err
}

// Close restores what the terminal showed before.
func (s *Screen) Close() error {
	_, err := io.WriteString(s.out, leaveScreen)
	return err
}

// Draw shows lines from the top of the window, in one write to avoid flicker. No line may be wider than
// the window. Draw leaves out the lines for which there is no row.
func (s *Screen) Draw(lines []string) error {
	_, rows := s.size()
	text := topLeft + strings.Join(lines[:min(rows, len(lines))], clearLine+"\r\n") + clearLine + clearBelow
	_, err := io.WriteString(s.out, text)
	return err
}
