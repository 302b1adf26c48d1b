// Package cortex compares Freshet's way to decode remote write with the ways of Cortex.
//
// Cortex' distributor spent its time decoding protobuf: first by reflection, into messages that
// point to messages, then by generated code that copies each label's name and value into a string.
// A request of 100 samples with 7 labels each made 1,400 small strings, and garbage collection
// added to that: the 99th percentile of the latency fell from 80 to 25 ms when labels became views
// of the request.
//
// Run it with
//
//	go test -C lab -bench . ./cortex
//
// Benchmarks are named shape/technique, and one operation is one sample. gc-% is the garbage
// collector's share of the process' CPU time, while all cores decode and about one request a
// core is alive. "ours, by key" is the cost of a known series; "ours" reads every label, as
// for a new series.
package cortex
