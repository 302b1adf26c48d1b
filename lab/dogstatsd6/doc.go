// Package dogstatsd6 compares techniques of Freshet with techniques of Datadog's Agent, which was rewritten
// in Go.
//
// The first Go version handled less traffic on a core than the earlier Python version: 45 % of its time
// went to garbage collection, allocation and starting goroutines. Datadog improved the Go version in
// four steps, and described them in a talk. The key of a context became a hash of 128 bits instead of a
// concatenated string. A line was split field by field instead of all at once. A fixed number of workers
// parsed, instead of a goroutine for each packet. Buffers were reused. Freshet takes each step further.
// It finds a context by a seeded hash of its raw bytes and compares the bytes, so it sorts nothing and
// never confuses two contexts. It reads a line in place. The goroutine that reads the socket also
// parses, and keeps its buffers.
//
// Run it with
//
//	go test -C lab -bench . ./dogstatsd6
//
// Benchmarks are named table/technique. One operation is one metric, alone in its packet. A metric has
// 100 bytes and four tags. The metrics belong to 1,000 contexts and have mixed kinds. ns/op is CPU time
// of all threads, so that work still counts if it moves to another core, or to the garbage collector.
// The tests check that the techniques of a table compute the same results.
package dogstatsd6
