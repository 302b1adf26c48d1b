//go:build linux

package loadgen

import (
	"math"
	"math/bits"
	"time"
)

// Latencies are durations by their size, to within 2 %, in 8 KiB however many they are.
type Latencies struct {
	counts  [(64 - stepBits + 1) << stepBits]uint32
	total   uint64
	longest time.Duration
}

// stepBits are as many as tell sizes between two powers of two apart.
const stepBits = 5

func (l *Latencies) add(d time.Duration) {
	d = max(0, d)
	l.counts[bucketOf(uint64(d.Microseconds()))]++
	l.total++
	l.longest = max(l.longest, d)
}

// bucketOf numbers sizes: those below 64 each, larger ones by their highest bits.
func bucketOf(v uint64) int {
	shift := max(0, bits.Len64(v)-stepBits-1)
	return shift<<stepBits + int(v>>shift)
}

// Quantile is a duration that the given part of all, from 0 to 1, did not exceed; 0 if
// there are none.
func (l *Latencies) Quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(l.total)))
	var seen uint64
	for i, n := range l.counts {
		if seen += uint64(n); n > 0 && seen >= rank {
			return min(upperOf(i), l.longest)
		}
	}
	return 0
}

// upperOf is the largest of a bucket.
func upperOf(i int) time.Duration {
	shift := max(0, i>>stepBits-1)
	low := uint64(i-shift<<stepBits) << shift
	return time.Duration(low+1<<shift-1) * time.Microsecond
}

// Count is how many there are.
func (l *Latencies) Count() uint64 { return l.total }

// Max is the longest.
func (l *Latencies) Max() time.Duration { return l.longest }
