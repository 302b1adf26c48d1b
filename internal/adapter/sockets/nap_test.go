//go:build linux

package sockets

import (
	"testing"
	"time"
)

func TestNapAfter(t *testing.T) {
	const short, full, buffer = 832, 2304, 2 * DefaultReceiveBuffer // as the kernel counts
	for _, tt := range []struct {
		name       string
		elapsed    time.Duration
		packets    int
		used, size uint32
		want       time.Duration
	}{
		{"silence", 10 * time.Millisecond, 0, 0, buffer, 0},
		{"a packet an hour", time.Hour, 1, short, buffer, 0},
		{"300 a second: a waking for each is as cheap", 10 * time.Millisecond, 3, 3 * short, buffer, 0},
		{"400 a second", 10 * time.Millisecond, 4, 4 * short, buffer, longestNap},
		{"40,000 a second", 10 * time.Millisecond, 400, 400 * short, buffer, longestNap},
		{"40,000 a second, read one by one until now", 25 * time.Microsecond, 1, short, buffer, longestNap},
		{"200,000 a second: 512 are enough", 10 * time.Millisecond, 2000, 2000 * short, buffer, 2560 * time.Microsecond},
		{"2,000,000 a second: as short as it goes", time.Millisecond, 2000, 2000 * short, buffer, shortestNap},
		{"the buffer would fill a quarter in 5 ms", 10 * time.Millisecond, 86, 86 * full, 4 * 43 * full, 5 * time.Millisecond},
		{"the same into a buffer of 4 KiB", 25 * time.Microsecond, 1, short, 2 * 4096, 0},
		{"a buffer that was full", 10 * time.Millisecond, 10000, buffer, buffer, shortestNap},
		{"a buffer that was full at once", time.Millisecond, 10000, buffer, buffer, 0},
		{"nobody knows how much the buffer takes", 10 * time.Millisecond, 400, 0, buffer, 0},
		{"a clock that stood still", 0, 64, 64 * short, buffer, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := napAfter(tt.elapsed, tt.packets, tt.used, tt.size); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
