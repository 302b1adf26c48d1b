package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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

// A reload reads the rule files again, so a comparison with the file in force shows what has changed in them, and a
// mistake that a reload would refuse.
func TestDiffComparesRuleFiles(t *testing.T) {
	dir := t.TempDir()
	const groups = `groups:
- {name: kept, labels: {a: b}, rules: [{record: r, expr: sum(a), labels: {c: d, e: f}}]}
- {name: changed, rules: [{alert: A, expr: a > 1, for: 5m}]}
- {name: removed, rules: [{record: s, expr: a}]}
`
	file := writeIn(t, dir, "rules.yaml", groups)
	ofTeam := writeIn(t, dir, "team.yaml", "groups: [{name: t, rules: [{record: r, expr: a}]}]")
	config := writeIn(t, dir, "freshet.yaml", fmt.Sprintf(`
data_dir: %s
http: {listen: "127.0.0.1:0"}
distributor: {otlp: {grpc_listen: "127.0.0.1:0"}} # as every test server has it
dogstatsd: {udp: "", unixgram: "", unix: ""}
rules: {files: [%s], tenants: {team-a: {files: [%s]}}}
`, filepath.Join(dir, "data"), file, ofTeam))
	s := runningFrom(t, config)
	differs := func(why string, code int, stdout, stderr string) {
		t.Helper()
		gotCode, gotOut, gotErr := freshet(t, "diff", config, "--server", "http://"+s.http[0].addr())
		gotOut, gotErr = strings.ReplaceAll(gotOut, dir+"/", ""), strings.ReplaceAll(gotErr, dir+"/", "")
		if gotCode != code || gotOut != stdout || !strings.HasPrefix(gotErr, stderr) || (gotErr == "") != (stderr == "") {
			t.Errorf("%s: exit code %d and\n%s%swant %d and\n%s%s", why, gotCode, gotOut, gotErr, code, stdout, stderr)
		}
	}
	const nothing = "nothing would change\n"
	differs("the files in force", command.OK, "", nothing)
	writeIn(t, dir, "rules.yaml", strings.NewReplacer("sum(a)", "'sum( a )'", "c: d, e: f", "e: f, c: d").Replace(groups))
	differs("only written otherwise", command.OK, "", nothing)
	others := strings.NewReplacer("for: 5m", "for: 6m", "name: removed", "name: added").Replace(groups)
	writeIn(t, dir, "rules.yaml", others)
	writeIn(t, dir, "team.yaml", "groups: [{name: t, rules: [{record: r, expr: b}]}]")
	differs("changes", command.Failure, "rules.yaml: group added: added  (on reload)\n"+
		"rules.yaml: group changed: changed  (on reload)\nrules.yaml: group removed: removed  (on reload)\n"+
		"team.yaml: group t of tenant team-a: changed  (on reload)\n", "")
	resp, text := s.answer(t, http.MethodPost, "/-/reload", "", "", false)
	text = strings.ReplaceAll(text, dir+"/", "")
	if want := "rules.yaml: group added: added\nrules.yaml: group changed: changed\nrules.yaml: group removed: removed\n" +
		"team.yaml: group t of tenant team-a: changed\n"; resp.StatusCode != http.StatusOK || text != want {
		t.Fatalf("the reload answers %s and\n%swant\n%s", resp.Status, text, want)
	}
	differs("after a reload", command.OK, "", nothing)
	writeIn(t, dir, "rules.yaml", "groups: [{name: g, rules: [{record: r, expr: sum(}]}]")
	differs("a broken file", command.Usage, "", "freshet: rules.yaml: 1:")
	if resp, text := s.answer(t, http.MethodPost, "/-/reload", "", "", false); resp.StatusCode != http.StatusBadRequest {
		t.Error("a reload takes the broken file", resp.Status, text)
	}
}
