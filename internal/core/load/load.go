// Package load makes DogStatsD traffic to measure receivers with: the same bytes
// for the same seed, and exact totals of what was handed out. It renders all
// packets beforehand into one piece of memory, the ring, which is then replayed, so
// that a sender pays for the system call alone. Sending, and at what rate, is
// internal/adapter/loadgen's.
//
// Every line of a load has the same length, and so has every packet, but for the
// last of the ring: consecutive packets can be handed to the kernel as one message
// to be cut (UDP_SEGMENT).
package load

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// Config says what the traffic is like.
type Config struct {
	Seed     uint64
	Contexts int // distinct name and tags, 1 to MaxContexts; each is sent equally often
	Kinds    Mix // of the contexts
	Tags     int // of each metric, 0 to MaxTags

	// PacketSize is the most bytes in a packet: 1,432 fit an Ethernet frame with
	// IPv6 and UDP, 8,192 is what clients use on Unix sockets. MetricsPerPacket is
	// as many as fit if it is 0.
	PacketSize       int
	MetricsPerPacket int

	// NewShare is the part of the metrics, from 0 to MaxNewShare, that belong to a
	// context that never was before and never comes again.
	NewShare float64
}

const (
	MaxContexts = 2_000_000 // twice about 100 bytes each
	MaxTags     = 50
	MaxPacket   = 65_507 // the longest datagram of IPv4
	MaxNewShare = 0.95

	maxRing = 1 << 30 // bytes
)

// Standard is the load that servers are compared by: about 100 bytes a metric, four
// tags, kinds mixed, packets that fit an Ethernet frame.
func Standard() Config {
	return Config{Seed: 1, Contexts: 1000, Kinds: Mix{50, 20, 15, 5, 5, 5}, Tags: 4, PacketSize: 1432, MetricsPerPacket: 14}
}

// LineBytes is the length of each line, 100 with four tags.
func (c Config) LineBytes() int { return 40 + 15*c.Tags }

// PerPacket is how many metrics each packet has.
func (c Config) PerPacket() int {
	if c.MetricsPerPacket > 0 {
		return c.MetricsPerPacket
	}
	return (c.PacketSize + 1) / (c.LineBytes() + 1)
}

// Check says what is wrong with the configuration.
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
		return fmt.Errorf("%d metrics a packet: the longest packet has %d bytes", c.MetricsPerPacket, MaxPacket)
	case c.PacketSize < line:
		return fmt.Errorf("packets of %d bytes: a metric with %d tags takes %d", c.PacketSize, c.Tags, line)
	case per*(line+1)-1 > c.PacketSize:
		return fmt.Errorf("%d metrics a packet with %d tags take %d bytes: the packet has %d", per, c.Tags, per*(line+1)-1, c.PacketSize)
	case !(c.NewShare >= 0 && c.NewShare <= MaxNewShare):
		return fmt.Errorf("new contexts: must be 0 to %g of all metrics, got %.3g", MaxNewShare, c.NewShare)
	case c.NewShare > 0 && c.Tags == 0:
		return errors.New("new contexts differ by a tag: they take 1 tag or more")
	}
	known, news := c.lines()
	if bytes := (known + news) * (line + 1); bytes > maxRing {
		return fmt.Errorf("the load takes %d MiB of memory, and may take %d: choose fewer contexts, tags or new contexts", bytes>>20, maxRing>>20)
	}
	return nil
}

// MinPackets is how many packets may be in a sender's hands at most: the ring is not
// shorter, and their memory is used again when it comes round.
const MinPackets = 1024

// Load is traffic without end. It belongs to one goroutine.
type Load struct {
	perPacket int     // metrics
	size      int     // bytes of a packet, but for the last
	ring      []byte  // all packets, with nothing between them
	tallies   []tally // one a packet
	next      int     // packet that Next hands out next

	news    []uint32 // where in the ring the digits of new contexts are
	nextNew int      // among news
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

// PacketBytes is the length of each packet, but for the last of the ring.
func (l *Load) PacketBytes() int { return l.size }

// PacketMetrics is how many metrics each packet has, but for the last of the ring.
func (l *Load) PacketMetrics() int { return l.perPacket }

// rounds is how often each context is in the ring. Its order differs from one round
// to the next: a receiver that lays contexts out as they come must not find itself
// in step with all of the load. Beyond 50,000 contexts memory is worth more.
func rounds(contexts, perPacket int) int {
	enough := (MinPackets*perPacket + contexts - 1) / contexts
	return max(2, min(8, 400_000/contexts), enough)
}

// lines is how many are in the ring, of known contexts and of new ones.
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
	at := 0 // in order
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

// Next hands out the next packets, at least one and at most limit. Their memory is
// the load's: it stays as it is until MinPackets more are handed out.
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

// Packets are consecutive packets, one behind the other in memory.
type Packets struct {
	Data    []byte
	Size    int // bytes of each packet; the last may be shorter
	tallies []tally
}

// Len is the number of packets.
func (p Packets) Len() int { return len(p.tallies) }

// Packet is the i-th of them.
func (p Packets) Packet(i int) []byte { return p.Data[i*p.Size : min((i+1)*p.Size, len(p.Data))] }

// Cut parts the first n packets from the rest.
func (p Packets) Cut(n int) (first, rest Packets) {
	at := min(n*p.Size, len(p.Data))
	return Packets{p.Data[:at], p.Size, p.tallies[:n]}, Packets{p.Data[at:], p.Size, p.tallies[n:]}
}

// Totals are what packets hold together. Each metric is one sample.
type Totals struct {
	Packets, Bytes, Metrics uint64
	Kinds                   [NumKinds]uint64 // metrics by kind
	CounterSum              uint64           // of the increments of all counters
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

// Plus is the sum of both.
func (t Totals) Plus(o Totals) Totals {
	t.Packets += o.Packets
	t.Bytes += o.Bytes
	t.Metrics += o.Metrics
	for k := range t.Kinds {
		t.Kinds[k] += o.Kinds[k]
	}
	t.CounterSum += o.CounterSum
	t.NewContexts += o.NewContexts
	return t
}

// tally is what one packet holds. A datagram has room for fewer than 65,536 lines.
type tally struct {
	kinds      [NumKinds]uint16
	news       uint16
	counterSum uint32
}

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
