// Package tsdb keeps samples on disk: for each tenant one Prometheus TSDB for
// what came as samples (raw) and one for each width of tiles, under
// tsdb/<tenant>/<store> in the data directory.
//
// It makes writes idempotent, which a TSDB alone is not: a sample that is there
// already is success, another value at its time is refused and counted, and
// every sample of a write has exactly one fate. Which store answers which query,
// and what open tiles add, is the querier's business; which tenants exist is
// decided where requests come in.
//
// Files, from the top: what stands in one uses nothing of those above it.
//
//	tsdb.go         Stores: all of them, opened and closed
//	used.go         which were in use, and open before the server is ready
//	retention.go    how long they keep their samples
//	snapshot.go     copies and their check
//	read.go         what queries read
//	tiles.go        WriteTiles
//	raw.go          WriteRequests, whose phases follow
//	rawlookup.go
//	raworder.go
//	rawappend.go
//	rawexemplar.go
//	rawrefuse.go
//	opening.go      a store's way to be open, or broken
//	store.go        the place of one database, its users and its commits
//	damage.go       what can be wrong with the files of one
//	database.go     one that is open
//	rawcache.go     what is known of its series: of requests
//	references.go   of tiles
//	newcomers.go    which are told of
//	exemplars.go
//	histogram.go
//	same.go         when two samples are the same
//	broken.go       what is said of a store that is broken
//	metrics.go
//	config.go
//	kinds.go        the stores of a tenant, and errors and bounds of all
package tsdb
