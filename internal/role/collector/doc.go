// Package collector is the role that reads DogStatsD sockets and hands its counts to the
// aggregator, once a second. Each listener has its own table and shares nothing until a window
// closes; one flusher turns windows into batches. The sockets are in adapter/sockets, and the
// tables in core/window.
//
// The files, from the top; each uses names of files below it:
//
//	run.go        makes a collector, and runs it
//	reload.go     puts another configuration in force
//	leave.go      leaves sockets to a successor
//	topview.go    an answer with the busiest metrics and senders
//	collector.go  the parts of a collector
//	metrics.go    our own metrics
//	limits.go     metrics over a limit, and their senders
//	listener.go   counts the samples of one socket in windows
//	shared.go     the parts that listeners share
//	flusher.go    hands windows to the aggregator
//	progress.go   the time up to which everything is handed on
//	tap.go        copies of arriving datagrams, for freshet tail and capture
//	top.go        counts the busiest metrics and senders while somebody watches
//	books.go      a listener's counts, and its posts to the ledger
//	lately.go     counts of a listener's last seconds
//	resolver.go   the series of a context
//	probes.go     Freshet's own datagrams
//	terms.go      a listener's configuration
//	options.go    the parts of a collector
package collector
