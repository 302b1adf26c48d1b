// Package aggregator is the role that turns window batches into tiles. It journals and then counts each
// batch, closes tiles when they are due, hands their samples to the stores, and checkpoints. core/tile
// defines tiles; core/journal defines the journal. Package tiling has three things: the answers about
// open tiles, our own metrics, and the books.
//
// All state belongs to the goroutine in Run, which does one thing at a time: it counts pushed windows,
// closes the tiles that are due, takes back finished writes, and continues a checkpoint. The stores of
// each tenant are written in a goroutine of their own. Other goroutines read the shards, each under
// its lock.
//
// The files, from the top:
//
//	aggregator.go  the parts of an aggregator, and Run
//	replay.go      the start: the last checkpoint and the journal behind it
//	stop.go        the end: writes finish, everything is saved
//	push.go        windows are admitted, journalled together and counted
//	flush.go       tiles that are due are closed
//	checkpoint.go  the state of the shards is saved, some at each tick
//	write.go       closed tiles are written to the stores of their tenants
//	apply.go       frames change their shards, now or at a replay
//	backlog.go     closed tiles that wait for the stores of one tenant
//	frames.go      the frames in the aggregator's journal
//	journal.go     the journal's methods that the aggregator needs
package aggregator
