package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/lib/command"
)

// A range that ends now includes the present time. So a query finds a series that begins after the last
// multiple of the step.
func TestARangeEndsNow(t *testing.T) {
	s := withoutSockets(t)
	symbols := writev2.NewSymbolTable()
	series := writev2.TimeSeries{
		LabelsRefs: []uint32{symbols.Symbolize("__name__"), symbols.Symbolize("young")},
		Samples:    []writev2.Sample{{Timestamp: time.Now().UnixMilli(), Value: 7}},
	}
	if resp, text := s.writeV2(t, symbols.Symbols(), series); resp.StatusCode != http.StatusNoContent {
		t.Fatal(resp.Status, text)
	}
	for _, args := range [][]string{
		{"--range", "7d"}, {"--range", "7d", "--step", "50h"}, {"--range", "1d"}, {"--range", "5m", "--step", "1h"},
	} {
		code, stdout, stderr := freshet(t, append([]string{"query", "young", "--server", s.http[0].addr()}, args...)...)
		if code != command.OK || stderr != "" || !strings.Contains(stdout, "young") {
			t.Errorf("%v: exit code %d, want 0: %s\n%s", args, code, stderr, stdout)
		}
	}
}

// The commands about rules ask two routes. Freshet's own rules have both below /self, so that
// `freshet alerts --server http://HOST:PORT/self` shows its own alerts.
func TestOwnRulesAreBelowSelf(t *testing.T) {
	dir := t.TempDir()
	of := func(name string) string {
		return writeIn(t, dir, name+".yaml", "groups: [{name: g, rules: [{alert: "+name+", expr: vector(1)}]}]")
	}
	own, others := of("OwnAlert"), of("OtherAlert")
	s := running(t, fmt.Sprintf(`
data_dir: %s
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "", unixgram: "", unix: ""}
rules: {files: [%s], tenants: {freshet: {files: [%s]}}}
`, filepath.Join(dir, "data"), others, own))
	for address, want := range map[string]string{"/self": "OwnAlert", "": "OtherAlert"} {
		server := "http://" + s.http[0].addr() + address
		code, stdout, stderr := freshet(t, "rules", "--server", server)
		if code != command.OK || stderr != "" || !strings.Contains(stdout, want) || strings.Count(stdout, "Alert") != 1 {
			t.Errorf("freshet rules --server %s: exit code %d, errors %q, want 0 and %s alone:\n%s", server, code, stderr,
				want, stdout)
		}
		if code, _, stderr := freshet(t, "alerts", "--server", server); code != command.OK || stderr != "" {
			t.Errorf("freshet alerts --server %s: exit code %d, errors %q, want 0", server, code, stderr)
		}
		if code, _, stderr := freshet(t, "rules", "diff", own, "--server", server); address == "/self" &&
			(code != command.OK || !strings.Contains(stderr, "nothing would change")) {
			t.Errorf("freshet rules diff --server %s: exit code %d, errors %q, want 0", server, code, stderr)
		}
	}
	_, text := s.answer(t, http.MethodGet, "/self/api/v1/status/rules", "", "", false)
	if !strings.Contains(text, `"tenant":"freshet"`) {
		t.Errorf("the answer is about another tenant: %s", text)
	}
}

// The caret stands below the place where the parser of a real server found the error, even after
// wide or unprintable characters and earlier lines. What to write instead follows.
func TestQueryPointsAtTheError(t *testing.T) {
	s := running(t, fmt.Sprintf(`
data_dir: %s
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "", unixgram: "", unix: ""}
`, filepath.Join(t.TempDir(), "data")))
	const hint = "\nrate reads a window of time: write its length behind the selector, such as page_views[5m]"
	for _, tt := range []struct{ name, expr, want string }{
		{"a word", "sum(rate(a[5m]) by", "sum(rate(a[5m]) by\n                ^"},
		{"the end", "sum(", "sum(\n    ^"},
		{"a type", "1 + rate(a)", "1 + rate(a)\n         ^" + hint},
		{"a later line", "sum(a)\n  + rate(b)\n  + c", "  + rate(b)\n         ^" + hint},
		{"wide text", `{a="日本", b!}`, `{a="日本", b!}` + "\n            ^"},
		{"a tab", "a +\trate(b)", `a +\x09rate(b)` + "\n            ^" + hint},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, args := range [][]string{nil, {"--range", "1h"}} {
				code, stdout, stderr := freshet(t, append([]string{"query", tt.expr, "--server", s.http[0].addr()}, args...)...)
				_, caret, _ := strings.Cut(strings.ReplaceAll(stderr, "freshet: ", ""), "\n")
				want := "  " + strings.ReplaceAll(tt.want, "\n", "\n  ") + "\n"
				if code != command.Usage || stdout != "" || caret != want {
					t.Errorf("%q: exit code %d, output %q\n%s\nwant these lines below the error\n%s",
						args, code, stdout, stderr, want)
				}
			}
		})
	}
}

// The exit code distinguishes a mistake in a query from a query that the server cannot answer. So a
// script knows whether repeating the command can help.
func TestExitCodesOfQuestions(t *testing.T) {
	s := running(t, `
data_dir: `+t.TempDir()+`
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "127.0.0.1:0", unixgram: "", unix: ""}
`)
	for _, c := range []struct {
		why  string
		args []string
		code int
		text string
	}{
		{"it matches nothing", []string{"query", "nothing"}, command.OK, "no series match"},
		{"the query is cut off", []string{"query", "sum("}, command.Usage, "1:5: parse error"},
		{"an unknown function", []string{"query", "mean(up)"}, command.Usage, `unknown function with name "mean"`},
		{"no range vector", []string{"query", "rate(up)", "--range", "1h"}, command.Usage, "expected type range vector"},
		{"too many points", []string{"query", "up", "--range", "30d", "--step", "1s"}, command.Usage, "11,000 points"},
		{"labels that match twice",
			[]string{"query", `label_replace(vector(1), "a", "1", "", "")` +
				` + on () (vector(1) or label_replace(vector(1), "a", "1", "", ""))`},
			command.Failure, "execution: "},
		{"an unknown socket", []string{"tail", "--listener", "udp://127.0.0.1:1"}, command.Usage, "has no such socket"},
		{"an unknown record", []string{"diagnose", "--record", "none"}, command.Failure, "there is no such record"},
	} {
		code, stdout, stderr := freshet(t, append(c.args, "--server", s.http[0].addr())...)
		if code != c.code || !strings.Contains(stderr, c.text) {
			t.Errorf("%s: exit code %d, want %d: %s%s", c.why, code, c.code, stdout, stderr)
		}
	}
}
