// Package tsdb keeps samples on disk. Each tenant has one Prometheus TSDB for raw samples, which
// came by remote write or OTLP, one for results of rules, one for imported blocks, and one for each width of
// tiles. They are under tsdb/<tenant>/<store> in the data directory.
//
// It makes writes idempotent, which a TSDB alone does not: repeating a stored sample succeeds,
// another value at its time is refused and counted, and every sample of a write has exactly one
// fate. The querier decides which store answers a query, and adds open tiles. The packages that
// receive requests decide which tenants exist.
//
// The files, from the top; each uses only identifiers of the files below it:
//
//	tsdb.go         Stores: opens and closes all stores
//	idle.go         closes stores that nobody uses
//	used.go         stores in use, which open before the server is ready
//	retention.go    how long stores keep their samples
//	copycheck.go    the check of copies for other nodes
//	copy.go         copies of all files, from which another node is filled
//	snapshot.go     copies and their check
//	compact.go      compactions by hand, for simulations
//	heads.go        saves the heads of open stores
//	rawstate.go     State
//	sync.go         makes written data survive a power loss
//	staged.go       imported blocks that no query sees yet
//	history.go      imports blocks, and removes them
//	read.go         queriers
//	scrub.go        looks for damage in files that nobody may read for long
//	tiles.go        WriteTiles
//	raw.go          WriteRequests, whose phases are in the files that begin with raw
//	rawcommit.go    samples of requests that wait for the commit
//	rawbounds.go    the times that samples may have
//	tenants.go      the stores of each tenant
//	opening.go      opens stores, and notes broken ones
//	cutback.go      cuts the stores of a group back to their last sync
//	closed.go       the files of a store that change no more, and their check
//	content.go      reads all of a block
//	blockmeta.go    copies of the metadata of blocks
//	hurt.go         damage in the files of an open store
//	store.go        one database, its users and its commits
//	savehead.go     saves the head of a store
//	logsync.go      syncs the logs before each acknowledgement
//	renumber.go     late samples of a series that has several numbers
//	savedhead.go    the saved head of a closed store
//	headnumbers.go  numbers that the head has given to series
//	numbers.go      late samples on disk, and the numbers of series
//	headcheck.go    damage in chunks of the head
//	logcheck.go     damage in the files of a closed store, which tsdb would repair
//	headnote.go     what a saved head needs of the other files of its store
//	ends.go         where the logs of a store ended at its last sync
//	turns.go        how many stores compact at a time
//	unsynced.go     syncs the files of a store, and notes whose sync failed
//	historyparts.go parts of imported blocks, and blocks that are removed
//	damage.go       what can be wrong with a store's files
//	headparts.go    parts of a head that tsdb does not export
//	database.go     an open TSDB
//	rawcache.go     known series of requests
//	rawlookup.go    finds known series by the labels as sent
//	rawpast.go      late samples of a series, and the samples beside them
//	raworder.go     where a sample lies among the samples of its series
//	rawexemplar.go  how exemplars are read
//	rawsent.go      a series of a request, and a sample of it
//	references.go   known series of tiles
//	newcomers.go    series that are new to a database
//	exemplars.go
//	histogram.go
//	same.go         when two samples are the same
//	broken.go       why a store is broken
//	metrics.go
//	tsdbmetrics.go  metrics of tsdb, added up over databases
//	config.go
//	kinds.go        the kinds of stores, and errors of all stores
package tsdb
