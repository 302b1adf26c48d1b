// Package collector is the role that reads DogStatsD sockets and hands what it
// counted to the aggregator, once a second. Each listener has a table of its own
// and shares nothing until a window closes; one flusher turns windows into
// batches. Sockets are adapter/sockets' business, tables core/window's.
//
// The files, from the top; each uses names of those below it, but for listeners, which know
// their collector:
//
//	reload.go     another configuration is put in force
//	leave.go      sockets are left to a successor
//	topview.go    what is busiest, for people
//	collector.go  what a collector is made of, and Run
//	flusher.go    windows are handed to the aggregator
//	tap.go        copies of what arrives, for those who look on
//	top.go        what is busiest, counted while somebody looks
//	limits.go     who is over a limit
//	progress.go   up to when everything is handed on
//	metrics.go    our own metrics
//	listener.go   what one socket receives, counted in windows
//	lately.go     what came to it in the last seconds
//	resolver.go   the series of a context
//	probes.go     datagrams that Freshet sends itself
//	books.go      what a listener did, and the ledger's entries
//	terms.go      what a listener reads by
//	options.go    what a collector works with
package collector
