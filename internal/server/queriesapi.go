package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/querycost"
	"github.com/freshet-io/freshet/internal/core/top"
)

// serveQueries answers an operator with the queries of all tenants, and a tenant with its own: those under way, and
// what the queries of the last hour cost. On a node of a cluster, they are the queries of all nodes.
func (s *server) serveQueries(w http.ResponseWriter, r *http.Request) {
	local, err := onlyLocal(r)
	if err != nil {
		refuseParameter(w, err)
		return
	}
	by, err := querycost.ParseOrder(r.FormValue("sort"))
	if err != nil {
		refuseParameter(w, err)
		return
	}
	limit, err := top.ParseRows(r.FormValue("limit"))
	if err != nil {
		refuseParameter(w, err)
		return
	}
	operator, name := s.operator(r), tenantOf(r)
	if operator {
		name = "" // all tenants
	}
	a := s.ownQueries(name)
	a.Tenant, a.All, a.Sort = tenantOf(r), operator, by
	if !local && s.config.Cluster.Node != "" {
		sumQueries(&a, s.askFigures(r.Context(), peer.Queries, name), operator)
	}
	a.Cut(by, limit)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": a}) // fails only if the client is gone
}

// ownQueries returns the queries of a tenant at this process, or of all tenants if the name is empty.
func (s *server) ownQueries(tenant string) answer.Queries {
	node := s.config.Cluster.Node
	a := answer.Queries{
		Tenant: tenant, Span: querycost.Hour, Sort: querycost.ByTime, Top: s.engine.TopCosts(tenant), Node: node,
	}
	a.CutAll(top.MaxRows)
	for i := range a.Active {
		a.Active[i].Node = node
	}
	return a
}

// sumQueries adds the queries of the other nodes.
func sumQueries(a *answer.Queries, others []toldFigures, operator bool) {
	a.Nodes = append(a.Nodes, answer.QueryNode{Name: a.Node})
	for _, t := range others {
		var other answer.Queries
		if t.err == nil {
			t.err = json.Unmarshal(t.json, &other)
		}
		n := answer.QueryNode{Name: t.node}
		if t.err != nil {
			a.Short, n.Error = true, whyNot(t.err, operator)
		} else {
			a.Add(&other.Top)
		}
		a.Nodes = append(a.Nodes, n)
	}
	slices.SortFunc(a.Nodes, func(x, y answer.QueryNode) int { return strings.Compare(x.Name, y.Name) })
}
