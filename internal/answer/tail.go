package answer

import "github.com/freshet-io/freshet/internal/core/tail"

// Tailed is one line of a tail's answer: a line that arrived, or what was not shown
// since the last time that this was said.
type Tailed struct {
	*tail.Line
	LeftOut uint64 `json:"left_out,omitempty"` // lines beyond the rate
	Missed  uint64 `json:"missed,omitempty"`   // datagrams that were not looked at, for want of time
}
