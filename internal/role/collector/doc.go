// Package collector is the role that reads DogStatsD sockets and hands what it
// counted to the aggregator, once a second. Each listener has a table of its own
// and shares nothing until a window closes; one flusher turns windows into
// batches. Sockets are adapter/sockets' business, tables core/window's.
//
// The files, from the top:
//
//	reload.go     another configuration is put in force
//	leave.go      sockets are left to a successor
//	topview.go    what is busiest, for people
//	flusher.go    windows are handed to the aggregators
//	tap.go        copies of what arrives, for those who look on
//	resolver.go   the series of a context
//	metrics.go    our own metrics
//	probes.go     datagrams that Freshet sends itself
//	books.go      the ledger's entries
//	top.go        what is busiest, counted while somebody looks
//	collector.go  what a collector is made of, and Run
//	limits.go     who is over a limit
//	progress.go   up to when everything is handed on
//	listener.go   what one socket receives, counted in windows
//	lately.go     what came to it in the last seconds
package collector
