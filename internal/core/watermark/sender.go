package watermark

import (
	"cmp"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// Key identifies a sender. The servers of an HA pair are one sender, since one of them is enough.
type Key struct {
	Sender sender.Sender // zero for an HA pair
	Pair   string        // the cluster of an HA pair; otherwise empty
}

func (k Key) clone() Key { return Key{k.Sender.Clone(), strings.Clone(k.Pair)} }

// String names the sender for people.
func (k Key) String() string {
	if k.Pair != "" {
		return "HA pair " + k.Pair
	}
	return k.Sender.String()
}

func byMark(a, b Late) int {
	return cmp.Or(cmp.Compare(a.Mark, b.Mark), cmp.Compare(a.Sender, b.Sender))
}

const (
	// samples is how many bursts a sender's habits are taken from.
	samples = 8

	// A burst is what a sender sends within this time: a scrape of many series is many requests.
	burst = second

	// fewest is how many gaps between bursts make a sender one that is expected. A script that sends
	// once is not.
	fewest = 2

	// slowest is the longest gap, and the longest usual lag, of a sender that rules wait for. Waiting
	// for a job that sends every hour would stop alerts for an hour.
	slowest = 120 * second

	// shards is how long a part of a sender that drains a backlog may be without a request. Prometheus
	// sends its series over several connections at once, in parts that know nothing of each other, and
	// each sends at least every 5 s.
	shards = 5 * second
)

// state is what is known of a sender.
type state struct {
	newest  int64   // time of the newest sample
	heard   int64   // when it was last heard
	arrival int64   // as heard, but later by the time since then in which no process ran
	burst   int64   // when its last burst began
	gaps    []int64 // between its last bursts, at most `samples`
	lags    []int64 // the least lag of each of these bursts: how old its newest sample was
	longer  int64   // the last gap, if the sender was overdue and yet had no backlog; otherwise 0

	awaited     bool // it should have sent while no process ran, and has not sent since
	behind      bool // it drains a backlog
	this, other part // the requests of the last 5 to 10 s, while behind

	// A backlog must shrink. While behind, its greatest lag is compared with that of checkedLag, once it is as old as
	// the timeout.
	checkedLag, checked int64
	// uneven is when a sender whose backlog did not shrink last sent old samples; 0 if it has not for the timeout.
	// It sends fresh samples and old ones, as some exporters do, and rules do not wait for the old ones.
	uneven int64
	told   bool // Gone has returned that it is uneven
}

// part has the extremes of the requests of some seconds.
type part struct {
	since  int64
	oldest int64 // the least of their newest samples
	lag    int64 // the greatest of their lags
}

func newState(now int64) *state { return &state{heard: now, arrival: now, burst: now} }

// sent notes a request.
func (s *state) sent(now, newest, timeout int64) {
	lag := now - newest
	overdue := s.expected() && now-s.arrival > s.allowance()
	tooOld := s.expected() && lag > s.usualLag()+s.allowance()
	first := len(s.lags) == 0
	if gap := now - s.burst; gap >= burst || first {
		if !first {
			s.paused(gap, overdue, tooOld)
		}
		if !tooOld {
			s.lags = pushed(s.lags, lag)
		}
		s.burst = now
	} else if !tooOld {
		s.lags[len(s.lags)-1] = min(s.lags[len(s.lags)-1], lag)
	}
	s.heard, s.arrival, s.awaited = now, now, false
	s.newest = max(s.newest, newest)
	if !s.isUneven(now, tooOld, timeout) {
		s.follow(now, newest, lag, tooOld)
		s.shrinks(now, timeout)
	}
}

// paused notes the gap before a burst. An outage is no habit. But if a sender is overdue twice in a row, and has no
// backlog, it sends less often now: it was reloaded, or has drained a backlog.
func (s *state) paused(gap int64, overdue, tooOld bool) {
	longer := s.longer
	s.longer = 0
	switch {
	case s.awaited, overdue && (tooOld || gap > slowest):
	case overdue && longer == 0:
		s.longer = gap
	default:
		s.gaps = pushed(s.gaps, gap)
	}
}

// follow decides whether the sender drains a backlog. It does until none of its requests of the last
// seconds was too old.
func (s *state) follow(now, newest, lag int64, tooOld bool) {
	switch {
	case tooOld && !s.behind: // what came before says nothing about the backlog
		s.behind = true
		s.this = part{now, newest, lag}
		s.other = s.this
	case !s.behind:
		return
	case now-s.this.since >= shards:
		s.other, s.this = s.this, part{now, newest, lag}
	default:
		s.this.oldest, s.this.lag = min(s.this.oldest, newest), max(s.this.lag, lag)
	}
	s.behind = tooOld || max(s.this.lag, s.other.lag) > s.usualLag()+s.allowance()
}

// shrinks looks whether a backlog has become smaller since the last check. If not, it is none.
func (s *state) shrinks(now, timeout int64) {
	lag := max(s.this.lag, s.other.lag)
	switch {
	case !s.behind:
		s.checked = 0
	case s.checked == 0:
		s.checkedLag, s.checked = lag, now
	case now-s.checked < 2*shards: // the parts of a sender may have backlogs of different ages
		s.checkedLag = max(s.checkedLag, lag)
	case now-s.checked < timeout:
	case lag < s.checkedLag-second:
		s.checkedLag, s.checked = lag, now
	default:
		s.behind, s.checked, s.uneven, s.told = false, 0, now, false
	}
}

// isUneven notes a request of an uneven sender, and reports whether it still is one.
func (s *state) isUneven(now int64, tooOld bool, timeout int64) bool {
	switch {
	case s.uneven == 0:
	case tooOld:
		s.uneven = now
	case now-s.uneven >= timeout:
		s.uneven = 0
	}
	return s.uneven > 0
}

// mark is the time up to which the sender has delivered.
func (s *state) mark() int64 {
	if s.behind {
		return min(s.this.oldest, s.other.oldest)
	}
	return s.newest
}

// expected reports whether rules wait for the sender.
func (s *state) expected() bool {
	return len(s.lags) > 0 && len(s.gaps) >= fewest && slices.Max(s.gaps) <= slowest && s.usualLag() <= slowest
}

// allowance is how long the sender may be silent, and how much older than usual its samples may be. The
// sender must be expected.
func (s *state) allowance() int64 { return max(second, slices.Max(s.gaps))*3/2 + patience }

func (s *state) usualLag() int64 { return slices.Min(s.lags) }

func pushed(list []int64, x int64) []int64 {
	if len(list) == samples {
		list = append(list[:0], list[1:]...)
	}
	return append(list, x)
}
