package answer

// Restart is how far a restart has come: the file restart.json in the data
// directory, which freshet restart watches.
type Restart struct {
	PID   int    `json:"pid"`
	At    int64  `json:"at_ms"` // Unix ms, when this was written
	State string `json:"state"`
	Why   string `json:"why,omitempty"` // it is refused

	Proxied        string  `json:"proxied,omitempty"`            // header of a proxy that has come
	StoppedReading int64   `json:"stopped_reading_ns,omitempty"` // Unix ns
	Gap            float64 `json:"gap_seconds,omitempty"`        // for which nobody read the sockets
	Build          string  `json:"build,omitempty"`              // that is ready
}

// The states, in their order.
const (
	RestartChecking = "checking" // whether the program and the configuration are good
	RestartRefused  = "refused"  // they are not: nothing has changed
	RestartStopping = "stopping" // requests end, windows are on their way into the journal
	RestartOpening  = "opening"  // the next image reads, and opens the stores
	RestartReady    = "ready"    // it answers
)
