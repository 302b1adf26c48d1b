// Package m3pool compares how Freshet and Uber's M3 pass batches to goroutines.
//
// M3 started a goroutine for each batch; a channel of tokens bounded their number. A goroutine
// starts with a stack of 2 KiB. When the stack is too small, the runtime copies it to a stack of
// twice the size. M3's write path was over 30 calls deep, so almost every batch paid for a copy,
// and a helper that was no longer inlined made this worse. M3's benchmarks had shallow calls and
// never showed the copies. The solution was a pool of long-lived goroutines. They are replaced now
// and then, so that no large stack lives for ever.
//
// Run it with
//
//	go test -C lab -bench . ./m3pool
//
// Benchmarks are named depth/technique. One operation is one batch: the same work in 33 calls,
// either nested or one after the other. In "regression" the helper is not inlined. The stack then
// no longer fits into 4 KiB, so each batch grows it once more. In "regression fixed" the helper is
// inlined again. This is better, but still takes one growth for each batch. The pools are measured
// with the regression, which does not affect them. The sizes of frames, and so the growths, hold
// for builds without the race detector. Batches come in bursts, as from a tier that flushes at
// intervals, and the next burst waits until the previous burst is done. ns/op is CPU time of all
// threads, including the thread that pushes.
//
// There are two ways to see stacks grow, and neither needs a patched compiler. growths/op is exact:
// the work checks whether one of its variables has moved. growth-% also suits programs whose work
// cannot be changed. It is the share of a CPU profile's samples in which the runtime grows a stack.
// This command prints it for any program:
//
//	go tool pprof -top -focus '^runtime\.(newstack|copystack)$' profile
//
// Since Go 1.19 a goroutine starts with a stack of the average size that the garbage collector saw.
// This helps neither here nor in a server whose goroutines mostly wait, since the average is still
// 2 KiB.
package m3pool
