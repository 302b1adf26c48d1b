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
	c.Pushed(1, now-1000, now)
	expect(now, now-1000)
	c.Pushed(2, now-2000, now)
	expect(now, now-2000)
	c.Pushed(1, now, now+1000)
	c.Pushed(2, now-1000, now+1000) // a slow collector
	expect(now+1000, now-1000)
	c.Pushed(2, now-5000, now+1000) // a window of an outbox
	expect(now+1000, now-1000)
	c.Pushed(1, now+3000, now+4000) // collector 2 is silent
	expect(now+4000, now+3000)
	expect(now+7000, now+4500)
}
