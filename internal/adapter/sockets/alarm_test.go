//go:build linux

package sockets

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
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
		arm := func(d time.Duration) { a.arm(now.UnixNano(), at(d).UnixNano()) }

		arm(time.Second)
		expect("a new window", at(time.Second))
		arm(time.Second)
		expect("the same window costs nothing")
		a.passed()
		arm(time.Second)
		expect("the clock stepped back, so the same end lies ahead once more", at(time.Second))
		arm(-time.Second)
		expect("the past would end every read", at(time.Millisecond))
		cancel()
		expect("the context ends a read that waits", longAgo)
		arm(2 * time.Second)
		expect("the context has the last word", at(2*time.Second), longAgo)
	})
}
