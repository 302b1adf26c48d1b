package collector

// shared holds the parts that all listeners of a collector use.
type shared struct {
	Options
	closed  chan closedWindow
	flusher *flusher
	windows *progress
	reports reports
	taps    taps
	top     *tops
}
