package collector

import "github.com/freshet-io/freshet/internal/core/dogstatsd"

// latelySeconds is how many seconds back the counts of a listener reach. It exceeds the usual flush
// interval of clients, 10 s.
const latelySeconds = 15

// lately holds a listener's counts for each of the last seconds. It takes some kB.
type lately [latelySeconds + 1]struct {
	second    int64 // Unix seconds
	received  uint64
	malformed [dogstatsd.NumReasons]uint64
}

// add counts a window that ended in `second`. `received` is the number of values received in it.
// `malformed` and `before` are the totals of malformed lines at its end and at the end of the previous
// window.
func (l *lately) add(second int64, received uint64, malformed, before *[dogstatsd.NumReasons]uint64) {
	s := &l[uint64(second)%uint64(len(l))]
	if s.second != second {
		*s = lately{}[0]
		s.second = second
	}
	s.received += received
	for reason := range s.malformed {
		s.malformed[reason] += malformed[reason] - before[reason]
	}
}

// since returns the sum of the counts of all seconds after the given second.
func (l *lately) since(second int64) (received uint64, malformed [dogstatsd.NumReasons]uint64) {
	for i := range l {
		if s := &l[i]; s.second > second {
			received += s.received
			for reason, n := range s.malformed {
				malformed[reason] += n
			}
		}
	}
	return received, malformed
}
