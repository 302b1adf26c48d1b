package client

import (
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"
	"time"
)

// flusher takes the aggregated values, writes them into packets and hands the packets to the socket.
// One goroutine owns it. It holds one packet, and the values of one series that it has taken but not
// written yet. While the socket does not accept the packet, the flusher waits, and all other series
// continue to aggregate.
type flusher struct {
	c      *Client
	socket *socket

	packet []byte           // frameHead bytes for the length, then lines
	load   [numKinds]uint64 // calls whose values are in the packet
	tail   []byte           // the part of a line after its values
	number []byte

	spare   spares
	scratch []float64

	telemetry telemetry
	flushed   time.Time // the time when the last flush began
	reported  time.Time
	trouble   bool   // the last write failed
	lost      uint64 // calls whose packets were dropped because Close stopped waiting
	burst     int    // packets since the last pause
}

const (
	earlyGap    = 50 * time.Millisecond // shortest time between a flush and an early flush
	firstWait   = 20 * time.Millisecond // first pause after a failed write; later pauses double
	lastWait    = 2 * time.Second
	closingWait = 20 * time.Millisecond

	// These pauses let the receiver keep up. The usual buffer of a UDP socket, 208 KiB, holds about 90
	// packets that fill an Ethernet frame, and the scheduler may stop the receiver for some milliseconds.
	burstPackets = 16
	burstPause   = time.Millisecond
)

func newFlusher(c *Client, s *socket) *flusher {
	f := &flusher{c: c, socket: s, packet: make([]byte, frameHead, frameHead+c.options.PacketBytes+2*longestNumber)}
	f.telemetry = telemetry{told: map[string]uint64{}}
	f.reported = time.Now()
	return f
}

func (f *flusher) run() {
	defer close(f.c.done)
	defer f.c.giveUp()
	defer f.socket.hangUp()
	tick := time.NewTicker(f.c.options.FlushInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.flush()
		case <-f.c.early:
			if time.Since(f.flushed) >= earlyGap {
				f.flush()
			}
		case flushed := <-f.c.flushes:
			f.flush()
			if !f.givenUp() {
				close(flushed)
			}
		case <-f.c.closing:
			f.c.closeErr = f.finish()
			return
		}
	}
}

// flush sends the values of all earlier calls.
func (f *flusher) flush() {
	f.flushed, f.burst = time.Now(), 0
	f.socket.startFlush()
	f.c.table.Load().each(func(s *series) { f.take(s, false) })
	for _, s := range f.c.evict() {
		f.take(s, true)
	}
	f.putEvents(false)
	if f.flushed.Sub(f.reported) >= telemetryGap {
		f.report()
	}
	f.send()
}

// finish does the last flush. Calls that are made during it count as unsent.
func (f *flusher) finish() error {
	c := f.c
	c.mu.Lock()
	c.closed.Store(true)
	last := c.table.Load()
	c.overflow = 0
	c.setTable(newTable(minTable))
	c.mu.Unlock()
	f.burst = 0
	f.socket.startFlush()
	last.each(func(s *series) { f.take(s, true) })
	f.putEvents(true)
	f.report()
	f.send()
	if f.lost > 0 {
		return c.stuck("close", fmt.Errorf("%d values are unsent", f.lost))
	}
	return nil
}

// take writes the values of a series into packets and empties the series. With `retire`, the series
// accepts no more calls.
func (f *flusher) take(s *series, retire bool) {
	var calls uint64
	switch s.kind {
	case gauge:
		var v float64
		if v, calls = s.takeGauge(retire); calls > 0 {
			f.taken(s, calls)
			f.putNumber(s, v, calls)
		}
	case count:
		sum := 0.0
		calls = s.takeAll(retire, func(c *cell, retire bool) uint64 {
			part, calls := c.takeSum(retire)
			sum += part
			return calls
		})
		if calls > 0 {
			f.taken(s, calls)
			f.putNumber(s, sum, calls)
		}
	case set:
		calls = s.takeAll(retire, func(c *cell, retire bool) uint64 {
			members, calls := c.takeMembers(retire, &f.c.limits)
			f.taken(s, calls)
			f.putMembers(s, members, calls)
			return calls
		})
	default:
		calls = s.takeAll(retire, func(c *cell, retire bool) uint64 {
			values, calls := c.takeValues(retire, &f.spare, &f.scratch, &f.c.limits)
			f.taken(s, calls)
			f.putValues(s, values, calls)
			return calls
		})
	}
	s.idle = next(s.idle)
	if calls > 0 {
		s.idle = 0
		f.c.counts.contexts[s.kind].Add(1)
	}
}

