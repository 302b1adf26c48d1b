package answer

import "github.com/freshet-io/freshet/internal/core/querycost"

// Queries has the queries of a tenant: GET /api/v1/status/queries.
type Queries struct {
	Tenant string          `json:"tenant"` // of the request
	All    bool            `json:"all"`    // the list has the queries of all tenants
	Span   int             `json:"span_seconds"`
	Sort   querycost.Order `json:"sort"`
	querycost.Top

	// In a cluster, Node is the node that answers. If Nodes is empty, all queries are its own.
	Node  string      `json:"node,omitempty"`
	Nodes []QueryNode `json:"nodes,omitempty"`
	Short bool        `json:"short,omitempty"` // a node's queries are missing
}

// QueryNode is a node that was asked for its queries.
type QueryNode struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // why its queries are missing
}
