package answer

import "github.com/freshet-io/freshet/internal/core/top"

// TopAll lists the busiest metrics and senders of a tenant: first for DogStatsD, as the collector counts
// them, then for requests of remote write and OTLP.
type TopAll struct {
	*top.View
	Node     string         `json:"node,omitempty"`    // the node that these lists are about; empty if it is in no cluster
	Requests []TopRequester `json:"request_senders"`   // most samples first
	Growing  []TopGrowing   `json:"request_newcomers"` // most new series first
}

// TopRequester is a sender of requests, by one protocol. Rates cover the last top.Span seconds.
type TopRequester struct {
	Input    string  `json:"input"`          // remote_write or otlp
	Name     string  `json:"name,omitempty"` // of its token
	Address  string  `json:"address,omitempty"`
	Agent    string  `json:"user_agent,omitempty"`
	Requests float64 `json:"requests_per_second"`
	Samples  float64 `json:"samples_per_second"`
	Bytes    float64 `json:"bytes_per_second"` // bytes after decompression
}

// TopGrowing is a metric with new series in the last four minutes.
type TopGrowing struct {
	Metric  string `json:"metric"`
	New     uint64 `json:"new_series"`
	Refused uint64 `json:"refused_series"`   // series that distributor.max_series refused; each try counts
	Label   string `json:"label,omitempty"`  // likely cause: the label with most new values, if it has enough
	Values  uint64 `json:"values,omitempty"` // the approximate number of new values
	Sender  string `json:"sender,omitempty"` // the sender of most of the new series
}
