package answer

// Rules says what the rules of a tenant wait for: GET /api/v1/status/rules.
type Rules struct {
	Tenant    string         `json:"tenant"`
	Watermark int64          `json:"watermark_ms"` // Unix ms up to which all expected data have been delivered; 0 without rules
	InTime    int64          `json:"in_time_ms"`   // Unix ms up to which nothing is late
	Late      []LateSender   `json:"late"`         // what holds rules back, the oldest first
	Gone      []LateSender   `json:"gone"`         // senders for which rules no longer wait
	Waiting   []WaitingGroup `json:"waiting"`
	Offsets   []QueryOffset  `json:"query_offsets"` // of the groups that have one, which Prometheus' API does not say
}

// QueryOffset is the query_offset of a group of rules.
type QueryOffset struct {
	File   string  `json:"file"`
	Name   string  `json:"name"`
	Offset float64 `json:"offset"` // seconds
}

// LateSender is a sender that is late or gone, or a delay of our own.
type LateSender struct {
	Sender string `json:"sender"` // empty if it is a delay of our own
	Reason string `json:"reason"` // silent, behind, uneven, refused, queued or windows
	Text   string `json:"text"`   // the reason for people
	Since  int64  `json:"since_ms"`
	Mark   int64  `json:"mark_ms"` // Unix ms up to which its data are here
}

// WaitingGroup is a group of rules that waits for the watermark.
type WaitingGroup struct {
	File  string `json:"file"`
	Name  string `json:"name"`
	Slot  int64  `json:"slot_ms"` // Unix ms, the evaluation that waits
	Since int64  `json:"since_ms"`
	Stale bool   `json:"stale"`
}
