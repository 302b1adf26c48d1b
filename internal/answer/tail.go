package answer

import "github.com/freshet-io/freshet/internal/core/tail"

// Tailed is one line of a tail's answer: a line that arrived, or how much was not shown since the
// last such notice.
type Tailed struct {
	*tail.Line
	LeftOut uint64 `json:"left_out,omitempty"` // lines beyond the rate
	Missed  uint64 `json:"missed,omitempty"`   // datagrams not looked at, for lack of time
}
