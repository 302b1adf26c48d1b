// Package collector is the role that reads DogStatsD sockets and hands its counts to the
// aggregator, once a second. Each listener has its own table and shares nothing until a window
// closes; one flusher turns windows into batches. adapter/sockets has the sockets, core/window
// the tables.
//
// The files, from the top; each uses names of files below it, but for listeners, which know
// their collector:
//
//	reload.go     puts another configuration in force
//	leave.go      leaves sockets to a successor
//	topview.go    what is busiest, as an answer
//	collector.go  what a collector is made of, and Run
//	flusher.go    hands windows to the aggregator
//	tap.go        copies of arriving datagrams, for freshet tail and capture
//	top.go        what is busiest, counted while somebody watches
//	limits.go     metrics over a limit, and their senders
//	progress.go   the time up to which everything is handed on
//	metrics.go    our own metrics
//	listener.go   what one socket receives, counted in windows
//	lately.go     counts of a listener's last seconds
//	resolver.go   the series of a context
//	probes.go     Freshet's own datagrams
//	books.go      a listener's counts, and the ledger's entries
//	terms.go      a listener's configuration
//	options.go    the parts of a collector
package collector
