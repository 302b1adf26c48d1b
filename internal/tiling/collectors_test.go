package tiling

import "testing"

// Answers reach to the end of the last second that all collectors have pushed. A silent collector delays
// them only for a moment.
func TestCollectors(t *testing.T) {
	var c Collectors
	const now = 1_700_000_000_000
	expect := func(clock, want int64) {
		t.Helper()
		if got := c.Through(clock); got != want {
			t.Errorf("at %+d ms, answers reach to %+d ms, want %+d ms", clock-now, got-now, want-now)
		}
	}
	expect(now, now-2500)
	c.Pushed(1, 1, now-1000, now)
	expect(now, now-1000)
	c.Pushed(2, 1, now-2000, now)
	expect(now, now-2000)
	c.Pushed(1, 1, now, now+1000)
	c.Pushed(2, 1, now-1000, now+1000) // a slow collector
	expect(now+1000, now-1000)
	c.Pushed(2, 1, now-5000, now+1000) // an old window, from an outbox
	expect(now+1000, now-1000)
	c.Pushed(1, 1, now+3000, now+4000) // collector 2 is silent
	expect(now+4000, now+3000)
	expect(now+7000, now+4500)
}

// Nobody waits for a collector that has left, unless its next incarnation pushes.
func TestACollectorLeaves(t *testing.T) {
	const now = 1_700_000_000_000
	var c Collectors
	c.Pushed(1, 1, now, now)
	c.Pushed(2, 1, now-2000, now)
	if c.Left(2, 1); c.Through(now) != now {
		t.Errorf("answers reach to %+d ms, want +0 ms, since the slow collector has left", c.Through(now)-now)
	}
	c.Pushed(2, 2, now-1000, now)
	if c.Left(2, 1); c.Through(now) != now-1000 {
		t.Errorf("answers reach to %+d ms, want -1000 ms, since the next incarnation pushes", c.Through(now)-now)
	}
}
