package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func TestQueryInteractiveMistakes(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-i", "up"}, command.Usage, "takes no expression and no --json"},
		{[]string{"-i", "--json"}, command.Usage, "takes no expression and no --json"},
		{[]string{"-i"}, command.Failure, "standard input and output must be a terminal"},
	} {
		t.Setenv("XDG_STATE_HOME", t.TempDir())
		code, stdout, stderr := freshet(t, append([]string{"query"}, tt.args...)...)
		if code != tt.code || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("%q: exit code %d, output %q, errors %q; want %d, %q", tt.args, code, stdout, stderr, tt.code, tt.want)
		}
	}
}

// Commands set the time of the queries that follow. One that is refused changes nothing.
func TestQueryCommands(t *testing.T) {
	server, asked := answering(t, http.StatusOK, recorded(t, "range-none"))
	var notes bytes.Buffer
	c := &conversation{server: apiclient.Server{Address: server}, out: &notes, notes: &notes}
	for _, tt := range []struct{ line, fault, prompt, path, query string }{
		{`\time 3600`, "", "freshet> ", "/api/v1/query", "query=up&time=3600.000"},
		{`\range 10m`, "", "freshet 10m> ", "/api/v1/query_range", "end=3600.000&query=up&start=3000.000&step=10"},
		{`\step 1m`, "", "freshet 10m> ", "/api/v1/query_range", "end=3600.000&query=up&start=3000.000&step=60"},
		{`\step 1`, `\step "1": is not a duration`, "freshet 10m> ", "/api/v1/query_range",
			"end=3600.000&query=up&start=3000.000&step=60"},
		{`\time noon`, `\time "noon": is not a time`, "freshet 10m> ", "/api/v1/query_range",
			"end=3600.000&query=up&start=3000.000&step=60"},
		{`\step auto`, "", "freshet 10m> ", "/api/v1/query_range", "end=3600.000&query=up&start=3000.000&step=10"},
		{`\instant`, "", "freshet> ", "/api/v1/query", "query=up&time=3600.000"},
		{"help", "", "freshet> ", "/api/v1/query", "query=up&time=3600.000"},
		{`\graph`, `\graph is not a command; \help lists them`, "freshet> ", "/api/v1/query", "query=up&time=3600.000"},
	} {
		err := c.handle(t.Context(), tt.line)
		if (err == nil) != (tt.fault == "") || err != nil && !strings.HasPrefix(err.Error(), tt.fault) {
			t.Errorf("%s: error %v, want %q", tt.line, err, tt.fault)
		}
		if err := c.handle(t.Context(), "up"); err != nil {
			t.Fatal(err)
		}
		if u := asked(); u.Path != tt.path || u.RawQuery != tt.query || c.prompt() != tt.prompt {
			t.Errorf("%s: the prompt %q requests\n%s?%s, want %q\n%s?%s", tt.line, c.prompt(), u.Path, u.RawQuery,
				tt.prompt, tt.path, tt.query)
		}
	}
}

// Each command that Tab offers is one that \help explains.
func TestQueryHelpListsTheCommands(t *testing.T) {
	for _, name := range promptCommands {
		if !strings.Contains("\n"+promptHelp, "\n"+strings.TrimSpace(name)) {
			t.Errorf("\\help does not explain %s", name)
		}
	}
	c := new(conversation)
	if start, options, common := c.complete(t.Context(), `\r`, 2); start != 0 || len(options) != 1 || common != `\range ` {
		t.Errorf(`\r: got %q from %d, common %q; want "\range "`, options, start, common)
	}
}

// The server's names reach the completion, with the label's name in the path as the API takes it.
func TestQueryCompletes(t *testing.T) {
	server, asked := answering(t, http.StatusOK, `{"status":"success","data":["web-1"]}`)
	c := &conversation{server: apiclient.Server{Address: server}}
	for _, tt := range []struct{ line, common, want string }{
		{"web", "", "/api/v1/label/__name__/values?limit=200&match%5B%5D=%7B__name__%3D~%22web.%2A%22%7D"},
		{`up{we`, "", "/api/v1/labels?limit=200&match%5B%5D=up%7B%7D"},
		{`up{host="w`, `"web-1"`, "/api/v1/label/host/values?limit=200&match%5B%5D=up%7Bhost%3D~%22w.%2A%22%7D"},
		{`up{"a.b"="`, `"web-1"`, "/api/v1/label/U__a_2e_b/values?limit=200&match%5B%5D=up%7B%7D"},
	} {
		_, _, common := c.complete(t.Context(), tt.line, len(tt.line))
		if u := asked(); u.String() != tt.want || tt.common != "" && common != tt.common {
			t.Errorf("%s: completed by %s, asked for\n%s, want %s\n%s", tt.line, common, u, tt.common, tt.want)
		}
	}
}

// The history stays between sessions, in a file of its user that does not grow without bound.
func TestQueryHistory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	open := func() *queryHistory {
		t.Helper()
		h, err := openHistory()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.close)
		return h
	}
	first, other := open(), open()
	first.Add("up")
	first.Add("up") // again
	first.Add("")
	other.Add("page_views")
	first.Add("\x1b[2J") // would clear the screen when it is recalled
	if h := open(); h.Len() != 2 || h.At(0) != "page_views" || h.At(1) != "up" {
		t.Errorf("two sessions leave %q", h.lines)
	}

	path := filepath.Join(dir, "freshet", "query_history")
	for i := range historyEntries + 5 {
		other.Add(fmt.Sprint("up == ", i))
	}
	if h := open(); h.Len() != historyEntries || h.At(0) != fmt.Sprint("up == ", historyEntries+4) {
		t.Errorf("the history has %d lines, the newest %q; want %d", h.Len(), h.At(0), historyEntries)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n != historyEntries {
		t.Errorf("the file has %d lines after it was opened, want %d", n, historyEntries)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v (%v), want 0600", info.Mode(), err)
	}
}

// Without a directory for state, or with a relative one, which the XDG specification forbids, the history is at home.
func TestQueryHistoryAtHome(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	for _, state := range []string{"", "state"} {
		t.Setenv("XDG_STATE_HOME", state)
		if got, err := historyFile(); err != nil || got != "/home/someone/.local/state/freshet/query_history" {
			t.Errorf("XDG_STATE_HOME=%s: got %s, error %v", state, got, err)
		}
	}
}

// A directory that cannot be written costs the history only.
func TestQueryHistoryWithoutADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", file)
	h, err := openHistory()
	if err == nil {
		t.Error("no error for a directory that is a file")
	}
	h.Add("up")
	if h.Len() != 1 {
		t.Errorf("the session remembers %q, want up", h.lines)
	}
}
