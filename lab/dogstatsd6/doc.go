// Package dogstatsd6 holds the techniques by which Datadog rewrote their agent in
// Go, each beside what Freshet does in its place.
//
// The first Go version did less on a core than the Python one before: 45 % of its
// time went to the garbage collector, to allocation and to starting goroutines. The
// cure was, step by step: a context's key is hashed with 128 bits instead of being
// concatenated; a line is split in two, field by field, instead of all at once; a
// fixed number of workers parse, instead of a goroutine a packet; buffers are
// used again instead of being made for each packet. Freshet takes each step
// further: a context is known by the bytes as they came, found by a seeded hash and
// compared, so that nothing is sorted and no two can be confused; a line is read
// where it lies; whoever reads the socket parses; buffers are never given back.
//
// Run it with
//
//	go test -C lab -bench . ./dogstatsd6
//
// Benchmarks are named table/technique. One operation is one metric of 100 bytes
// and four tags, of 1,000 contexts and mixed kinds, alone in its packet. ns/op is
// CPU time of all threads, so that work that is moved to another core, or to the
// garbage collector, is not lost. The tests hold that the techniques of a table
// compute the same.
package dogstatsd6
