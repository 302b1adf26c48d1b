package answer

import "github.com/freshet-io/freshet/internal/core/ledger"

// Ledger has the books of a tenant: GET /api/v1/status/ledger.
type Ledger struct {
	Name     string `json:"tenant"`
	Started  int64  `json:"started_ms"`  // Unix ms, when the process and its books started
	Boundary int64  `json:"boundary_ms"` // Unix ms, end of the last window; 0 before the first
	Probing  bool   `json:"probing"`     // the server sends itself a datagram each second, which counts like any other
	ledger.Tenant
	Waiting  *Waiting  `json:"waiting,omitempty"`
	Previous *Previous `json:"previous,omitempty"`
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
