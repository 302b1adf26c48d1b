// Package m3pool holds the techniques by which Uber's M3 handed batches to
// goroutines, each beside what Freshet does in its place.
//
// Each batch had a fresh goroutine, whose number was bounded by a channel of tokens.
// A goroutine starts with a stack of 2 KiB, which grows by being copied, each time to
// twice its size; their write path was over 30 calls deep, so almost every batch paid
// for it, and a helper that was no longer inlined made it worse. Benchmarks never
// showed it, since they were shallow. The cure was a pool of goroutines that live
// long, and that are replaced now and then so that no large stack lives for ever.
//
// Run it with
//
//	go test -C lab -bench . ./m3pool
//
// Benchmarks are named depth/technique. One operation is one batch: the same work, 33
// calls deep or one after the other. "regression" has the helper out of line: its frame is
// what does not fit in 4 KiB any more, so that each batch grows its stack once more.
// "regression fixed" has it inlined, as before the regression: better, and still a growth
// for each batch. The pools are measured with the regression, which they do not notice.
// Frames, and so the growths, are those of a build without the race detector. Batches come in bursts, as from a tier that
// flushes at intervals, and the next burst waits until all of it is done. ns/op is CPU
// time of all threads, the one that hands over included.
//
// Growing stacks are seen in two ways, neither of which needs a patched compiler.
// growths/op is exact: the work looks whether a variable of its own has moved.
// growth-% is for those who cannot change the work: the part of a CPU profile's
// samples in which the runtime grows a stack, which for any program is
//
//	go tool pprof -top -focus '^runtime\.(newstack|copystack)$' profile
//
// Since Go 1.19 a goroutine starts with the average stack that the garbage collector
// met, which does not help here, nor in a server whose goroutines mostly wait: it is
// still 2 KiB.
package m3pool