func (f *flusher) taken(s *series, calls uint64) { f.c.counts.taken[s.kind].Add(calls) }

// putNumber writes the line of a counter or gauge.
func (f *flusher) putNumber(s *series, v float64, calls uint64) {
	if math.IsInf(v, 0) { // the sum overflowed; each call's value was finite
		f.c.counts.infinite[s.kind].Add(calls)
		return
	}
	f.number = appendNumber(f.number[:0], v)
	f.endOf(s, s.rate)
	f.begin(s, 1+len(f.number)+len(f.tail))
	f.packet = append(f.packet, ':')
	f.packet = append(f.packet, f.number...)
	f.packet = append(f.packet, f.tail...)
	f.load[s.kind] += calls
}

// putMembers writes a line for each member of a set.
func (f *flusher) putMembers(s *series, members map[string]string, calls uint64) {
	left := len(members)
	if left == 0 {
		return
	}
	f.endOf(s, s.rate)
	for member := range members {
		f.begin(s, 1+len(member)+len(f.tail))
		f.packet = append(f.packet, ':')
		f.packet = append(f.packet, member...)
		f.packet = append(f.packet, f.tail...)
		if left--; left > 0 {
			f.load[set]++
			calls--
		}
	}
	f.load[set] += calls // the call for the last member, and all calls that repeated a member
}

// putValues writes values, as many to a line as fit into a packet. If the values are a random sample,
// the line has the sampling rate.
func (f *flusher) putValues(s *series, values []float64, calls uint64) {
	if len(values) == 0 {
		return
	}
	rate := s.rate
	if kept := uint64(len(values)); kept < calls {
		rate *= float64(kept) / float64(calls)
		f.c.counts.thinned.Add(calls - kept)
	}
	f.endOf(s, rate)
	text := len(f.c.options.Prefix) + int(s.name) + len(f.tail)
	end := frameHead + f.c.options.PacketBytes - len(f.tail)
	for len(values) > 0 {
		// Begin a line in the rest of a packet only if enough values fit there to make up for the text
		// of the line.
		f.begin(s, max(1+longestNumber, min(8*len(values), text, f.c.options.PacketBytes-text))+len(f.tail))
		n := 0
		for ; n < len(values); n++ {
			at := len(f.packet)
			f.packet = append(f.packet, ':')
			if f.packet = appendNumber(f.packet, values[n]); len(f.packet) > end {
				f.packet = f.packet[:at]
				break
			}
		}
		f.packet = append(f.packet, f.tail...)
		values = values[n:]
		if len(values) == 0 {
			n = int(calls)
		}
		f.load[s.kind] += uint64(n)
		calls -= uint64(n)
	}
}

// endOf writes into f.tail the part of a line that follows the values.
func (f *flusher) endOf(s *series, rate float64) {
	b := append(f.tail[:0], '|')
	b = append(b, kindLetters[s.kind]...)
	if rate != 1 {
		b = append(b, "|@"...)
		b = appendNumber(b, rate)
	}
	if s.tags == 0 {
		b = append(b, f.c.tagless...)
	} else {
		b = append(b, s.text[s.name:]...)
		b = append(b, f.c.tags...)
	}
	f.tail = b
}

// begin writes the name of a series into the packet; n more bytes will follow.
func (f *flusher) begin(s *series, n int) {
	f.makeRoom(len(f.c.options.Prefix) + int(s.name) + n)
	f.packet = append(f.packet, f.c.options.Prefix...)
	f.packet = append(f.packet, s.text[:s.name]...)
}

