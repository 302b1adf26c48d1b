package collector

import "github.com/freshet-io/freshet/internal/core/dogstatsd"

// latelySeconds is how far back a listener knows what came in each second: clients flush each
// 10 s as a rule.
const latelySeconds = 15

// lately is what came to a listener in the last seconds, some kB.
type lately [latelySeconds + 1]struct {
	second    int64 // Unix
	received  uint64
	malformed [dogstatsd.NumReasons]uint64
}

// add counts a window that ended in a second: what was received, and what was malformed until
// then and until the window before.
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

// since adds up the seconds after that.
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
