package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// The golden files show what users see.
func TestCardinality(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := top.ViewCardinality{Day: "2026-11-28", Series: 15_000, Others: 70,
			Counts: []top.NameCount{{Name: "http_requests_total", Series: 12_000}, {Name: "up", Series: 600}}}
		if metric := r.FormValue("metric"); metric != "" {
			c = top.ViewCardinality{Day: r.FormValue("day"), Metric: metric, Label: r.FormValue("label"), Series: 12_000,
				Short: "there was no time for more series than these in 5s", Others: 598,
				Labels: []top.LabelCost{{Name: "pod", Values: 600, Series: 12_000, Saved: 11_980},
					{Name: "code", Values: 5, Series: 12_000, Saved: 9_600}},
				Values: []top.NameCount{{Name: "web-\x1b[31m", Series: 20}, {Name: "web-2", Series: 20}}}
		}
		if r.FormValue("days") == "4" {
			c.Short = "on 2026-11-26: there was no time for more series than these in 5s"
			c.Since, c.Grown = "2026-11-25", []top.NameGrowth{{Name: "http_requests_total", Was: 9_000, Series: 12_000},
				{Name: "new", Series: 3}}
			c.Days = []top.DayCount{{Day: "2026-11-28", Series: 15_000}, {Day: "2026-11-27", Series: 15_300},
				{Day: "2026-11-26", Series: 17, Short: "there was no time for more series than these in 5s"},
				{Day: "2026-11-25", Series: 8_000}}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": c})
	}))
	defer web.Close()
	code, metrics, stderr := freshet(t, "cardinality", "--server", web.URL)
	if code != command.OK {
		t.Fatal(stderr)
	}
	golden(t, "cardinality.txt", metrics)
	code, days, stderr := freshet(t, "cardinality", "--days", "4", "--server", web.URL)
	if code != command.OK {
		t.Fatal(stderr)
	}
	golden(t, "cardinality-days.txt", days)
	code, labels, stderr := freshet(t, "cardinality", "http_requests_total", "--label", "pod", "--day", "2026-11-27",
		"--server", web.URL)
	if code != command.OK {
		t.Fatal(stderr)
	}
	golden(t, "cardinality-label.txt", labels)
	code, text, _ := freshet(t, "cardinality", "--json", "--server", web.URL)
	if code != command.OK || !strings.Contains(text, `"series": 15000`) && !strings.Contains(text, `"series":15000`) {
		t.Errorf("exit code %d: %s", code, text)
	}
	if code, _, stderr := freshet(t, "cardinality", "--label", "pod"); code == command.OK ||
		!strings.Contains(stderr, "needs a metric") {
		t.Errorf("a label without a metric: exit code %d, %s", code, stderr)
	}
}
