// Package dogstatsd6 compares the techniques with which Datadog rewrote its agent in Go with
// Freshet's.
//
// The first Go version handled less on a core than the Python one before: 45 % of its time went to
// garbage collection, allocation and starting goroutines. Datadog improved it in four steps. A
// context's key became a hash of 128 bits instead of a concatenation. A line is split field by
// field, no longer all at once. A fixed number of workers parse, no longer a goroutine for each
// packet. Buffers are reused. Freshet takes each step further. It identifies a context by its raw
// bytes, found by a seeded hash and compared, so it sorts nothing and never confuses two contexts.
// It reads a line in place. The goroutine that reads the socket also parses. It never gives buffers
// back.
//
// Run it with
//
//	go test -C lab -bench . ./dogstatsd6
//
// Benchmarks are named table/technique. One operation is one metric of 100 bytes and four
// tags, of 1,000 contexts and mixed kinds, alone in its packet. ns/op is CPU time of all
// threads, so that work moved to another core, or to the garbage collector, still counts. The
// tests check that the techniques of a table compute the same.
package dogstatsd6
