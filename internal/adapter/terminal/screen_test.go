package terminal

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// A page larger than the window does not scroll it. A smaller page leaves nothing of the previous
// page.
func TestScreen(t *testing.T) {
	var out bytes.Buffer
	s := Screen{out: &out, size: func() (columns, rows int) { return 10, 2 }}
	for _, err := range []error{s.Open(), s.Draw([]string{"a", "b", "c"}), s.Draw([]string{"d"}), s.Draw(nil), s.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := "<?1049h<?25l" + "<Ha<K\r\nb<K<J" + "<Hd<K<J" + "<H<K<J" + "<?25h<?1049l"
	if got := strings.ReplaceAll(out.String(), "\x1b[", "<"); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestNoScreen(t *testing.T) {
	if NewScreen(new(bytes.Buffer)) != nil {
		t.Error("NewScreen took a buffer as terminal")
	}
}

// The variable TERM describes the terminal. The variable NO_COLOR switches colours off.
func TestAbleTerminal(t *testing.T) {
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0) // both ends are terminals
	if err != nil {
		t.Fatal(err)
	}
	defer pty.Close()
	for _, tt := range []struct {
		term, noColour string
		colour, screen bool
	}{{"xterm", "", true, true}, {"xterm", "1", false, true}, {"dumb", "", false, false}} {
		t.Setenv("TERM", tt.term)
		t.Setenv("NO_COLOR", tt.noColour)
		if v, s := New(pty, pty), NewScreen(pty); v.Colour != tt.colour || (s != nil) != tt.screen {
			t.Errorf("%+v: colour %t, screen %t", tt, v.Colour, s != nil)
		}
	}
}
