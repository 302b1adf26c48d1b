// Package tsdb keeps samples on disk. Each tenant has one Prometheus TSDB for samples that came
// as samples (raw) and one for each width of tiles, under tsdb/<tenant>/<store> in the data
// directory.
//
// It makes writes idempotent, unlike a TSDB alone: repeating a stored sample succeeds,
// another value at its time is refused and counted, and every sample of a write has exactly one
// fate. The querier decides which store answers a query, and adds open tiles. The ways in for
// requests decide which tenants exist.
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
