package collector

// shared is what the listeners of a collector have in common.
type shared struct {
	Options
	closed  chan closedWindow
	flusher *flusher
	windows *progress
	reports reports
	taps    taps
	top     *tops
}
