package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/answer"
)

func TestAlertsOfAServer(t *testing.T) {
	var all activeAlerts
	if err := json.Unmarshal([]byte(`{"alerts": [
		{"labels": {"alertname": "Slow", "shop": "north"}, "annotations": {"summary": "late\u001b[2J"}, "state": "pending",
			"activeAt": "2026-01-02T03:04:05.678Z", "value": "3.000000001e+00"},
		{"labels": {"alertname": "Down"}, "annotations": {}, "state": "firing", "activeAt": "2026-01-02T03:05:05Z",
			"value": "NaN"}]}`), &all); err != nil {
		t.Fatal(err)
	}
	text, err := alertsPage(all.Alerts, answer.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text, "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[1], "firing") || !strings.Contains(lines[1], "NaN") ||
		!strings.Contains(lines[2], `{shop="north"}`) || !strings.Contains(lines[2], " 3 ") {
		t.Errorf("want the alert that fires, then the pending one with its labels and a short value:\n%s", text)
	}
	if strings.Contains(text, "\x1b") {
		t.Error("an alert can control the terminal")
	}
	text, err = alertsPage(nil, answer.Rules{Waiting: []answer.WaitingGroup{{Stale: true}}})
	if err != nil || !strings.HasPrefix(text, "no alert") || !strings.Contains(text, "rules wait for late data") {
		t.Errorf("without alerts, but with late data: %s, error %v", text, err)
	}
}
