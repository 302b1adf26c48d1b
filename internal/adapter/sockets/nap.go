//go:build linux

package sockets

import "time"

const (
	// longestNap is what a measurement may be late by. A nap costs as much as a
	// waking, some 15 us, so at 100 a second they are no longer to be seen.
	longestNap = 10 * time.Millisecond

	// shortestNap is what the runtime's poller can measure.
	shortestNap = time.Millisecond

	// napGathers is how many datagrams are worth waiting for: shared by so many,
	// the nap costs nothing, and what they occupy still fits the CPU's cache.
	napGathers = 512

	// napWorth is from how many datagrams on a nap costs less than a waking for
	// each.
	napWorth = 4

	// napFills is the part of the receive buffer, one in napFills, that may fill
	// during a nap if all goes on as before. The rest is for when it does not:
	// for bursts, and for a reader that finds the processors busy.
	napFills = 4

	// calmAfterDrops is how long a reader does not nap after the kernel dropped
	// something. What comes in such bursts is better read as it comes.
	calmAfterDrops = 5 * time.Second
)

// napAfter returns how long to let datagrams gather before the next read, or 0 to
// wait for the first one. Since it was empty before, elapsed ago, the socket
// received packets datagrams, which filled used of the size bytes of its buffer.
func napAfter(elapsed time.Duration, packets int, used, size uint32) time.Duration {
	if packets == 0 || used == 0 {
		return 0
	}
	interval := float64(elapsed) / float64(packets)
	nap := min(max(interval*napGathers, float64(shortestNap)), float64(longestNap))
	nap = min(nap, float64(elapsed)/float64(used)*float64(size)/napFills)
	if nap < float64(shortestNap) || nap < interval*napWorth {
		return 0
	}
	return time.Duration(nap)
}
