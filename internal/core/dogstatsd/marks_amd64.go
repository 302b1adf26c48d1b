package dogstatsd

// marking: lines are read by their marks.
const marking = true

// markBlocks sets dst[i] to the marks of block i of b, whose length is a multiple
// of blockSize and not 0.
func markBlocks(b []byte, dst []marks) {
	dst = dst[:len(b)/blockSize]
	markSSE2(&b[0], &dst[0], len(dst))
}

// markSSE2 marks n > 0 blocks. SSE2 is what every amd64 has; the same in Go takes
// 8 times as long.
//
//go:noescape
func markSSE2(b *byte, dst *marks, n int)
