package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/freshet-io/freshet/internal/lib/atomicfile"
)

const (
	historyEntries = 1000
	historyBytes   = 4 << 20 // an older part of a larger file is not read
)

// queryHistory holds the newest lines of `freshet query -i`. A file keeps them, to which each session appends:
// sessions at the same time lose nothing.
type queryHistory struct {
	lines []string // the oldest first
	file  *os.File // nil if there is none
}

// historyFile returns the file of the user's state, by the XDG Base Directory Specification.
func historyFile() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // the specification ignores relative paths
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "freshet", "query_history"), nil
}

// openHistory reads the history. After an error, the history that it returns stays in memory only.
func openHistory() (*queryHistory, error) {
	h := new(queryHistory)
	path, err := historyFile()
	if err == nil {
		err = h.open(path)
	}
	if err != nil {
		return h, fmt.Errorf("queries are not remembered after this session: %w", err)
	}
	return h, nil
}

// open reads the file and makes it shorter if it has too many lines. Only its owner may read the file, since a
// query may have names in it that others should not see.
func (h *queryHistory) open(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text = text[max(0, len(text)-historyBytes):]
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, line := range all {
		h.remember(line)
	}
	if len(all) > historyEntries {
		if err := atomicfile.Write(path, []byte(strings.Join(h.lines, "\n")+"\n")); err != nil {
			return err
		}
	}
	h.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return h.file.Chmod(0o600)
}

// remember adds a line, unless it is the last one again, and reports whether it did.
func (h *queryHistory) remember(line string) bool {
	if line == "" || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) ||
		len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return false
	}
	h.lines = append(h.lines, line)
	h.lines = slices.Delete(h.lines, 0, max(0, len(h.lines)-historyEntries))
	return true
}

// Add remembers a line. If the file takes no more, the session goes on without it.
func (h *queryHistory) Add(line string) {
	if h.remember(line) && h.file != nil {
		if _, err := h.file.WriteString(line + "\n"); err != nil {
			h.close()
		}
	}
}

func (h *queryHistory) Len() int { return len(h.lines) }

// At returns a line, the newest at 0.
func (h *queryHistory) At(i int) string { return h.lines[len(h.lines)-1-i] }

// close closes the file. It loses nothing: each line was written when it was added.
func (h *queryHistory) close() {
	if h.file != nil {
		h.file.Close()
		h.file = nil
	}
}
