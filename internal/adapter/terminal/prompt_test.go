package terminal

import (
	"bytes"
	"strings"
	"testing"
)

func TestPromptNeedsATerminal(t *testing.T) {
	if _, err := NewPrompt(strings.NewReader(""), new(bytes.Buffer), nil, nil); err == nil {
		t.Error("a prompt without a terminal, want an error")
	}
}

// Options are in columns that fit the window. A long list leaves the lines above in sight.
func TestList(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options []string
		columns int
		want    string
	}{
		{"one row", []string{"avg", "rate(", "sum"}, 20, "avg    rate(  sum\n"},
		{"columns that do not fit", []string{"avg", "rate(", "sum"}, 16, "avg    rate(\nsum\n"},
		{"options wider than the window", []string{"avg", "rate("}, 3, "avg\nrate(\n"},
		{"wide characters", []string{"東京", "x"}, 20, "東京  x\n"},
		{"a long list", strings.Split(strings.Repeat("x", 30), ""), 4, strings.Repeat("x\n", listRows) + "and 18 more\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := list(tt.options, tt.columns); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}
