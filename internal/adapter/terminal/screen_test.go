package terminal

import (
	"bytes"
	"strings"
	"testing"
)

// A page that is larger than the window does not scroll it, and a smaller one
// leaves nothing of the page before.
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
		t.Error("a buffer is a terminal")
	}
}
