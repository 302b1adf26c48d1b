package answer

// Restart is the progress of a restart: the file restart.json in the data directory, which freshet
// restart watches.
type Restart struct {
	PID   int    `json:"pid"`
	At    int64  `json:"at_ms"` // Unix ms, when the server wrote the file
	State string `json:"state"`
	Why   string `json:"why,omitempty"` // why the restart was refused

	Proxied        string  `json:"proxied,omitempty"`            // HTTP header that a proxy added to a request
	StoppedReading int64   `json:"stopped_reading_ns,omitempty"` // Unix ns
	Gap            float64 `json:"gap_seconds,omitempty"`        // how long the sockets were not read
	Build          string  `json:"build,omitempty"`              // the build that is ready
}

// The states of a restart, in order.
const (
	RestartChecking = "checking" // the server checks whether the program and the configuration are valid
	RestartRefused  = "refused"  // the program or the configuration is invalid; nothing has changed
	RestartStopping = "stopping" // requests end, and windows go into the journal
	RestartOpening  = "opening"  // the next image reads the sockets, and opens the stores
	RestartReady    = "ready"    // the server answers
)
