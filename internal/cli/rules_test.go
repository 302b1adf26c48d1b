package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/answer"
)

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
