package server

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"slices"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/diagnose"
	"github.com/freshet-io/freshet/internal/core/growth"
	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/role/collector"
)

// serveTop answers with the busiest metrics and senders of a tenant. The server counts them only for a
// while after a request.
func (s *server) serveTop(w http.ResponseWriter, r *http.Request) {
	respond := func(status int, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // fails if the client is gone
	}
	limit, err := top.ParseRows(r.FormValue("limit"))
	if err != nil {
		respond(http.StatusBadRequest, map[string]any{"status": "error", "errorType": "bad_data", "error": err.Error()})
		return
	}
	name := tenantOf(r)
	busiest, err := s.collector.Top(r.Context(), name, limit, collector.TopLease)
	if err != nil {
		return // the client is gone
	}
	busiest.Labels = s.collector.TopLabels(name, limit)
	a := answer.TopAll{
		View: busiest, Node: s.config.Cluster.Node, Requests: s.requestSenders()[name], Growing: s.newByRequests(name),
	}
	a.Requests = append([]answer.TopRequester{}, a.Requests[:min(limit, len(a.Requests))]...)
	a.Growing = a.Growing[:min(limit, len(a.Growing))]
	respond(http.StatusOK, map[string]any{"status": "success", "data": a})
}

// requestSenders returns the senders of remote write and OTLP by tenant, most samples first.
func (s *server) requestSenders() map[string][]answer.TopRequester {
	all := map[string][]answer.TopRequester{}
	if s.receiver == nil {
		return all
	}
	rows, _ := s.receiver.Sent(math.MaxInt)
	for _, r := range rows {
		row := answer.TopRequester{
			Input: r.Input, Name: r.Token, Agent: r.Agent, Address: r.Address(),
			Requests: float64(r.Count) / top.Span, Samples: float64(r.Samples) / top.Span, Bytes: float64(r.Bytes) / top.Span,
		}
		all[r.Tenant] = append(all[r.Tenant], row)
	}
	for _, rows := range all {
		slices.SortStableFunc(rows, func(a, b answer.TopRequester) int { return cmp.Compare(b.Samples, a.Samples) })
	}
	return all
}

// newByRequests returns a tenant's metrics to which remote write and OTLP have added series.
func (s *server) newByRequests(tenant string) []answer.TopGrowing {
	all := []answer.TopGrowing{}
	if s.stores == nil {
		return all
	}
	for _, t := range s.stores.Growth() {
		if t.Tenant != tenant {
			continue
		}
		for _, m := range t.Metrics {
			if m.Store == tsdb.Raw {
				all = append(all, newGrowingMetric(m))
			}
		}
	}
	return all
}

func newGrowingMetric(m growth.Metric) answer.TopGrowing {
	g := answer.TopGrowing{Metric: m.Name}
	for _, n := range m.New {
		g.New += n
	}
	for _, n := range m.Refused {
		g.Refused += n
	}
	l := diagnose.GrowingLabel(&m, growth.Steps)
	g.Label, g.Values = l.Name, l.Values
	if len(m.Senders) > 0 {
		g.Sender = m.Senders[0]
	}
	return g
}
