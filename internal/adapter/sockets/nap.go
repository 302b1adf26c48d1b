//go:build linux

package sockets

import "time"

const (
	// longestNap keeps a reader that sees a quiet socket safe from a burst: in 5 ms
	// a sender that sends as fast as it can, 400,000 datagrams of 1,432 bytes a
	// second, fills half of the default buffer. A nap costs 15 to 50 us, so 200 a
	// second take less than a hundredth of a core.
	longestNap = 5 * time.Millisecond

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
