package rewrite

import (
	"testing"

	"github.com/golang/snappy"
)

// A body fits into an entry, whatever its content.
func TestTheWorstBodyFits(t *testing.T) {
	for _, size := range []int{100, targetBody, maxBody} {
		if got := snappy.MaxEncodedLen(decompressed(size)); got > size || got < size-size/100-10 {
			t.Errorf("%d bytes of %d", got, size)
		}
	}
}
