//go:build linux

package sockets

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set []time.Time
		ctx, cancel := context.WithCancel(t.Context())
		a, stop := newAlarm(ctx, func(at time.Time) error { set = append(set, at); return nil })
		defer stop()
		expect := func(what string, want ...time.Time) {
			t.Helper()
			synctest.Wait()
			if !slices.EqualFunc(set, want, time.Time.Equal) {
				t.Errorf("%s: deadlines %v, want %v", what, set, want)
			}
			set = nil
		}
		now := time.Now()
		at := func(d time.Duration) time.Time { return now.Add(d) }
		arm := func(d time.Duration) { a.arm(now, at(d).UnixNano()) }

		arm(time.Second)
		expect("a new window", at(time.Second))
		arm(time.Second)
		expect("the same window does not set the deadline again")
		a.passed()
		arm(time.Second)
		expect("the clock was set back, so the end of the window is in the future again", at(time.Second))
		arm(-time.Second)
		expect("a time in the past becomes a millisecond from now", at(time.Millisecond))
		a.nap(now, 5*time.Millisecond, at(time.Second).UnixNano())
		expect("a nap", at(5*time.Millisecond))
		a.nap(now, 5*time.Millisecond, at(2*time.Millisecond).UnixNano())
		expect("a nap ends with the window at the latest", at(2*time.Millisecond))
		arm(time.Second)
		expect("the window after a nap", at(time.Second))
		cancel()
		expect("the context ends a read that waits", longAgo)
		arm(2 * time.Second)
		expect("after the context ends, arm leaves the deadline in the past", at(2*time.Second), longAgo)
	})
}

// The wall clock may be set back after a reader has read it and before the deadline is set: the
// wait must not grow by the step.
func TestTheAlarmIgnoresAStepOfTheWallClock(t *testing.T) {
	var left time.Duration
	a, stop := newAlarm(t.Context(), func(at time.Time) error { left = time.Until(at); return nil })
	defer stop()
	before := stepped(time.Now())
	if step := time.Until(before.Round(0)); step < 59*time.Minute {
		t.Fatalf("the clock was set back by only %v, so this test checks nothing", step)
	}
	a.nap(before, 5*time.Millisecond, before.Add(time.Second).UnixNano())
	if left > 5*time.Millisecond {
		t.Errorf("a nap of 5ms takes %v", left)
	}
	a.arm(before, before.Add(time.Second).UnixNano())
	if left > time.Second {
		t.Errorf("a window that ends in 1s has a deadline in %v", left)
	}
}

// stepped returns the time `at` as if it had been read before the wall clock was set back by an
// hour. The monotonic clock has no steps.
func stepped(at time.Time) time.Time {
	// The first word of a time.Time has the wall clock's seconds above 30 bits of nanoseconds.
	*(*uint64)(unsafe.Pointer(&at)) += 3600 << 30
	return at
}
