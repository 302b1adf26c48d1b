package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// A user who mistypes a name must not be told that all is well. Numbers have the right noun.
func TestRulesCheck(t *testing.T) {
	file := fileOf(t, "groups: [{name: g, rules: [{record: a, expr: b}, {alert: C, expr: a > 1}]}]")
	code, stdout, stderr := freshet(t, "rules", "check", file)
	if want := "fine: 1 file, 1 group, 2 rules\n"; code != command.OK || stdout != want || stderr != "" {
		t.Errorf("exit code %d, printed %q, errors %q; want %q", code, stdout, stderr, want)
	}
	nothing := filepath.Join(filepath.Dir(file), "nope*.yaml")
	server, _ := answering(t, http.StatusOK, `{"status":"success","data":{"groups":[]}}`)
	for _, args := range [][]string{
		{"rules", "check", nothing}, {"rules", "check", file, nothing}, {"rules", "diff", nothing, "--server", server},
		{"rules", "backtest", "--rule", nothing, "--from", "1700000000", "--server", server},
	} {
		if code, stdout, stderr := freshet(t, args...); code != command.Usage || stdout != "" ||
			!strings.Contains(stderr, nothing+": matches no file") {
			t.Errorf("%s: exit code %d, printed %q, errors %q; want 2, and the glob that matches no file", args, code, stdout,
				stderr)
		}
	}
}

func TestRulesAndWhatTheyWaitFor(t *testing.T) {
	var all ruleGroups
	if err := json.Unmarshal([]byte(`{"groups": [{"name": "g", "file": "f", "rules": [
		{"name": "Down", "state": "firing", "health": "ok"},
		{"name": "sum", "health": "err", "lastError": "no\u001b[2J store"}]}]}`), &all); err != nil {
		t.Fatal(err)
	}
	state := answer.Rules{
		Watermark: 1_700_000_000_000,
		Late:      []answer.LateSender{{Sender: "10.0.0.1", Text: "sends nothing"}, {Text: "windows wait for the journal"}},
		Gone:      []answer.LateSender{{Sender: "10.0.0.2", Text: "sends nothing"}},
		Waiting:   []answer.WaitingGroup{{Name: "g", Stale: true}},
	}
	var out bytes.Buffer
	if err := writeRules(&out, all, state); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Down", "firing", "recording", "watermark ", "late: 10.0.0.1 sends nothing since ",
		"late: windows wait for the journal since ", "group g waits since ", ", stale\n",
		"gone: 10.0.0.2 sends nothing since "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("a rule's error can control the terminal")
	}
	out.Reset()
	if err := writeRules(&out, ruleGroups{}, answer.Rules{}); err != nil || !strings.HasPrefix(out.String(), "no rules") {
		t.Errorf("without rules: %s, error %v", &out, err)
	}
}
