package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/settings"
)

// The server's own flags and environment override the file in a request.
func TestDiffConsidersFlags(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	from := settings.NewSource(flags)
	if err := flags.Parse([]string{"--log-level=warn"}); err != nil {
		t.Fatal(err)
	}
	c, err := from.Load()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{config: c}
	s.current.Store(&c)
	s.reloader = &reloader{source: from}
	web := httptest.NewServer(http.HandlerFunc(s.serveDiff))
	defer web.Close()
	for _, tt := range []struct {
		name, text     string
		code           int
		stdout, stderr string
	}{
		{"nothing", "log_level: debug\n", command.OK, "", "nothing would change\n"},
		{
			"changes", "log_level: debug\nquery: {timeout: 1m}\nmapping: {rules: [{match: a.*}]}\n", command.Failure,
			"mapping.rules[0]: added {match: a.*}  (on reload)\nquery.timeout: 2m -> 1m  (needs a restart)\n", "",
		},
		{"problems", "query: {timeuot: 1m}\n", command.Usage, "",
			"freshet: FILE:1: query.timeuot = 1m: is not a key; did you mean query.timeout?\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := writeFile(t, tt.text)
			code, stdout, stderr := freshet(t, "diff", file, "--server", web.URL)
			if stderr = strings.ReplaceAll(stderr, file, "FILE"); code != tt.code || stdout != tt.stdout || stderr != tt.stderr {
				t.Errorf("got the exit code %d and\n%s%s\nwant %d and\n%s%s",
					code, stdout, stderr, tt.code, tt.stdout, tt.stderr)
			}
			code, stdout, _ = freshet(t, "diff", "--json", file, "--server", web.URL)
			var d answer.Difference
			if err := json.Unmarshal([]byte(stdout), &d); err != nil || code != tt.code {
				t.Errorf("--json: exit code %d, want %d; error %v: %s", code, tt.code, err, stdout)
			}
		})
	}
	if code, _, stderr := freshet(t, "diff", writeFile(t, ""), "--server", "127.0.0.1:1"); code != command.Usage ||
		!strings.HasPrefix(stderr, "freshet: diff: ask ") {
		t.Errorf("without a server: exit code %d, errors %q; want %d and a failed request", code, stderr, command.Usage)
	}
	code, _, stderr := freshet(t, "diff", writeFile(t, strings.Repeat("#", maxConfigFile+1)), "--server", web.URL)
	if code != command.Usage || !strings.Contains(stderr, "too large") {
		t.Errorf("with a file that is too large: exit code %d, errors %q; want %d, \"too large\"",
			code, stderr, command.Usage)
	}
}
