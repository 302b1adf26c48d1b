package answer

import "github.com/prometheus/prometheus/model/labels"

// Top is what is busiest in a tenant. Rates cover the Seconds whole seconds before End.
type Top struct {
	Tenant    string         `json:"tenant"`
	End       int64          `json:"end"` // Unix seconds
	Seconds   int            `json:"seconds"`
	Series    int            `json:"series"` // that the tenant has now
	Samples   float64        `json:"samples_per_second"`
	Datagrams float64        `json:"datagrams_per_second"`
	Bytes     float64        `json:"bytes_per_second"`
	Metrics   []TopMetric    `json:"metrics"`               // most samples first
	Senders   []TopTraffic   `json:"senders"`               // most datagrams first
	Malformed []TopMalformed `json:"malformed"`             // most malformed lines first
	Listeners []TopListener  `json:"malformed_by_listener"` // listeners with malformed lines in the last 15 s
	Newest    []TopSeries    `json:"newest_series"`
	Labels    []TopLabel     `json:"labels"`      // most values first
	Over      []TopOver      `json:"over_limits"` // most samples first
}

// TopMetric is a metric, or the sum of all that are not listed.
type TopMetric struct {
	Name    string  `json:"metric,omitempty"`
	Kind    string  `json:"kind,omitempty"`
	Series  int     `json:"series,omitempty"` // that the metric has now
	Samples float64 `json:"samples_per_second"`
	Share   float64 `json:"share"`            // of all samples, 0 to 1
	Others  int     `json:"others,omitempty"` // at least how many metrics the row sums up; 0 for a single one
}

// TopTraffic is what a sender sends, or the sum of all that are not listed. A row without a sender is
// traffic whose sender the kernel did not tell.
type TopTraffic struct {
	TopSender
	Datagrams float64 `json:"datagrams_per_second"`
	Bytes     float64 `json:"bytes_per_second"`
	Share     float64 `json:"share"`            // of all datagrams, 0 to 1
	Others    int     `json:"others,omitempty"` // at least how many senders the row sums up; 0 for a single one
}

// TopMalformed is a sender of malformed lines.
type TopMalformed struct {
	TopSender
	Lines     float64 `json:"lines_per_second"`
	Malformed float64 `json:"malformed_per_second"`
	Share     float64 `json:"share"`             // of its lines, 0 to 1
	Reason    string  `json:"reason,omitempty"`  // of the example, as in docs/dogstatsd.md
	Example   string  `json:"example,omitempty"` // one of the lines, cut off after 200 bytes
}

// TopListener is what a listener received in the last 15 s, always counted: it includes a client
// that flushes each 10 s.
type TopListener struct {
	Listener  string  `json:"listener"`
	Lines     float64 `json:"lines_per_second"`
	Malformed float64 `json:"malformed_per_second"`
	Share     float64 `json:"share"`  // of its lines, 0 to 1
	Reason    string  `json:"reason"` // the most frequent one
}

// TopSender is what this machine knows about a sender.
type TopSender struct {
	Address   string      `json:"address,omitempty"` // of UDP; without a port if there are many
	Process   *TopProcess `json:"process,omitempty"` // of Unix sockets
	Container string      `json:"container,omitempty"`
}

// TopProcess is a process on this machine.
type TopProcess struct {
	PID     int32  `json:"pid"`
	UID     int32  `json:"uid"`
	Command string `json:"command,omitempty"` // while the process lives
}

// TopSeries is a series and the time when it got its place.
type TopSeries struct {
	At     float64       `json:"time"` // Unix seconds
	Metric string        `json:"metric"`
	Labels labels.Labels `json:"labels"`
	Sender TopSender     `json:"sender,omitzero"` // of its first sample
}

// TopLabel is a label of a metric.
type TopLabel struct {
	Metric   string   `json:"metric"`
	Label    string   `json:"label"`
	Values   int      `json:"values"`
	Examples []string `json:"examples"`
}

// TopOver is a metric whose new series get no place now.
type TopOver struct {
	Metric  string `json:"metric"`
	Kind    string `json:"kind"`
	Limit   string `json:"limit"`   // key in the configuration
	Fate    string `json:"fate"`    // folded or refused: what becomes of its samples
	Samples uint64 `json:"samples"` // since the metric went over the limit
	Label   string `json:"label,omitempty"`
	Values  uint64 `json:"values,omitempty"`
	Sender  string `json:"sender"`
}

// TopAll is what is busiest in a tenant: DogStatsD as counted by the collector, then the requests
// of remote write and OTLP.
type TopAll struct {
	*Top
	Requests []TopRequester `json:"request_senders"`   // most samples first
	Growing  []TopGrowing   `json:"request_newcomers"` // most new series first
}

// TopRequester is a sender of requests with one protocol. Rates cover the last top.Span seconds.
type TopRequester struct {
	Input    string  `json:"input"` // remote_write or otlp
	Address  string  `json:"address,omitempty"`
	Agent    string  `json:"user_agent,omitempty"`
	Requests float64 `json:"requests_per_second"`
	Samples  float64 `json:"samples_per_second"`
	Bytes    float64 `json:"bytes_per_second"` // decompressed
}

// TopGrowing is a metric with new series in the last four minutes.
type TopGrowing struct {
	Metric  string `json:"metric"`
	New     uint64 `json:"new_series"`
	Refused uint64 `json:"refused_series"`   // by distributor.max_series; a series that comes again counts again
	Label   string `json:"label,omitempty"`  // the likely cause: the label with most new values, if they are enough
	Values  uint64 `json:"values,omitempty"` // about how many new values
	Sender  string `json:"sender,omitempty"` // the sender of most of them
}
