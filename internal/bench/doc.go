// Package bench is the command bench: it sends a precisely known load to a server, asks the server for
// its books and its cost, and reports them. core/load and core/remoteload make the loads, and
// adapter/loadgen sends them.
//
// The files, from the top:
//
//	bench.go           the command
//	packets.go         bench dogstatsd: flags, and the order of a measurement
//	packets_max.go     the highest rate without loss
//	packets_report.go  what is printed
//	packets_run.go     one run of a load
//	packets_books.go   whether the receiver's books account for it
//	writes.go          bench remote-write: flags, and the order of a measurement
//	writes_report.go   what is printed
//	writes_run.go      the load, and the queries that find it again
//	receiver.go        the server that is measured, started or found
//	figures.go         numbers for people
package bench
