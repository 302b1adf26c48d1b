//go:build !amd64

package dogstatsd

// marking is off: without vector instructions the marks cost more than they save. So parseLine reads
// every line.
const marking = false

func markBlocks([]byte, []marks) { panic("BUG: marks on a machine that does not mark") }
