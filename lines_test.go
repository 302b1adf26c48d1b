package freshet_test

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

// widest is the largest number of columns in a line of Go. A tab counts as one column.
const widest = 120

// Lines are narrow enough to show two files beside each other on a screen. The tag of a field and a text
// between backquotes cannot be broken, so these lines may be wider. Generated files are exempt, since
// nobody wraps them.
func TestCodeIsWrapped(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard",
		"*.go").Output()
	if err != nil {
		t.Fatalf("list the files: %v", err)
	}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if _, err := os.Stat(name); err != nil { // deleted, but still in the index
			continue
		}
		if wide := wideLines(t, name); len(wide) > 0 {
			t.Errorf("more than %d columns: %s", widest, strings.Join(wide, ", "))
		}
	}
}

// wideLines returns the places in a file that are too wide.
func wideLines(t *testing.T, name string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.HasPrefix(text, []byte("// Code generated ")) {
		return nil
	}
	set := token.NewFileSet()
	file := set.AddFile(name, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	unbreakable := map[int]bool{}
	for {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			break
		}
		if kind == token.STRING && literal[0] == '`' {
			first := file.Line(at)
			for line := range strings.Count(literal, "\n") + 1 {
				unbreakable[first+line] = true
			}
		}
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > widest && !unbreakable[number] {
			found = append(found, fmt.Sprintf("%s:%d", name, number))
		}
	}
	return found
}
