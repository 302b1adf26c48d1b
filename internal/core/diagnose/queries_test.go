package diagnose

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/querycost"
	"github.com/freshet-io/freshet/internal/core/record"
)

// asked returns the queries of a minute: an expensive panel and a cheap one.
func asked(t *testing.T) (rows []querycost.Row) {
	t.Helper()
	text := `[
		{"id":"q1","tenant":"b","query":"up","queries":600,"running_seconds":0.6,"waited_seconds":60,"samples":600,"series":600,"askers":["10.0.0.2 (curl/8)"]},
		{"id":"q7","tenant":"shop","query":"sum by (pod) (rate(requests_total{job=?}[?]))","queries":120,"running_seconds":54,"waited_seconds":240,"samples":1200000000,"series":2400000,
		 "longest_seconds":0.9,"example":"sum by (pod) (rate(requests_total{job=\"x\"}[5m]))","range_seconds":21600,"step_seconds":15,"active":3,
		 "askers":["10.0.0.9 (Grafana/12.1), dashboard ab12, panel 3","10.0.0.8 (Grafana/12.1), dashboard ab12, panel 4"]}]`
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// ofQuery returns a stack with the given seconds of processor time for a query.
func ofQuery(id string, seconds float64) sampled {
	s := cpu(seconds, storeModule+"promql.(*evaluator).eval", "main.serve")
	s.query = id
	return s
}

func TestQueries(t *testing.T) {
	waiting := func(a, b int) string {
		return fmt.Sprintf("freshet_query_waiting{lane=\"long\",tenant=\"shop\"} "+
			"%d\nfreshet_query_waiting{lane=\"short\",tenant=\"b\"} %d\n", a, b)
	}
	for _, c := range []struct {
		name   string
		m      *moment
		want   int
		title  string
		shows  []string
		hidden []string
	}{
		{"dashboards that take the processors", changed(func(m *moment) {
			m.queries, m.cpu = asked(t), append(m.cpu, ofQuery("q7", 6), ofQuery("q1", .5))
			m.begin, m.end = text(t, waiting(10, 0)), text(t, waiting(14, 0))
		}), clearly,
			"Queries take 1.3 of 2 processors: tenant shop asks sum by (pod) (rate(requests_total{job=?}[?])), " +
				"from 10.0.0.9 (Grafana/12.1), dashboard ab12, panel 3, which takes 1.2 of a core", []string{
				"1.2 of a core, 92 % of what queries take",
				"in the last minute 120 queries; on average each took 450ms after 2s of waiting, " +
					"and read 20,000 series and 10,000,000 samples; 0 failed, and 3 are under way",
				`such as sum by (pod) (rate(requests_total{job="x"}[5m])), over 6h0m0s in steps of 15s, which took 900ms`,
				"asked by 10.0.0.8 (Grafana/12.1), dashboard ab12, panel 4",
				"tenant shop: on average 12 of its queries wait", "tenant b: up",
			}, nil},
		{"full processors and no waiting query: writes suffer", changed(func(m *moment) {
			m.queries, m.cpu = asked(t), append(m.cpu, ofQuery("q7", 7.5))
		}), clearly, "tenant shop asks", nil, []string{"tenant b"}},
		{"other processes have the rest of the machine, and goroutines wait", changed(func(m *moment) {
			m.queries, m.cpu = asked(t), append(m.cpu, ofQuery("q7", 5))
			m.Spreads["/sched/latencies:seconds"] = record.Spread{P99: .1}
			m.trace.runnable = 60
		}), clearly, "tenant shop asks", nil, nil},
		{"other processes have nearly all of the machine, and queries the rest", changed(func(m *moment) {
			m.queries, m.cpu = asked(t), append(m.cpu, ofQuery("q7", 1.9), ofQuery("q1", 1))
			m.Spreads["/sched/latencies:seconds"] = record.Spread{P99: .1}
			m.trace.runnable = 60
		}), listed, "tenant shop asks", nil, nil},
		{"queries that take idle processors", changed(func(m *moment) {
			m.queries, m.cpu = asked(t), append(m.cpu, ofQuery("q7", 4))
		}), fine, "", nil, nil},
		{"full processors, and queries take little of them", changed(func(m *moment) {
			m.queries, m.cpu = asked(t), append(m.cpu, ofQuery("q7", 1), cpu(8, "main.busy"))
		}), fine, "", nil, nil},
		{"more queries than have turns, which wait for the disk", changed(func(m *moment) {
			m.queries = asked(t)
			m.begin, m.end = text(t, waiting(10, 1)), text(t, waiting(14, 1))
		}), clearly, "Queries wait for their turn: 13 on average: tenant shop asks",
			[]string{"tenant shop: on average 12 of its queries wait", "tenant b: on average 1 of its"}, nil},
		{"waits that have ended", changed(func(m *moment) {
			m.begin, m.end = text(t,
				"# TYPE freshet_query_wait_seconds histogram\nfreshet_query_wait_seconds_bucket{lane=\"short\",le=\"+Inf\"} "+
					"1\nfreshet_query_wait_seconds_sum{lane=\"short\"} 10\nfreshet_query_wait_seconds_count{lane=\"short\"} 1\n"),
				text(t,
					"# TYPE freshet_query_wait_seconds histogram\nfreshet_query_wait_seconds_bucket{lane=\"short\",le=\"+Inf\"} "+
						"90\nfreshet_query_wait_seconds_sum{lane=\"short\"} 50\nfreshet_query_wait_seconds_count{lane=\"short\"} 90\n")
		}), clearly, "Queries wait for their turn: 8 on average", nil, nil},
		{"opening a dashboard", changed(func(m *moment) {
			m.queries = asked(t)
			m.end = text(t, waiting(4, 0))
		}), fine, "", nil, nil},
		{"profiled queries that the table has forgotten",
			changed(func(m *moment) { m.cpu = append(m.cpu, ofQuery("q9", 8)) }), clearly, "queries that are not listed", nil,
			nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := queries(c.m)
			got := fine
			if f.Score >= Listed {
				got = listed
			}
			if f.Score >= Clear {
				got = clearly
			}
			if got != c.want || !strings.Contains(f.Title, c.title) {
				t.Errorf("score %.2f: %s\n%s\n%s", f.Score, f.Title, f.Because, f.fine)
			}
			shown := fmt.Sprintf("%+v", f.Evidence)
			for _, text := range c.shows {
				if !strings.Contains(shown, text) {
					t.Errorf("%q is not in %s", text, shown)
				}
			}
			for _, text := range c.hidden {
				if strings.Contains(shown, text) {
					t.Errorf("%q is in %s", text, shown)
				}
			}
			if f.Name == "" || f.Title == "" || f.Because == "" || f.Next == "" || f.fine == "" {
				t.Errorf("the finding lacks a text: %+v", f)
			}
		})
	}
}

// Queries that take the processors cause starvation and garbage, so the diagnosis names the
// queries.
func TestQueriesAreTheCause(t *testing.T) {
	causes := parseCauses(t, "starvation 1 garbage 0.9 queries 0.7")
	rank(causes)
	if got := causesText(causes); got != "queries 0.7 starvation 0.42 garbage 0.42" {
		t.Error(got)
	}
}
