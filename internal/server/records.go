package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/diagnose"
	"github.com/freshet-io/freshet/internal/core/querycost"
	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/role/recorder"
)

// topOfAll returns the busiest metrics and senders of each tenant that has sockets, without labels. They are counted
// for the time of the lease.
func (s *server) topOfAll(ctx context.Context, lease time.Duration) (any, error) {
	all := []*top.View{}
	for _, tenant := range s.inForce().DogStatsD.Tenants() {
		top, err := s.collector.Top(ctx, tenant, top.DefaultRows, lease)
		if err != nil {
			return nil, err
		}
		all = append(all, top)
	}
	return all, nil
}

// growing returns the growth of each tenant's series, and the limits on their number. Before the journal
// is replayed, it returns no tenants.
func (s *server) growing() record.Growing {
	g := record.Growing{
		At: time.Now().Unix(), MemoryBytes: s.memory.Bytes, MemoryOf: s.memory.Of, Tenants: []record.GrowingTenant{},
	}
	if s.handler.Load() == nil || s.stores == nil {
		return g
	}
	c := s.inForce()
	for _, t := range s.stores.Growth() {
		of := record.GrowingTenant{Tenant: t}
		limit := func(store, setting string, series int, perMetric bool) {
			if series > 0 { // 0 means no limit
				of.Limits = append(of.Limits, record.SeriesLimit{
					Store: store, Setting: setting, Series: series, PerMetric: perMetric,
				})
			}
		}
		limits, tiles := c.Limits.Of(t.Tenant), tile.Width10s.String()
		requests := c.Distributor.Tenants[t.Tenant].MaxSeries.Or(c.Distributor.MaxSeries)
		limit(tsdb.Raw, "distributor.max_series", requests, false)
		limit(tiles, "limits.max_series", limits.MaxSeries, false)
		limit(tiles, "limits.max_series_per_metric", limits.MaxSeriesPerMetric, true)
		g.Tenants = append(g.Tenants, of)
	}
	return g
}

// maxCosts is how many queries a record lists.
const maxCosts = 50

// queryCosts returns the costs of queries. Before the journal is replayed, it returns nothing.
func (s *server) queryCosts() []querycost.Row {
	if s.handler.Load() == nil || s.engine == nil {
		return []querycost.Row{}
	}
	return s.engine.Costs(maxCosts)
}

// maxSent is how many senders of requests a record lists, at 200 bytes each. The number is high, since a
// fleet may have many senders that each send little.
const maxSent = 1000

// sent returns the senders with the most requests of remote write and OTLP. If there are more than
// maxSent, the last row is the sum of all further senders. Before the journal is replayed, it returns
// nothing.
func (s *server) sent() []record.Sent {
	all := []record.Sent{}
	if s.handler.Load() == nil || s.receiver == nil {
		return all
	}
	rate := func(n uint64) float64 { return float64(n) / top.Span }
	rows, rest := s.receiver.Sent(maxSent)
	for _, r := range append(rows, top.RequesterRow{Amount: rest.Amount}) {
		if r.Count > 0 {
			all = append(all, record.Sent{
				Tenant: r.Tenant, Input: r.Input, From: r.Requester.String(), Agent: r.Sender.Agent,
				Requests: rate(r.Count), Samples: rate(r.Amount.Samples), Bytes: rate(r.Bytes),
			})
		}
	}
	return all
}

// respondRecord answers in the form of the Prometheus API.
func respondRecord(w http.ResponseWriter, data any, err error) {
	w.Header().Set("Content-Type", "application/json")
	body := map[string]any{"status": "success", "data": data}
	if err != nil {
		status, kind := http.StatusInternalServerError, "internal"
		if errors.Is(err, recorder.ErrUnknown) {
			status, kind = http.StatusNotFound, "not_found"
		}
		w.WriteHeader(status)
		body = map[string]any{"status": "error", "errorType": kind, "error": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(body) // fails if the client is gone
}

// longestReason is the longest reason that a request for a record may give, in bytes.
const longestReason = 200

// serveRecord makes a record now, and answers when it is written.
func (s *server) serveRecord(w http.ResponseWriter, r *http.Request) {
	reason := r.FormValue("reason")
	if len(reason) > longestReason {
		http.Error(w, fmt.Sprintf("reason has %d bytes; at most %d are kept", len(reason), longestReason),
			http.StatusBadRequest)
		return
	}
	if reason == "" {
		reason = "somebody asked"
	}
	made, err := s.recorder.Record(r.Context(), reason)
	made.Runtime, made.Spreads, made.CPUQuotas = nil, nil, nil // the file of the record has them
	respondRecord(w, made, err)
}

// serveRecords lists the records, newest first.
func (s *server) serveRecords(w http.ResponseWriter, _ *http.Request) {
	all, err := s.recorder.List()
	respondRecord(w, all, err)
}

// serveRecordFile answers with a record as a zip file.
func (s *server) serveRecordFile(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	f, err := s.recorder.Open(id)
	if err != nil {
		respondRecord(w, nil, err)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", "freshet-record-"+id+".zip"))
	http.ServeContent(w, r, "", f.Modified, f)
}

// serveDiagnosis answers with the diagnosis of a record.
func (s *server) serveDiagnosis(w http.ResponseWriter, r *http.Request) {
	f, err := s.recorder.Open(r.PathValue("id"))
	if err != nil {
		respondRecord(w, nil, err)
		return
	}
	defer f.Close()
	found, err := diagnose.ReadRecord(f, f.Size())
	respondRecord(w, found, err)
}
