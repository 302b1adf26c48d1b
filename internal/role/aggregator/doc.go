// Package aggregator is the role that turns window batches into tiles: it journals each batch before
// it counts, closes tiles when they are due, hands their samples to the stores, and checkpoints. What
// a tile is, is core/tile's business; what a journal is, core/journal's.
//
// All state belongs to the goroutine in Run, which does one thing after the other: it counts what is
// pushed, closes the tiles that are due, takes back what the stores have written, and goes on with a
// checkpoint. A store is written to in a goroutine for each tenant, and others look at the shards
// under a lock for each.
//
// The files, from the top:
//
//	aggregator.go  what an aggregator is made of, and Run
//	push.go        windows are admitted, journalled together and counted
//	flush.go       tiles that are due are closed
//	write.go       closed tiles are written to the stores of their tenants
//	checkpoint.go  the state of the shards is saved, some at each tick
//	stop.go        the end: writes finish, everything is saved
//	replay.go      the start: the last checkpoint and the journal behind it
//	answers.go     what others ask: open tiles, series, up to when all is counted
//	metrics.go     our own metrics
//	backlog.go     what waits for the stores of one tenant
//	frames.go      what the aggregator writes into its journal
//	journal.go     the journal as the aggregator needs it
//	books.go       the ledger's entries
//	shard.go       one shard: its tiles and its last frame
//	clock.go       a wall clock that leaps is not believed at once
package aggregator
