package terminal

import "testing"

func TestVisible(t *testing.T) {
	for _, tt := range []struct {
		why, line, text string
		columns         int // screen columns before the comma
	}{
		{"one column each", "a:1,5", "a:1,5", 3},
		{"bytes of one character", "ö:1,5", "ö:1,5", 3},
		{"East Asian characters take two", "日本:1,5", "日本:1,5", 6},
		{"an accent over the letter before takes none", "e\u0301:1,5", "e\u0301:1,5", 3},
		{"a tab has no fixed width", "t\tab:1,5", `t\x09ab:1,5`, 9},
		{"bytes that are no text", "\x1b\xe4:1,5", `\x1b\xe4:1,5`, 10},
		{"a control of two bytes", "\u009b:1,5", `\xc2\x9b:1,5`, 10},
	} {
		v, at := Show([]byte(tt.line)), len(tt.line)-2
		if v.Text != tt.text || v.Column(at) != tt.columns || v.Cut(at, at+1) != "," || v.Cut(0, len(tt.line)) != tt.text {
			t.Errorf("%s: got %s, want %s; %q is at column %d, want a comma at %d",
				tt.why, v.Text, tt.text, v.Cut(at, at+1), v.Column(at), tt.columns)
		}
		if Width(v.Text) != v.Column(len(tt.line)) {
			t.Errorf("%s: the width is %d columns, want %d", tt.why, Width(v.Text), v.Column(len(tt.line)))
		}
	}
}
