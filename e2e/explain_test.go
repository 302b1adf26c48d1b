package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// explanation is the server's explanation of a datagram, as far as these tests read it.
type explanation struct {
	Tenant  string
	Arrives []string
	Lines   []struct {
		WellFormed bool `json:"well_formed"`
		Becomes    struct {
			Kind, Query string
			Limits      []string
		}
		Warnings []string
	}
}

// The server explains a line with what it knows: the kind of each name, and the sockets on which lines
// arrive. An explanation changes nothing: a name belongs to the first line that is really sent, not to
// a line that was only explained.
func TestExplain(t *testing.T) {
	p := start(t, dataDir(t), "--dogstatsd-host-label=false")
	ask := func(line string) explanation {
		t.Helper()
		var e explanation
		if err := p.ask("/api/v1/status/explain", url.Values{"line": {line}}, &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	if e := ask("latency:1|g"); e.Lines[0].Becomes.Query != "latency" || len(e.Lines[0].Warnings) > 0 ||
		!strings.Contains(strings.Join(e.Arrives, " "), p.UDP) {
		t.Errorf("before anything was sent, the explanation is %+v, want the series named latency, and no warning", e)
	}

	sendOne(t, p, "latency:1|c")
	eventually(t, 30*time.Second, "the counter owns the name", func() error {
		e := ask("latency:1|g")
		if got := e.Lines[0]; got.Becomes.Query != "latency_gauge" || len(got.Warnings) != 1 {
			return fmt.Errorf("freshet explain says %+v, want the series latency_gauge with a warning", e)
		}
		return nil
	})

	if limits := ask("latency:1|c").Lines[0].Becomes.Limits; len(limits) != 3 ||
		!strings.HasPrefix(limits[0], "series of the metric: 1 of ") {
		t.Errorf("limits: %q", limits)
	}

	// A query finds the line in the series that the explanation named.
	query := ask("latency:7|g|#env:prod").Lines[0].Becomes.Query
	sendOne(t, p, "latency:7|g|#env:prod")
	eventually(t, 30*time.Second, query, func() error {
		if v, err := p.value(query); err != nil || v != 7 {
			return fmt.Errorf("the value of the series is %v, want 7; error %v", v, err)
		}
		return nil
	})

	resp, err := http.Post("http://"+p.HTTP+"/api/v1/status/explain?tenant=other", "",
		strings.NewReader("latency:1|g\nx:y|c"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var a struct{ Data explanation }
	if err := json.Unmarshal(body, &a); err != nil || len(a.Data.Lines) != 2 || a.Data.Tenant != "other" ||
		a.Data.Lines[0].Becomes.Query != "latency" || a.Data.Lines[1].WellFormed {
		t.Errorf("wrong answer for another tenant: error %v\n%s", err, body)
	}

	out, err := exec.CommandContext(t.Context(), freshet, "explain", "latency:1|g", "--server", p.HTTP).Output()
	if err != nil || !strings.Contains(string(out), "latency_gauge") {
		t.Errorf("freshet explain: %v\n%s", err, out)
	}
}
