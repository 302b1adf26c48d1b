package answer

// HistoryBlock is a block that an operator imported.
type HistoryBlock struct {
	Block   string `json:"block"` // its ULID
	MinTime int64  `json:"min_time_ms"`
	MaxTime int64  `json:"max_time_ms"` // exclusive
	Series  uint64 `json:"series"`
	Samples uint64 `json:"samples"`
	Bytes   int64  `json:"bytes"`

	Nodes []string `json:"nodes,omitempty"` // of a cluster: the nodes that have the block and answered
}

// History is the answer of GET /api/v1/admin/history: what was imported into a tenant, in the order of time.
type History struct {
	Tenant string         `json:"tenant"`
	Blocks []HistoryBlock `json:"blocks"`

	Importing []string `json:"importing,omitempty"` // blocks that a node of a cluster is importing now

	// Unknown says that the server has no samples of the tenant at all, from any way in.
	Unknown bool `json:"unknown,omitempty"`
}
