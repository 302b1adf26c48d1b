package answer

// Event is one event of the event log: GET /api/v1/events.
type Event struct {
	ID       string   `json:"id"`
	Time     float64  `json:"time"` // Unix seconds, as everywhere in this API
	Title    string   `json:"title"`
	Text     string   `json:"text"`
	Tags     []string `json:"tags"` // key:value
	Host     string   `json:"host"`
	Alert    string   `json:"alert_type"`
	Priority string   `json:"priority"`
	Source   string   `json:"source"`
	Key      string   `json:"aggregation_key"`
}
