package answer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/core/top"
)

// Senders has the senders of a tenant: GET /api/v1/status/senders.
type Senders struct {
	Tenant   string       `json:"tenant"`
	Counting bool         `json:"counting"`     // the senders of DogStatsD are counted, as they are while a client asks
	StepTime int          `json:"step_seconds"` // of one value of a history
	Senders  []Sender     `json:"senders"`      // most samples first
	Others   OtherSenders `json:"others"`       // those that are not listed

	// In a cluster, Node is the node that answers. If Nodes is empty, all senders are its own.
	Node  string       `json:"node,omitempty"`
	Nodes []SenderNode `json:"nodes,omitempty"`
	Short bool         `json:"short,omitempty"` // a node's senders are missing
}

// OtherSenders is the sum of the senders that a list leaves out.
type OtherSenders struct {
	Senders int     `json:"senders"` // of DogStatsD at least
	Samples float64 `json:"samples_per_second"`
}

// SenderNode is a node that was asked for its senders.
type SenderNode struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // why its senders are missing
}

// The inputs of senders that are not named as a stage.
const (
	SenderDogStatsD = "dogstatsd"
	SenderCollector = "collector"
)

// Sender is a program that sends samples. A program that sends to two nodes is two senders.
type Sender struct {
	Input          string `json:"input"`          // dogstatsd, remote_write, otlp or collector
	Node           string `json:"node,omitempty"` // the node that it sends to
	Name           string `json:"name,omitempty"` // of a collector, or of the sender's token
	ID             string `json:"id,omitempty"`   // of a collector: 16 hexadecimal digits
	top.ViewSender        // of others than collectors
	Agent          string `json:"user_agent,omitempty"`

	Samples  float64 `json:"samples_per_second"`            // of DogStatsD, lines
	Requests float64 `json:"requests_per_second,omitempty"` // of DogStatsD, datagrams
	Seen     float64 `json:"last_seen"`                     // Unix seconds

	// Lag is the age of its newest sample, in seconds. DogStatsD and collectors have none: their samples have no
	// time of their own.
	Lag     *float64          `json:"lag_seconds,omitempty"`
	Refused map[string]uint64 `json:"refused,omitempty"` // samples, lines and whole requests, by reason

	// History has the samples a second in steps of step_seconds, the oldest first; DogStatsD and collectors have none.
	History []float64 `json:"history,omitempty"`
}

// Cut sorts the senders, and leaves out those beyond a limit.
func (s *Senders) Cut(limit int) {
	slices.SortStableFunc(s.Senders, func(a, b Sender) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(b.Requests, a.Requests),
			strings.Compare(a.Input, b.Input), strings.Compare(a.Name, b.Name), strings.Compare(a.Address, b.Address),
			strings.Compare(a.Agent, b.Agent), strings.Compare(a.Node, b.Node), strings.Compare(a.ID, b.ID))
	})
	for _, o := range s.Senders[min(limit, len(s.Senders)):] {
		s.Others.Senders++
		s.Others.Samples += o.Samples
	}
	s.Senders = s.Senders[:min(limit, len(s.Senders))]
}

// Add adds the senders of another node. Several nodes may list the same collector: the newest entry stays.
func (s *Senders) Add(other *Senders) {
	s.Others.Senders += other.Others.Senders
	s.Others.Samples += other.Others.Samples
	s.Counting = s.Counting && other.Counting
	for _, o := range other.Senders {
		at := -1
		if o.Input == SenderCollector {
			at = slices.IndexFunc(s.Senders, func(have Sender) bool {
				return have.Input == o.Input && have.Name == o.Name && have.ID == o.ID
			})
		}
		switch {
		case at < 0:
			s.Senders = append(s.Senders, o)
		case o.Seen > s.Senders[at].Seen:
			s.Senders[at] = o
		}
	}
}
