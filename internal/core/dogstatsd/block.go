package dogstatsd

// marks are the places of the bytes that structure a line: bit i stands for byte i of a block.
//
// The parser first marks the whole datagram, block by block. Searching for one byte after another
// is slower: each search waits for the one before, and ends in an unpredictable branch. Blocks do
// not depend on each other.
type marks struct {
	ends   uint64 // '|' and '\n'
	colons uint64 // ':'
}

// blockSize is the number of bytes in a block.
const blockSize = 64
