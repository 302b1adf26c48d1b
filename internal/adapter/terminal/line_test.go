package terminal

import (
	"os"
	"strings"
	"testing"
)

func TestLine(t *testing.T) {
	var out strings.Builder
	l := &Line{out: &out, columns: func() int { return 10 }}
	l.Draw("sending")
	l.Draw("sending much more")
	l.Clear()
	if got, want := out.String(), "\rsending\x1b[K\rsending m\x1b[K\r\x1b[K"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Nothing is drawn to a file.
func TestLineNeedsATerminal(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	l := NewLine(file)
	l.Draw("sending")
	l.Clear()
	if text, err := os.ReadFile(file.Name()); err != nil || len(text) > 0 {
		t.Errorf("the file has %q, want nothing; error %v", text, err)
	}
}
