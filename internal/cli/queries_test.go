package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/querycost"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func someQueries(now time.Time) *answer.Queries {
	return &answer.Queries{
		Tenant: "default", All: true, Span: 3600, Sort: querycost.ByTime, Node: "a",
		Nodes: []answer.QueryNode{{Name: "a"}, {Name: "b", Error: "the node does not answer"}},
		Top: querycost.Top{
			Active: []querycost.Active{
				{Tenant: "default", Node: "a", Query: "sum(rate(x{pod=~\"a.*\"}[5m]))\n  / sum(y)", Begun: float64(now.Unix() - 12),
					Range: 86400, Step: 60, Steps: 1441, Asker: "10.0.0.9 (Grafana/12.1), dashboard ab12, panel 3"},
				{Tenant: "shop", Node: "a", Query: "series up", Begun: float64(now.Unix()), Waiting: true, Asker: "curl/8"},
			},
			MoreActive: 3,
			Queries: []querycost.Row{
				{Tenant: "default", Query: "sum(rate(x{pod=~?}[?])) / sum(y)", Queries: 1234, Failed: 2, Running: 320.5, Waited: 12,
					Longest: 7.25, Samples: 98_765_432, Askers: []string{"10.0.0.9 (Grafana/12.1)", "curl/8"}},
				{Tenant: "shop", Query: strings.Repeat("very", 40), Queries: 1, Running: 0.0312, Longest: 0.0312, Samples: 10},
			},
			Others: querycost.Rest{Expressions: 7, Queries: 9000, Running: 1.5, Samples: 17, Dropped: 2},
		},
	}
}

// The golden file shows what users see.
func TestQueriesPage(t *testing.T) {
	now := time.Unix(1_795_167_065, 0)
	got, err := queriesPage(someQueries(now), now)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "queries.txt", got)

	got, err = queriesPage(&answer.Queries{Tenant: "default"}, now)
	if err != nil || !strings.Contains(got, "No query runs now") || !strings.Contains(got, "No query was asked") {
		t.Errorf("without queries: %q, %v", got, err)
	}
}

// The command asks for what its flags say, and passes the answer on.
func TestQueriesCommand(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("limit") != "5" || r.FormValue("local") != "true" || r.FormValue("sort") != "longest" {
			t.Errorf("the command asked for %s", r.URL)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": someQueries(time.Now())})
	}))
	defer web.Close()
	code, stdout, stderr := freshet(t, "queries", "--json", "--local", "--limit", "5", "--sort", "longest",
		"--server", web.URL)
	var got struct{ Data answer.Queries }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != command.OK || len(got.Data.Queries) != 2 {
		t.Errorf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	for _, bad := range []string{"--limit=1000", "--sort=cost"} {
		if code, _, stderr := freshet(t, "queries", bad); code == command.OK || !strings.Contains(stderr, bad[2:6]) {
			t.Errorf("%s: exit code %d, %s", bad, code, stderr)
		}
	}
}
