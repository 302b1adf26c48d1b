package member

import "testing"

// pass lets time pass for a clock.
func (c *clocks) pass(ms int64) {
	for end := c.now + ms; c.now < end; {
		c.tell(c.now + 100)
	}
}

// A network that stalled for some seconds delivers old messages, which make all other clocks look slow.
// The clocks that were heard before the stall are still right.
func TestDelayedMessagesMakeNoClockWrong(t *testing.T) {
	var c clocks
	c.tell(base)
	c.heard(2, c.now-10)
	c.heard(3, c.now-10)
	c.pass(4000)
	for _, member := range []uint64{2, 3} {
		c.heard(member, c.now-4000)
	}
	if off, known := c.median(); !known || off != -10 || c.wrong() {
		t.Errorf("the median is %d ms ahead, want -10; known: %v, wrong: %v", off, known, c.wrong())
	}
}

// If all messages to a member were late, it believes that its own clock is wrong. If all members believe
// so, none of them sends anything. So a member that has heard nobody for a while must campaign again.
func TestNobodyStaysWrongForEver(t *testing.T) {
	var c clocks
	c.tell(base)
	c.heard(2, c.now-4000)
	c.heard(3, c.now-4000)
	if !c.wrong() {
		t.Error("the clock counts as right, although two members seem to be 4 s behind")
	}
	c.pass(fresh + 200)
	if c.wrong() {
		t.Error("the clock still counts as wrong, although nobody was heard for 10 s")
	}
}

// A clock that is 2 s off the median is right, and a clock that is further off is wrong. Nobody asks its
// member to lead.
func TestTwoSecondsAreTheLimit(t *testing.T) {
	for off, right := range map[int64]bool{2000: true, 2001: false, -2000: true, -2001: false} {
		var ours, theirs clocks
		ours.tell(base + off)
		theirs.tell(base)
		for _, c := range []*clocks{&ours, &theirs} {
			c.heard(2, base)
			c.heard(3, base)
		}
		theirs.heard(4, base+off)
		if ours.wrong() == right || theirs.trusts(4) != right {
			t.Errorf("a clock is %d ms off: its member believes it is wrong: %v; another member trusts it: %v", off,
				ours.wrong(), theirs.trusts(4))
		}
	}
}

// A clock that leaps is wrong at once, and right again once it leaps back.
func TestALeap(t *testing.T) {
	for _, leap := range []int64{3_600_000, 5000, -5000, -3_600_000} {
		var c clocks
		c.tell(base)
		c.heard(2, c.now)
		c.heard(3, c.now)
		c.tell(c.now + leap)
		if !c.wrong() {
			t.Errorf("the clock leapt by %d ms, but counts as right", leap)
		}
		if c.right() != base {
			t.Errorf("the clock leapt by %d ms, and the time from the median is %d ms off", leap, c.right()-base)
		}
		if off := c.arrival() - base; off < -maxSkew || off > maxAhead {
			t.Errorf("the clock leapt by %d ms, and requests come in %d ms off", leap, off)
		}
		c.heard(2, c.now-leap)
		c.tell(c.now + 100 - leap)
		if c.wrong() {
			t.Errorf("the clock leapt by %d ms and back, but counts as wrong", leap)
		}
	}
}

// If another member's clock is set back, its new time counts within some seconds, though its earlier
// messages looked faster.
func TestAnotherClockIsSetBack(t *testing.T) {
	var c clocks
	c.tell(base)
	for range 100 {
		c.pass(100)
		for _, member := range []uint64{2, 3} {
			if c.heard(member, c.now-5000); c.now == base+100 {
				c.heard(member, c.now)
			}
		}
	}
	if off, known := c.median(); !known || off != -5000 {
		t.Errorf("the median is %d ms ahead, want -5000; known: %v", off, known)
	}
}

// With two clocks, nobody can tell which one is wrong. The leader closes tiles at most a second ahead of
// the slower one. The faster one shows the latest possible time. A clock that was not heard for long is
// of no use.
func TestTwoClocks(t *testing.T) {
	for _, x := range []struct{ ahead, bounded, latest, apart int64 }{
		{-3_600_000, maxAhead - 3_600_000, 0, 3_600_000},
		{-maxApart - 1, maxAhead - maxApart - 1, 0, maxApart + 1},
		{-3000, maxAhead - 3000, 0, 0},
		{-500, 0, 0, 0},
		{0, 0, 0, 0},
		{3000, 0, 3000, 0},
		{3_600_000, 0, 3_600_000, 3_600_000},
	} {
		var c clocks
		c.tell(base)
		c.heard(2, c.now+x.ahead)
		if b, l := c.bounded()-c.now, c.latest()-c.now; b != x.bounded || l != x.latest || c.apart() != x.apart || c.wrong() {
			t.Errorf("the other clock is %d ms ahead: bounded %d, latest %d, apart %d, want %d, %d, %d; wrong: %v",
				x.ahead, b, l, c.apart(), x.bounded, x.latest, x.apart, c.wrong())
		}
		c.heard(3, c.now)
		if c.bounded() != c.now || c.latest() != c.now || c.apart() != 0 {
			t.Errorf("the second of three clocks is %d ms ahead: bounded %d, latest %d, apart %d, want 0", x.ahead,
				c.bounded()-c.now, c.latest()-c.now, c.apart())
		}
		c.pass(fresh + 200)
		if c.bounded() != c.now || c.latest() != c.now || c.apart() != 0 {
			t.Errorf("the other clock was %d ms ahead, and counts though it is old", x.ahead)
		}
	}
}
