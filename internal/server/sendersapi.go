package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/top"
)

// serveSenders answers with the senders of a tenant. On a node of a cluster, they are the senders of all nodes. The
// senders of DogStatsD are counted only for a while after a request, so the first answer lacks them.
func (s *server) serveSenders(w http.ResponseWriter, r *http.Request) {
	local, err := onlyLocal(r)
	if err != nil {
		refuseParameter(w, err)
		return
	}
	limit, err := top.ParseRows(r.FormValue("limit"))
	if err != nil {
		refuseParameter(w, err)
		return
	}
	name := tenantOf(r)
	a := s.ownSenders(name)
	if !local && s.config.Cluster.Node != "" {
		sumSenders(&a, s.askFigures(r.Context(), peer.Senders, name), s.operator(r))
	}
	a.Cut(limit)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": a}) // fails only if the client is gone
}

// ownSenders returns the senders of a tenant at this process.
func (s *server) ownSenders(tenant string) answer.Senders {
	node, now := s.config.Cluster.Node, time.Now()
	packets := s.collector.Senders(tenant, top.MaxRows)
	a := answer.Senders{
		Tenant: tenant, Counting: packets.Seconds > 0, StepTime: top.HistoryStep, Senders: []answer.Sender{}, Node: node,
	}
	addPackets(&a, packets)
	if s.receiver != nil {
		for _, from := range s.receiver.Sources(tenant) {
			a.Senders = append(a.Senders, newRequestSender(from, now))
		}
	}
	for i := range a.Senders {
		a.Senders[i].Node = node
	}
	a.Senders = append(a.Senders, s.collectorBooks.senders(tenant)...)
	return a
}

func newRequestSender(from top.Source, now time.Time) answer.Sender {
	row := answer.Sender{
		Input: from.Input, Name: from.Token, Agent: from.Agent, Samples: from.Samples, Requests: from.Requests,
		Seen: float64(from.Seen), Refused: from.Refused, History: from.History,
	}
	row.Address = from.Address()
	if from.Newest != 0 {
		lag := float64(now.UnixMilli()-from.Newest) / 1000
		row.Lag = &lag
	}
	return row
}

// addPackets adds the senders of DogStatsD.
func addPackets(a *answer.Senders, packets *top.View) {
	for _, from := range packets.Senders {
		if from.Others > 0 {
			a.Others.Senders += from.Others
			a.Others.Samples += from.Lines
			continue
		}
		row := answer.Sender{
			Input: answer.SenderDogStatsD, ViewSender: from.ViewSender, Samples: from.Lines, Requests: from.Datagrams,
			Seen: float64(packets.End), Refused: from.Malformed,
		}
		a.Senders = append(a.Senders, row)
	}
}

// sumSenders adds the senders of the other nodes.
func sumSenders(a *answer.Senders, others []toldFigures, operator bool) {
	a.Nodes = append(a.Nodes, answer.SenderNode{Name: a.Node})
	for _, t := range others {
		var other answer.Senders
		if t.err == nil {
			t.err = json.Unmarshal(t.json, &other)
		}
		n := answer.SenderNode{Name: t.node}
		if t.err != nil {
			a.Short, n.Error = true, whyNot(t.err, operator)
		} else {
			a.Add(&other)
		}
		a.Nodes = append(a.Nodes, n)
	}
	slices.SortFunc(a.Nodes, func(x, y answer.SenderNode) int { return strings.Compare(x.Name, y.Name) })
}
