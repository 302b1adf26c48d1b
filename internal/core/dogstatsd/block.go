package dogstatsd

// marks says where the bytes stand that give a line its shape: bit i is that of
// byte i of a block.
//
// They are found for the whole datagram first, block by block. A search for one
// byte begins where the last one ended, so it waits for it, and its end is a branch
// that nobody predicts; blocks wait for nothing.
type marks struct {
	ends   uint64 // '|' and '\n'
	colons uint64 // ':'
}

// blockSize is the number of bytes that one marks tells of.
const blockSize = 64
