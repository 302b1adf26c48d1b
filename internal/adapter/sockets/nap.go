//go:build linux

package sockets

import "time"

const (
	// longestNap protects a quiet socket from a burst: in 5 ms a sender at full speed, 400,000
	// datagrams of 1,432 bytes a second, fills half of the default buffer. A nap costs 10 to 30 us,
	// so 200 a second take less than a hundredth of a core.
	longestNap = 5 * time.Millisecond

	// shortestNap keeps naps below a few hundredths of a core.
	shortestNap = time.Millisecond

	// napGathers is how many datagrams a nap aims to gather. Divided by this many datagrams, the
	// cost of a nap is almost nothing, and the datagrams still fit into the CPU's cache.
	napGathers = 512

	// napWorth is the smallest number of datagrams for which one nap costs less than one wake-up per
	// datagram. A nap costs as much as one wake-up.
	napWorth = 2

	// napFills bounds a nap: if the rate stays the same, a nap fills at most 1/napFills of the
	// receive buffer. The rest is for bursts, and for times when the processors are busy.
	napFills = 4

	// calmAfterDrops is the time for which a reader stops napping after the kernel dropped datagrams.
	// During bursts that fill the buffer, the reader must read datagrams as they come.
	calmAfterDrops = 5 * time.Second
)

// napAfter returns how long to let datagrams gather before the next read, or 0 to wait for the
// first datagram. `elapsed` is the time since the socket was last empty, and `packets` is the
// number of datagrams since then. They filled `used` bytes of the buffer, which has `size` bytes.
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
