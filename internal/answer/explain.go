package answer

import "github.com/freshet-io/freshet/internal/core/dogstatsd"

// Explained says what a datagram would become: /api/v1/status/explain.
type Explained struct {
	Tenant   string          `json:"tenant"`
	Arrives  []string        `json:"arrives"` // sockets that could receive the datagram; empty without a server
	Lines    []ExplainedLine `json:"lines"`
	Warnings []string        `json:"warnings,omitempty"`
}

// ExplainedLine says what one line would become.
type ExplainedLine struct {
	Line       string            `json:"line"`
	WellFormed bool              `json:"well_formed"`
	Type       string            `json:"type"` // metric, event or check
	Fields     []dogstatsd.Field `json:"fields"`
	Fault      *ExplainedFault   `json:"fault,omitempty"`
	Becomes    *Becomes          `json:"becomes,omitempty"` // only for a well-formed line
	Warnings   []string          `json:"warnings,omitempty"`
}

// ExplainedFault says what is wrong with a malformed line.
type ExplainedFault struct {
	Reason   string `json:"reason"` // spelled as in metrics
	At       int    `json:"at"`     // index of the faulty byte, from 0
	Expected string `json:"expected"`
}

// Becomes describes the series that a well-formed line would become.
type Becomes struct {
	Rule    *int              `json:"rule,omitempty"` // index of the rule in mapping.rules
	Match   string            `json:"match,omitempty"`
	Dropped bool              `json:"dropped,omitempty"` // the rule drops the line
	Kind    string            `json:"kind"`
	Name    string            `json:"name,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Query   string            `json:"query,omitempty"` // selector of the series, to paste into a query
	Combine string            `json:"combine"`         // how its values are combined
	Shard   *uint16           `json:"shard,omitempty"`
	Stores  []string          `json:"stores,omitempty"`
	Limits  []string          `json:"limits,omitempty"`
}
