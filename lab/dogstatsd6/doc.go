// Package dogstatsd6 holds the techniques with which Datadog rewrote their agent in Go, each
// beside Freshet's.
//
// The first Go version did less on a core than the Python one before: 45 % of its time went to
// garbage collection, to allocation and to starting goroutines. The cure came in steps: a
// context's key became a hash of 128 bits in place of a concatenation; a line is split in two,
// field by field, and no longer all at once; a fixed number of workers parse, and no longer a
// goroutine for each packet; buffers are used again, and no longer made for each packet.
// Freshet takes each step further: a context is identified by its raw bytes, found by a seeded
// hash and compared, so that nothing is sorted and no two can be confused; a line is read
// where it lies; the goroutine that reads the socket parses; buffers are never given back.
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
