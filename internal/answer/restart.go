package answer

// Restart is the progress of a restart: the file restart.json in the data directory, which freshet
// restart watches.
type Restart struct {
	PID   int    `json:"pid"`
	At    int64  `json:"at_ms"` // Unix ms, when this was written
	State string `json:"state"`
	Why   string `json:"why,omitempty"` // why it was refused

	Proxied        string  `json:"proxied,omitempty"`            // header of a proxy that a request came through
	StoppedReading int64   `json:"stopped_reading_ns,omitempty"` // Unix ns
	Gap            float64 `json:"gap_seconds,omitempty"`        // how long the sockets were not read
	Build          string  `json:"build,omitempty"`              // the build that is ready
}

// The states, in order.
const (
	RestartChecking = "checking" // whether the program and the configuration are valid
	RestartRefused  = "refused"  // one of them is invalid; nothing has changed
	RestartStopping = "stopping" // requests end, windows go into the journal
	RestartOpening  = "opening"  // the next image reads, and opens the stores
	RestartReady    = "ready"    // it answers
)
