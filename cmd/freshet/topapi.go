package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/diagnose"
	"github.com/freshet-io/freshet/internal/core/growth"
	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/role/collector"
)

// defaultTop is how many rows of each list are shown unless told otherwise.
const defaultTop = 20

// topAnswer is what is busiest in a tenant: by DogStatsD as the collector counts it, then by
// the requests of remote write and OTLP.
type topAnswer struct {
	*collector.Top
	Requests []requestSender `json:"request_senders"`   // most samples first
	Growing  []growingMetric `json:"request_newcomers"` // most new series first
}

// requestSender is who sends requests in one way. Rates are those of the last top.Span
// seconds.
type requestSender struct {
	Input    string  `json:"input"` // remote_write or otlp
	Address  string  `json:"address,omitempty"`
	Agent    string  `json:"user_agent,omitempty"`
	Requests float64 `json:"requests_per_second"`
	Samples  float64 `json:"samples_per_second"`
	Bytes    float64 `json:"bytes_per_second"` // decompressed
}

// growingMetric is a metric with series that were new in the last four minutes.
type growingMetric struct {
	Metric  string `json:"metric"`
	New     uint64 `json:"new_series"`
	Refused uint64 `json:"refused_series"`   // by distributor.max_series; one that comes again counts again
	Label   string `json:"label,omitempty"`  // that makes them: the one with most new values, if these are enough
	Values  uint64 `json:"values,omitempty"` // new ones, about
	Sender  string `json:"sender,omitempty"` // of most of them
}

// serveTop says what is busiest in a tenant. To ask makes the server count, for a
// while.
func (s *server) serveTop(w http.ResponseWriter, r *http.Request) {
	respond := func(status int, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // fails if the client went away
	}
	limit, err := parseTop(r.FormValue("limit"))
	if err != nil {
		respond(http.StatusBadRequest, map[string]any{"status": "error", "errorType": "bad_data", "error": err.Error()})
		return
	}
	name := tenantOf(r)
	busiest, err := s.collector.Top(r.Context(), name, limit)
	if err != nil {
		return // the client went away
	}
	a := topAnswer{busiest, s.requestSenders()[name], s.newByRequests(name)}
	a.Requests = append([]requestSender{}, a.Requests[:min(limit, len(a.Requests))]...)
	a.Growing = a.Growing[:min(limit, len(a.Growing))]
	respond(http.StatusOK, map[string]any{"status": "success", "data": a})
}

// requestSenders are who sends remote write and OTLP, by tenant, most samples first.
func (s *server) requestSenders() map[string][]requestSender {
	all := map[string][]requestSender{}
	if s.ingest.receiver == nil {
		return all
	}
	rows, _ := s.ingest.receiver.Sent(math.MaxInt)
	for _, r := range rows {
		row := requestSender{
			Input: r.Input, Agent: r.Agent,
			Requests: float64(r.Count) / top.Span, Samples: float64(r.Samples) / top.Span, Bytes: float64(r.Bytes) / top.Span,
		}
		if r.Addr.IsValid() {
			row.Address = r.Addr.String()
		}
		all[r.Tenant] = append(all[r.Tenant], row)
	}
	for _, rows := range all {
		slices.SortStableFunc(rows, func(a, b requestSender) int { return cmp.Compare(b.Samples, a.Samples) })
	}
	return all
}

// newByRequests are the metrics of a tenant to which remote write and OTLP brought new
// series.
func (s *server) newByRequests(tenant string) []growingMetric {
	all := []growingMetric{}
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

func newGrowingMetric(m growth.Metric) growingMetric {
	g := growingMetric{Metric: m.Name}
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

// parseTop reads how many rows of each list are wanted.
func parseTop(text string) (int, error) {
	if text == "" {
		return defaultTop, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > collector.MaxTop {
		return 0, fmt.Errorf("limit = %s: is not a number from 1 to %d", text, collector.MaxTop)
	}
	return limit, nil
}