// makeRoom begins a line of n bytes. If the packet has no room for it, the packet is sent first.
func (f *flusher) makeRoom(n int) {
	if len(f.packet) > frameHead && len(f.packet)+1+n > frameHead+f.c.options.PacketBytes {
		f.send()
	}
	if len(f.packet) > frameHead {
		f.packet = append(f.packet, '\n')
	}
}

func (f *flusher) putEvents(last bool) {
	for _, e := range f.c.events.take(last) {
		f.makeRoom(len(e.text))
		f.packet = append(f.packet, e.text...)
		f.load[e.kind]++
	}
}

// report writes the client's own counts since the last report. The packet with this report is counted
// in the next report.
func (f *flusher) report() {
	f.reported = f.flushed
	if f.c.options.NoTelemetry {
		return
	}
	own := ",client:freshet,client_version:" + version + ",client_transport:" + f.socket.transport()
	constant := "|#" + own[1:] + f.c.tags // c.tags begins with a comma if more tags follow, or else with the next field
	f.telemetry.report(&f.c.counts, func(name string, n uint64, tag string) {
		line := name + ":" + string(appendNumber(nil, float64(n))) + "|c" + constant
		if tag != "" {
			line = name + ":" + string(appendNumber(nil, float64(n))) + "|c|#" + tag + own + f.c.tags
		}
		f.makeRoom(len(line))
		f.packet = append(f.packet, line...)
	})
}

// send hands the packet to the socket. It returns when the socket has accepted the packet or can never
// accept it, or when Close stops waiting.
func (f *flusher) send() {
	if len(f.packet) == frameHead {
		return
	}
	bytes := uint64(len(f.packet) - frameHead)
	n := &f.c.counts
	if f.tryToSend() {
		n.packets.Add(1)
		n.bytes.Add(bytes)
		f.settle(&n.sent)
	} else {
		if f.givenUp() {
			f.lost += f.calls()
		}
		n.droppedPackets.Add(1)
		n.droppedBytes.Add(bytes)
		f.settle(&n.unsent)
	}
	f.packet = f.packet[:frameHead]
	if f.burst++; f.burst%burstPackets == 0 && f.socket.to.network == udp {
		f.pause(burstPause)
	}
}

// calls returns the number of calls whose values are in the packet.
func (f *flusher) calls() (n uint64) {
	for _, calls := range f.load {
		n += calls
	}
	return n
}

func (f *flusher) settle(in *perKind) {
	for k, calls := range f.load {
		in[k].Add(calls)
	}
	f.load = [numKinds]uint64{}
}

func (f *flusher) tryToSend() bool {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		if f.givenUp() {
			return false
		}
		err := f.socket.write(f.c.patience, f.packet)
		f.c.counts.packets.Add(uint64(f.socket.probes))
		f.c.counts.bytes.Add(uint64(f.socket.probes * len(probe)))
		f.socket.probes = 0
		f.tell(err)
		switch {
		case err == nil:
			return true
		case errors.Is(err, syscall.EMSGSIZE):
			return false
		case errors.Is(err, os.ErrDeadlineExceeded): // the socket accepted nothing for writeWait
			wait = firstWait
		default:
			f.pause(wait)
		}
	}
}

// tell calls OnError when writing begins to fail, once for each failure.
func (f *flusher) tell(err error) {
	if err == nil && !f.trouble {
		return
	}
	last := err // a copy, so that a call without an error allocates nothing
	f.c.lastErr.Store(&last)
	if !f.trouble && f.c.options.OnError != nil {
		f.c.options.OnError(err)
	}
	f.trouble = err != nil
}

func (f *flusher) givenUp() bool { return f.c.patience.Err() != nil }

// pause waits for d, or for a shorter time while the client is being closed.
func (f *flusher) pause(d time.Duration) {
	closing := f.c.closing
	select {
	case <-closing:
		d, closing = min(d, closingWait), nil
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-closing:
	case <-f.c.patience.Done():
	}
}
