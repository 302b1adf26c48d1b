// Package load makes DogStatsD traffic to measure receivers. The same seed gives the same bytes,
// and totals are exact. The package renders all packets beforehand into one piece of memory, the
// ring, and replays the ring, so that a sender pays only for the system call. adapter/loadgen sends
// the packets and sets the rate.
//
// All lines of a load have the same length, and so do all packets except the last of the ring. So
// the kernel can take consecutive packets as one message and cut the message (UDP_SEGMENT).
package load

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// Config describes the traffic.
type Config struct {
	Seed     uint64
	Contexts int // distinct combinations of name and tags, 1 to MaxContexts; all are sent equally often
	Kinds    Mix // the kinds of the contexts
	Tags     int // tags of each metric, 0 to MaxTags

	// PacketSize bounds a packet, in bytes: 1,432 bytes fit an Ethernet frame with IPv6 and UDP,
	// and 8,192 bytes are usual on Unix sockets. If MetricsPerPacket is 0, a packet has as many
	// metrics as fit.
	PacketSize       int
	MetricsPerPacket int

	// NewShare is the part of the metrics that have a new context, from 0 to MaxNewShare. A new
	// context is sent only once.
	NewShare float64
}

const (
	MaxContexts = 2_000_000 // each takes about 200 bytes
	MaxTags     = 50
	MaxPacket   = 65_507 // the longest datagram of IPv4
	MaxNewShare = 0.95

	maxRing = 1 << 30 // bytes
)

// Standard returns the load by which servers are compared: metrics of 100 bytes with four tags, of
// mixed kinds, in packets that fit an Ethernet frame.
func Standard() Config {
	return Config{
		Seed: 1, Contexts: 1000, Kinds: Mix{50, 20, 15, 5, 5, 5}, Tags: 4, PacketSize: 1432, MetricsPerPacket: 14,
	}
}

// LineBytes returns the length of a line, 100 with four tags.
func (c Config) LineBytes() int { return 40 + 15*c.Tags }

// PerPacket returns how many metrics a packet has.
func (c Config) PerPacket() int {
	if c.MetricsPerPacket > 0 {
		return c.MetricsPerPacket
	}
	return (c.PacketSize + 1) / (c.LineBytes() + 1)
}

// Check returns what is wrong with the configuration, or nil.
func (c Config) Check() error {
	line, per := c.LineBytes(), c.PerPacket()
	switch {
	case c.Contexts < 1 || c.Contexts > MaxContexts:
		return fmt.Errorf("%d contexts: must be 1 to %d", c.Contexts, MaxContexts)
	case c.Kinds.total() == 0:
		return errors.New("no kinds: write a mix such as " + Standard().Kinds.String())
	case c.Tags < 0 || c.Tags > MaxTags:
		return fmt.Errorf("%d tags: must be 0 to %d", c.Tags, MaxTags)
	case c.PacketSize > MaxPacket:
		return fmt.Errorf("packets of %d bytes: must be %d or less", c.PacketSize, MaxPacket)
	case c.MetricsPerPacket < 0:
		return fmt.Errorf("%d metrics a packet: must be 1 or more, or 0 for as many as fit", c.MetricsPerPacket)
	case c.MetricsPerPacket > MaxPacket:
		return fmt.Errorf("%d metrics a packet: too many for the longest packet, which has %d "+
			"bytes", c.MetricsPerPacket, MaxPacket)
	case c.PacketSize < line:
		return fmt.Errorf("packets of %d bytes: a metric with %d tags takes %d bytes", c.PacketSize, c.Tags, line)
	case per*(line+1)-1 > c.PacketSize:
		return fmt.Errorf("%d metrics a packet: with %d tags they take %d bytes, but a packet has %d",
			per, c.Tags, per*(line+1)-1, c.PacketSize)
	case !(c.NewShare >= 0 && c.NewShare <= MaxNewShare):
		return fmt.Errorf("share of new contexts: must be 0 to %g of all metrics, got %.3g", MaxNewShare, c.NewShare)
	case c.NewShare > 0 && c.Tags == 0:
		return errors.New("new contexts differ by a tag: set at least 1 tag")
	}
	known, news := c.lines()
	if bytes := (known + news) * (line + 1); bytes > maxRing {
		return fmt.Errorf("the load takes %d MiB of memory; the limit is %d: choose fewer contexts, tags or new contexts",
			bytes>>20, maxRing>>20)
	}
	return nil
}

// MinPackets is how many packets a sender may hold at once. The ring has at least as many packets,
// since Next hands out the same memory again.
const MinPackets = 1024

