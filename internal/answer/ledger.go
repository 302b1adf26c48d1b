package answer

import (
	"slices"

	"github.com/freshet-io/freshet/internal/core/ledger"
)

// Ledger has the books of a tenant: GET /api/v1/status/ledger.
type Ledger struct {
	Name     string `json:"tenant"`
	Started  int64  `json:"started_ms"`  // Unix ms, when the process and its books started
	Boundary int64  `json:"boundary_ms"` // Unix ms, end of the last window; 0 before the first
	Probing  bool   `json:"probing"`     // the server sends itself a datagram each second, which counts like any other
	ledger.Tenant
	Waiting  *Waiting  `json:"waiting,omitempty"`
	Previous *Previous `json:"previous,omitempty"`

	// Notifications are those of the process that answers. In a cluster, the leader notifies.
	Notifications []Notifications `json:"notifications,omitempty"`

	// In a cluster, Node is the node that answers. If Nodes is empty, the books are those of this node
	// alone. Otherwise the books are a sum over all nodes, and over all collectors on other hosts. Samples that came in
	// at a node or collector count from its books. Samples that came by the log count only once, from the books of the
	// answering node.
	Node       string            `json:"node,omitempty"`
	Nodes      []LedgerNode      `json:"nodes,omitempty"`
	Collectors []LedgerCollector `json:"collectors,omitempty"`
	Short      bool              `json:"short,omitempty"`  // the sum lacks a node, or has old books of a node or collector
	Copied     *ledger.Samples   `json:"copied,omitempty"` // the part of Samples that the log brought, of which each node has a copy
}

// SameBooks reports whether counts of two answers can be compared: no process started between them, and no node is
// missing in one of them.
func (l *Ledger) SameBooks(other *Ledger) bool {
	same := func(a, b LedgerNode) bool { return a.Name == b.Name && a.Started == b.Started }
	sameToo := func(a, b LedgerCollector) bool { return a.ID == b.ID && same(a.LedgerNode, b.LedgerNode) }
	return l.Started == other.Started && slices.EqualFunc(l.Nodes, other.Nodes, same) &&
		slices.EqualFunc(l.Collectors, other.Collectors, sameToo)
}

// LedgerNode says how the books of a node went into the sum.
type LedgerNode struct {
	Name       string   `json:"name"`
	Started    int64    `json:"started_ms"` // like the next fields 0 if the node's books are missing
	Boundary   int64    `json:"boundary_ms"`
	Received   uint64   `json:"received"`
	HandedOver uint64   `json:"handed_over"`
	Difference int64    `json:"difference"`
	AgeSeconds *float64 `json:"age_seconds,omitempty"` // of the last books of a node that does not answer
	Error      string   `json:"error,omitempty"`       // why the node does not answer
}

// LedgerCollector says how the books of a collector went into the sum. The collector told them a node.
type LedgerCollector struct {
	LedgerNode
	ID    string         `json:"id"`              // 16 hexadecimal digits, which tell collectors of one name apart
	Told  float64        `json:"told_seconds"`    // since it told its books
	Ended bool           `json:"ended"`           // it has stopped, and its books are final
	Books *ledger.Tenant `json:"books,omitempty"` // only between nodes
}

// Missing reports whether the sum lacks the node.
func (n *LedgerNode) Missing() bool { return n.Error != "" && n.AgeSeconds == nil }

// Notifications counts what became of the alerts for an Alertmanager. An alert that fires or was just resolved is sent
// again each minute, and counts each time.
type Notifications struct {
	Alertmanager string `json:"alertmanager"` // its URL
	Sent         uint64 `json:"sent"`
	Dropped      uint64 `json:"dropped"` // not taken, or too many waited
	Waiting      uint64 `json:"waiting"`
}

// Waiting counts the samples in closed tiles that no store has taken yet.
type Waiting struct {
	Samples uint64 `json:"samples"`
	Bytes   int64  `json:"bytes"`
	Since   int64  `json:"since_ms"` // Unix ms, end of the oldest tile
	Error   string `json:"error"`    // why the store takes no samples; empty while it works
	Refused bool   `json:"refused"`  // true once store.pending is reached: new samples are refused
}

// Previous has the books of the previous process.
type Previous struct {
	Written int64 `json:"written_ms"` // Unix ms
	Final   bool  `json:"final"`
	ledger.Tenant
}
