package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/querycost"
)

// The answer has the queries that were asked over HTTP, the costliest first. Those that differ only in values are one.
// Freshet's own queries, such as those of rules, are not among them. A command is an asker by its name and version.
func TestQueries(t *testing.T) {
	s := running(t, `
data_dir: `+filepath.Join(t.TempDir(), "data")+`
http: {listen: "127.0.0.1:0"}
self: {probe: false, metrics: false}
dogstatsd: {udp: "127.0.0.1:0", unixgram: "", unix: ""}
`)
	for _, expr := range []string{"vector(1)", "vector(2)"} {
		var value any
		s.data(t, "/api/v1/query?query="+expr, &value)
	}
	command := apiclient.Server{Address: s.http[0].addr()}
	if _, _, err := command.Ask(t.Context(), "/api/v1/query", url.Values{"query": {"up"}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.newest(t.Context(), "vector(3)+1"); err != nil {
		t.Fatal(err)
	}
	var a answer.Queries
	s.data(t, "/api/v1/status/queries?sort=count", &a)
	if a.Span != 3600 || !a.All || a.Tenant != "default" || a.Sort != querycost.ByCount || len(a.Active) != 0 {
		t.Errorf("%+v", a)
	}
	if q := a.Queries; len(q) != 2 || q[0].Query != "vector(?)" || q[0].Queries != 2 || q[0].Tenant != "default" ||
		q[1].Query != "up" || !strings.Contains(fmt.Sprint(q[1].Askers), "(freshet/") {
		t.Errorf("%+v", q)
	}
	a = answer.Queries{}
	s.data(t, "/api/v1/status/queries?limit=1&sort=count", &a)
	if len(a.Queries) != 1 || a.Others.Expressions != 1 || a.Others.Queries != 1 {
		t.Errorf("with a limit of 1: %+v", a)
	}
	for _, bad := range []string{"sort=cost", "limit=0", "local=maybe"} {
		resp, text := s.answer(t, http.MethodGet, "/api/v1/status/queries?"+bad, "", "", false)
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s is answered with %s: %s", bad, resp.Status, text)
		}
	}
}

// The list is of all nodes, and says which of them do not answer.
func TestSumOfQueries(t *testing.T) {
	of := func(node string, running float64) answer.Queries {
		return answer.Queries{Node: node, Top: querycost.Top{
			Active:  []querycost.Active{{Tenant: "default", Node: node, Query: "x", Begun: running}},
			Queries: []querycost.Row{{Tenant: "default", Query: "up", Queries: 1, Running: running, Longest: running}},
			Others:  querycost.Rest{Expressions: 1, Queries: 10},
		}}
	}
	b, err := json.Marshal(of("b", 5))
	if err != nil {
		t.Fatal(err)
	}
	sum := of("a", 2)
	sumQueries(&sum, []toldFigures{{node: "c", err: errors.New("too old")}, {node: "b", json: b}}, true)
	sum.Cut(querycost.ByTime, 10)
	if len(sum.Queries) != 1 || sum.Queries[0].Running != 7 || sum.Queries[0].Longest != 5 || sum.Others.Queries != 20 ||
		len(sum.Active) != 2 {
		t.Errorf("%+v", sum)
	}
	if nodes := fmt.Sprint(sum.Nodes); !sum.Short || nodes != "[{a } {b } {c too old}]" {
		t.Errorf("%s, short %t", nodes, sum.Short)
	}
}
