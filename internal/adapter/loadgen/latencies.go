//go:build linux

package loadgen

import (
	"math"
	"math/bits"
	"time"
)

// Latencies is a histogram of durations, exact to 2 %. It takes 8 KiB for any number of durations.
type Latencies struct {
	counts  [(64 - stepBits + 1) << stepBits]uint32
	total   uint64
	longest time.Duration
}

// stepBits sets the resolution: the range between two powers of two has 1<<stepBits buckets.
const stepBits = 5

func (l *Latencies) add(d time.Duration) {
	d = max(0, d)
	l.counts[bucketOf(uint64(d.Microseconds()))]++
	l.total++
	l.longest = max(l.longest, d)
}

// bucketOf returns the bucket of a size. Each size below 64 has a bucket of its own. Larger sizes
// with the same highest bits share a bucket.
func bucketOf(v uint64) int {
	shift := max(0, bits.Len64(v)-stepBits-1)
	return shift<<stepBits + int(v>>shift)
}

// Quantile returns a duration that a fraction q (0 to 1) of all durations did not exceed, or 0 if
// there are no durations.
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

// upperOf returns the largest duration of a bucket.
func upperOf(i int) time.Duration {
	shift := max(0, i>>stepBits-1)
	low := uint64(i-shift<<stepBits) << shift
	return time.Duration(low+1<<shift-1) * time.Microsecond
}

// Count returns the number of durations.
func (l *Latencies) Count() uint64 { return l.total }

// Max returns the longest duration.
func (l *Latencies) Max() time.Duration { return l.longest }
