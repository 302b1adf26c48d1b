package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// recordedTop is the answer of a busy server.
func recordedTop(t *testing.T) (body string, top *answer.TopAll) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "top.json"))
	if err != nil {
		t.Fatal(err)
	}
	var a struct{ Data *answer.TopAll }
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatal(err)
	}
	return string(text), a.Data
}

// If the output is a pipe, the command prints all lists once, without colours. The golden file
// shows what users see.
func TestTop(t *testing.T) {
	body, _ := recordedTop(t)
	server, asked := answering(t, http.StatusOK, body)
	code, stdout, stderr := freshet(t, "top", "--server", server, "--limit", "7")
	if code != command.OK || stderr != "" {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	if u := asked(); u.Path != "/api/v1/status/top" || u.Query().Get("limit") != "7" {
		t.Errorf("the command requested %s, want /api/v1/status/top with the limit 7", u)
	}
	golden(t, "top.txt", stdout)

	code, stdout, _ = freshet(t, "top", "--server", server, "--json", "--once")
	if code != command.OK || stdout != strings.TrimSpace(body)+"\n" {
		t.Errorf("exit code %d, %s", code, stdout)
	}
}

// In a terminal window, each list gets its share of the lines. No text is wider or longer than the
// window, and metrics over a limit are red.
func TestTopInWindows(t *testing.T) {
	_, top := recordedTop(t)
	for _, tt := range []struct {
		name          string
		columns, rows int
		notice        string
	}{{"80x24", 80, 24, ""}, {"60x15", 60, 15, "ask http://127.0.0.1:7125: connection refused"}, {"200x60", 200, 60, ""}} {
		p := topPage{columns: tt.columns, rows: tt.rows, colour: true, notice: tt.notice}
		lines := p.lines(top)
		golden(t, "top-"+tt.name+".txt", strings.ReplaceAll(strings.Join(lines, "\n"), "\x1b", "ESC")+"\n")
	}
	for columns := 1; columns < 100; columns += 7 {
		for rows := 1; rows < 40; rows++ {
			lines := topPage{columns: columns, rows: rows}.lines(top)
			if len(lines) > rows {
				t.Fatalf("in a window of %[2]d lines, the page has %[1]d", len(lines), rows)
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n > columns {
					t.Fatalf("in a window of %[2]d columns, a line has %[1]d characters: %[3]s", n, columns, line)
				}
			}
		}
	}
}

// top also shows a page for a server that has received nothing yet.
func TestTopOfNothing(t *testing.T) {
	server, _ := answering(t, http.StatusOK, `{"status":"success","data":{"tenant":"a","seconds":1}}`)
	code, stdout, stderr := freshet(t, "top", "--server", server)
	if want := ": 0.0 samples/s, 0.0 datagrams/s, 0 B/s, 0 series, in the last 1 s\n"; code != command.OK ||
		!strings.HasSuffix(stdout, want) {
		t.Errorf("exit code %d, stdout %q, stderr %s", code, stdout, stderr)
	}
}

func TestTopErrors(t *testing.T) {
	server, _ := answering(t, http.StatusOK, `{"status":"success","data":[1]}`)
	for _, tt := range []struct {
		why    string
		args   []string
		code   int
		stderr string
	}{
		{"no rows", []string{"--limit", "0"}, command.Usage, "freshet: --limit = 0: is not a number from 1 to 100\n"},
		{"too many rows", []string{"--limit", "101"}, command.Usage,
			"freshet: --limit = 101: is not a number from 1 to 100\n"},
		{"no server", []string{"--server", "127.0.0.1:1"}, command.Failure, "freshet: top: ask http://127.0.0.1:1: "},
		{"no server, as JSON", []string{"--server", "127.0.0.1:1", "--json"}, command.Failure,
			"freshet: top: ask http://127.0.0.1:1: "},
		{"another answer", []string{"--server", server}, command.Failure, "freshet: top: read the answer of "},
	} {
		if code, _, stderr := freshet(t, append([]string{"top"}, tt.args...)...); code != tt.code ||
			!strings.HasPrefix(stderr, tt.stderr) {
			t.Errorf("%s: exit code %d, %s", tt.why, code, stderr)
		}
	}
}

// A text is cut to a number of columns, not of characters.
func TestShorten(t *testing.T) {
	for _, tt := range []struct {
		text    string
		columns int
		want    string
	}{{"abcd", 4, "abcd"}, {"abcd", 3, "ab…"}, {"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"abc", 0, "…"}} {
		if got := shorten(tt.text, tt.columns); got != tt.want {
			t.Errorf("%s in %d columns: %s, want %s", tt.text, tt.columns, got, tt.want)
		}
	}
}
