// Package m3pool compares Freshet's technique to give batches to goroutines with the techniques of
// Uber's M3.
//
// M3 started a goroutine for each batch; a channel of tokens bounded their number. A goroutine
// starts with a stack of 2 KiB, which grows by being copied to a stack twice as large. M3's write
// path was over 30 calls deep, so almost every batch paid for a copy, and a helper that was no
// longer inlined made it worse. M3's benchmarks had shallow calls and never showed the copies. The
// cure was a pool of long-lived goroutines, which are replaced now and then so that no large stack
// lives for ever.
//
// Run it with
//
//	go test -C lab -bench . ./m3pool
//
// Benchmarks are named depth/technique. One operation is one batch: the same work in 33 calls,
// either nested or one after the other. In "regression" the helper is not inlined: the stack no
// longer fits into 4 KiB, so each batch grows it once more. In "regression fixed" it is inlined
// again, which is better but still takes one growth for each batch. The pools are measured with the
// regression, which does not affect them. The sizes of frames, and so the growths, hold for builds
// without the race detector. Batches come in bursts, as from a tier that flushes at intervals, and
// the next burst waits until the one before is done. ns/op is CPU time of all threads, including
// the pushing one.
//
// There are two ways to see growing stacks, and neither needs a patched compiler. growths/op is
// exact: the work checks whether one of its variables has moved. growth-% is for programs whose
// work cannot be changed: the share of a CPU profile's samples in which the runtime grows a stack.
// For any program it is printed by
//
//	go tool pprof -top -focus '^runtime\.(newstack|copystack)$' profile
//
// Since Go 1.19 a goroutine starts with the average stack that the garbage collector met. That
// does not help here, nor in a server whose goroutines mostly wait: the average is still 2
// KiB.
package m3pool
