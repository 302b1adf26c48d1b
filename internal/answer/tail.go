package answer

import "github.com/freshet-io/freshet/internal/core/tail"

// Tailed is one line of a tail's answer: a line that arrived, or a notice of how much was not shown
// since the last notice. Only the first Tailed of an answer has the node.
type Tailed struct {
	*tail.Line
	Node    string `json:"node,omitempty"`     // the node whose sockets the answer is about; empty if it is in no cluster
	LeftOut uint64 `json:"left_out,omitempty"` // lines that were not shown because of the rate
	Missed  uint64 `json:"missed,omitempty"`   // datagrams that the server had no time to look at
}
