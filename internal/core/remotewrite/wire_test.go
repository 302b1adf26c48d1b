package remotewrite

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// longVarint reads the same number as slowVarint, which goes byte by byte. The place of the number and
// the bytes after it do not matter. Overlong numbers and numbers with too many bits are no exception.
func TestVarintsAtOnceAndByteByByte(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 200_000 {
		b := make([]byte, random.IntN(14))
		for i := range b {
			b[i] = byte(random.Uint32())
			if random.IntN(4) > 0 {
				b[i] |= 0x80
			}
		}
		if random.IntN(2) == 0 {
			b = append(binary.AppendUvarint(nil, random.Uint64()>>random.IntN(64)), b...)
		}
		i := random.IntN(len(b) + 1)
		v, next := longVarint(b, i)
		if want, end := slowVarint(b, i); v != want || next != end {
			t.Fatalf("% x from byte %d on: number %d, next byte %d, want number %d, next byte %d",
				b, i, v, next, want, end)
		}
	}
}
