package top

import "github.com/prometheus/prometheus/model/labels"

// View has the busiest metrics, senders and labels of a tenant. Servers return it as JSON, and records
// keep it for core/diagnose. Rates cover whole seconds before End; the field Seconds is their number.
type View struct {
	Tenant    string          `json:"tenant"`
	End       int64           `json:"end"` // Unix seconds
	Seconds   int             `json:"seconds"`
	Series    int             `json:"series"` // that the tenant has now
	Samples   float64         `json:"samples_per_second"`
	Datagrams float64         `json:"datagrams_per_second"`
	Bytes     float64         `json:"bytes_per_second"`
	Metrics   []ViewMetric    `json:"metrics"`   // most samples first
	Senders   []ViewTraffic   `json:"senders"`   // most datagrams first
	Malformed []ViewMalformed `json:"malformed"` // most malformed lines first
	// Listeners with malformed lines in the last 15 s; nil in an old record.
	Listeners []ViewListener `json:"malformed_by_listener"`
	Newest    []ViewSeries   `json:"newest_series"`
	Labels    []ViewLabel    `json:"labels"`      // most values first; none in a record
	Over      []ViewOver     `json:"over_limits"` // most samples first
}

// ViewMetric is a metric, or the sum of all metrics that are not listed.
type ViewMetric struct {
	Name    string  `json:"metric,omitempty"`
	Kind    string  `json:"kind,omitempty"`
	Series  int     `json:"series,omitempty"` // that the metric has now
	Samples float64 `json:"samples_per_second"`
	Share   float64 `json:"share"`            // of all samples, 0 to 1
	Others  int     `json:"others,omitempty"` // how many metrics the row sums up, at least; 0 for a single one
}

// ViewTraffic is the traffic of a sender, or of all senders that are not listed. A row without a
// sender is traffic for which the kernel did not name the sender.
type ViewTraffic struct {
	ViewSender
	Datagrams float64 `json:"datagrams_per_second"`
	Bytes     float64 `json:"bytes_per_second"`
	Lines     float64 `json:"lines_per_second"` // malformed ones included
	Share     float64 `json:"share"`            // of all datagrams, 0 to 1
	Others    int     `json:"others,omitempty"` // how many senders the row sums up, at least; 0 for a single one

	// Malformed are the malformed lines in all Seconds by reason, as in docs/dogstatsd.md. Reasons that found no room
	// are "other".
	Malformed map[string]uint64 `json:"malformed,omitempty"`
}

// ViewMalformed is a sender of malformed lines.
type ViewMalformed struct {
	ViewSender
	Lines     float64 `json:"lines_per_second"`
	Malformed float64 `json:"malformed_per_second"`
	Share     float64 `json:"share"`             // of its lines, 0 to 1
	Reason    string  `json:"reason,omitempty"`  // of the example, as in docs/dogstatsd.md
	Example   string  `json:"example,omitempty"` // one of the lines, cut off after 200 bytes
}

// ViewListener is the traffic of a listener in the last 15 s, which is long enough for clients that
// flush every 10 s. This traffic is counted all the time.
type ViewListener struct {
	Listener  string  `json:"listener"`
	Lines     float64 `json:"lines_per_second"`
	Malformed float64 `json:"malformed_per_second"`
	Share     float64 `json:"share"`  // of its lines, 0 to 1
	Reason    string  `json:"reason"` // the most frequent one
}

// ViewSender is what this machine knows about a sender.
type ViewSender struct {
	Address   string       `json:"address,omitempty"` // of UDP; without a port if there are many
	Process   *ViewProcess `json:"process,omitempty"` // of Unix sockets
	Container string       `json:"container,omitempty"`
}

// ViewProcess is a process on this machine.
type ViewProcess struct {
	PID     int32  `json:"pid"`
	UID     int32  `json:"uid"`
	Command string `json:"command,omitempty"` // while the process lives
}

// ViewSeries is a series and the time when it got its place.
type ViewSeries struct {
	At     float64       `json:"time"` // Unix seconds
	Metric string        `json:"metric"`
	Labels labels.Labels `json:"labels"`
	Sender ViewSender    `json:"sender,omitzero"` // of its first sample
}

// ViewLabel is a label of a metric.
type ViewLabel struct {
	Metric   string   `json:"metric"`
	Label    string   `json:"label"`
	Values   int      `json:"values"`
	Examples []string `json:"examples"`
}

// ViewOver is a metric whose new series get no place now.
type ViewOver struct {
	Metric  string `json:"metric"`
	Kind    string `json:"kind"`
	Limit   string `json:"limit"`   // key in the configuration
	Fate    string `json:"fate"`    // fate of its samples: folded or refused
	Samples uint64 `json:"samples"` // since the metric went over the limit
	Label   string `json:"label,omitempty"`
	Values  uint64 `json:"values,omitempty"`
	Sender  string `json:"sender"`
}
