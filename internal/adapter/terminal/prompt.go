package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// Prompt reads lines that a person writes at a terminal.
type Prompt struct {
	in, out  *os.File
	editor   *term.Terminal
	complete Complete
}

// Complete returns what could stand in place of line[start:cursor], as printable text, and the text with which
// all options begin.
type Complete func(line string, cursor int) (start int, options []string, common string)

// History holds the lines that the arrow keys recall, the newest at 0.
type History = term.History

// NewPrompt returns the prompt of a terminal. It returns an error if `in` or `out` is not one, or if it
// takes no control sequences.
func NewPrompt(in io.Reader, out io.Writer, history History, complete Complete) (*Prompt, error) {
	from, isFile := in.(*os.File)
	to, isFileToo := out.(*os.File)
	if !isFile || !isFileToo || dumb() || !term.IsTerminal(int(from.Fd())) || !term.IsTerminal(int(to.Fd())) {
		return nil, errors.New("standard input and output must be a terminal with control sequences (TERM is not dumb)")
	}
	p := &Prompt{in: from, out: to, complete: complete}
	p.editor = term.NewTerminal(keys{from, to}, "")
	p.editor.History, p.editor.AutoCompleteCallback = history, p.key
	return p, nil
}

// Read writes the prompt `text` and returns the line that the user enters, or io.EOF after Ctrl-D. The terminal
// is in raw mode only meanwhile. After ctx is done, Read must not be called again: a goroutine still waits for
// keys, until the process ends.
func (p *Prompt) Read(ctx context.Context, text string) (line string, err error) {
	before, err := term.MakeRaw(int(p.in.Fd()))
	if err != nil {
		return "", fmt.Errorf("read keys: %w", err)
	}
	restore := sync.OnceFunc(func() { err = errors.Join(err, term.Restore(int(p.in.Fd()), before)) })
	defer restore()

	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	p.fit()
	p.editor.SetPrompt(text)
	type entered struct {
		line string
		err  error
	}
	lines := make(chan entered, 1)
	go func() {
		defer func() {
			if fault := recover(); fault != nil {
				restore() // a crash must not leave the terminal in raw mode
				panic(fault)
			}
		}()
		line, err := p.editor.ReadLine()
		lines <- entered{line, err}
	}()
	for {
		select {
		case <-resized:
			p.fit()
		case e := <-lines:
			return e.line, e.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// fit tells the editor the size of the window.
func (p *Prompt) fit() {
	if columns, rows, err := term.GetSize(int(p.in.Fd())); err == nil && columns > 0 {
		_ = p.editor.SetSize(columns, rows) // a terminal that cannot be written to ends Read by itself
	}
}

const (
	interrupt = 0x03 // Ctrl-C
	clearKey  = 0x1c // Ctrl-\, to which the editor gives no meaning
)

// keys are the keys of a terminal in raw mode. They replace Ctrl-C, which would end the editor, by clearKey.
type keys struct {
	io.Reader
	io.Writer
}

func (k keys) Read(b []byte) (int, error) {
	n, err := k.Reader.Read(b)
	for i, c := range b[:n] {
		if c == interrupt {
			b[i] = clearKey
		}
	}
	return n, err
}

// key handles the keys that the editor does not: Tab completes, Ctrl-C clears the line.
func (p *Prompt) key(line string, cursor int, key rune) (string, int, bool) {
	switch key {
	case clearKey:
		return "", 0, true
	case '\t':
		line, cursor = p.completed(line, cursor)
		return line, cursor, true
	default:
		return "", 0, false
	}
}

// completed writes what all options share at the cursor. If that is written already, it lists the options
// above the line.
func (p *Prompt) completed(line string, cursor int) (string, int) {
	start, options, common := p.complete(line, cursor)
	written := line[start:cursor]
	if len(options) == 1 || len(common) > len(written) && strings.HasPrefix(common, written) {
		return line[:start] + common + line[cursor:], start + len(common)
	}
	if len(options) > 1 {
		_, _ = io.WriteString(p.editor, list(options, New(p.out, nil).Columns)) // as in fit
	}
	return line, cursor
}

const listRows = 12 // the rows of options that leave the lines above in sight

// list arranges options in columns, as ls does, and says how many it leaves out.
func list(options []string, columns int) string {
	width := 0
	for _, o := range options {
		width = max(width, Width(o))
	}
	perRow := max(1, (columns+1)/(width+2)) // two spaces between columns
	shown := options[:min(len(options), perRow*listRows)]
	var b strings.Builder
	for i, o := range shown {
		b.WriteString(o)
		if i%perRow == perRow-1 || i == len(shown)-1 {
			b.WriteByte('\n')
		} else {
			b.WriteString(strings.Repeat(" ", width+2-Width(o)))
		}
	}
	if n := len(options) - len(shown); n > 0 {
		fmt.Fprintf(&b, "and %d more\n", n)
	}
	return b.String()
}