// Load is endless traffic. Only one goroutine may use it.
type Load struct {
	perPacket int     // metrics in a packet
	size      int     // bytes of each packet except the last
	ring      []byte  // all packets, back to back
	tallies   []tally // one per packet
	next      int     // the next packet to hand out

	news    []uint32 // offsets in the ring, at which the digits of new contexts begin
	nextNew int      // index into news
	made    uint64   // new contexts so far
}

// New renders the load.
func New(c Config) (*Load, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	per := c.PerPacket()
	l := &Load{perPacket: per, size: per*(c.LineBytes()+1) - 1}
	l.render(c)
	return l, nil
}

// PacketBytes returns the length of a packet. Only the last packet of the ring may be shorter.
func (l *Load) PacketBytes() int { return l.size }

// PacketMetrics returns how many metrics a packet has. Only the last packet of the ring may have
// fewer.
func (l *Load) PacketMetrics() int { return l.perPacket }

// rounds returns how often each context is in the ring. The order differs between rounds, so that a
// receiver has no advantage from storing contexts in order of arrival. Beyond 50,000 contexts,
// saving memory matters more.
func rounds(contexts, perPacket int) int {
	enough := (MinPackets*perPacket + contexts - 1) / contexts
	return max(2, min(8, 400_000/contexts), enough)
}

// lines returns how many lines of known and of new contexts are in the ring.
func (c Config) lines() (known, news int) {
	known = c.Contexts * rounds(c.Contexts, c.PerPacket())
	return known, int(math.Round(float64(known) * c.NewShare / (1 - c.NewShare)))
}

func (l *Load) render(c Config) {
	known, news := c.lines()
	lines := known + news
	l.ring = make([]byte, 0, lines*(c.LineBytes()+1))
	l.tallies = make([]tally, 0, (lines+l.perPacket-1)/l.perPacket)
	l.news = make([]uint32, 0, news)

	w := newWriter(c)
	order := make([]uint32, c.Contexts)
	for i := range order {
		order[i] = uint32(i)
	}
	shuffle := func() { w.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] }) }
	at := 0 // index into order
	for i := range lines {
		if i%l.perPacket == 0 {
			l.tallies = append(l.tallies, tally{})
		} else {
			l.ring = append(l.ring, '\n')
		}
		t := &l.tallies[len(l.tallies)-1]
		if (i+1)*news/lines > i*news/lines { // spread evenly
			var digits int
			l.ring, digits = w.appendNew(l.ring, t)
			l.news = append(l.news, uint32(digits))
			continue
		}
		if at%len(order) == 0 {
			shuffle()
			at = 0
		}
		l.ring = w.appendKnown(l.ring, int(order[at]), t)
		at++
	}
}

// Next hands out the next packets, at least one and at most `limit`. The load owns the memory of the
// packets, and reuses it after it has handed out MinPackets more.
func (l *Load) Next(limit int) Packets {
	if l.next == len(l.tallies) {
		l.next, l.nextNew = 0, 0
	}
	first, last := l.next, min(l.next+limit, len(l.tallies))
	l.next = last
	p := Packets{Size: l.size, Data: l.ring[first*l.size : min(last*l.size, len(l.ring))], tallies: l.tallies[first:last]}
	for end := uint32(last * l.size); l.nextNew < len(l.news) && l.news[l.nextNew] < end; l.nextNew++ {
		l.made++
		at := l.news[l.nextNew]
		putDigits(l.ring[at:at+newDigits], l.made)
	}
	return p
}

// Packets are consecutive packets, back to back in memory.
type Packets struct {
	Data    []byte
	Size    int // bytes of each packet; the last may be shorter
	tallies []tally
}

// Len returns the number of packets.
func (p Packets) Len() int { return len(p.tallies) }

// Cut splits off the first n packets.
func (p Packets) Cut(n int) (first, rest Packets) {
	at := min(n*p.Size, len(p.Data))
	return Packets{p.Data[:at], p.Size, p.tallies[:n]}, Packets{p.Data[at:], p.Size, p.tallies[n:]}
}

// Totals are the sums over packets. Each metric is one sample.
type Totals struct {
	Packets, Bytes, Metrics uint64
	Kinds                   [NumKinds]uint64 // metrics by kind
	CounterSum              uint64           // sum of the increments of all counters
	NewContexts             uint64
}

// Add adds packets.
func (t *Totals) Add(p Packets) {
	t.Packets += uint64(len(p.tallies))
	t.Bytes += uint64(len(p.Data))
	for i := range p.tallies {
		one := &p.tallies[i]
		for k, n := range one.kinds {
			t.Kinds[k] += uint64(n)
			t.Metrics += uint64(n)
		}
		t.CounterSum += uint64(one.counterSum)
		t.NewContexts += uint64(one.news)
	}
}

// tally has the totals of one packet. A datagram has room for fewer than 65,536 lines.
type tally struct {
	kinds      [NumKinds]uint16
	news       uint16
	counterSum uint32
}

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
