package client

import (
	"math/rand/v2"
	"sync/atomic"
)

// fate is what happened to a call that was not aggregated.
type fate uint8

const (
	refused fate = iota // the server would not take it
	tooMany             // there was no room
	unsent              // the client was closed
	numFates
)

// perKind counts calls by kind, on a cache line.
type perKind [numKinds]atomic.Uint64

func (p *perKind) total() (n uint64) {
	for i := range p {
		n += p[i].Load()
	}
	return n
}

// counts are the client's own figures.
type counts struct {
	taken    perKind           // calls taken out of series, and all events and checks
	sent     perKind           // calls in taken that went out in packets that the socket took
	unsent   perKind           // calls in taken whose packets were given up
	infinite perKind           // calls in taken whose sum overflowed a float64
	away     [numFates]perKind // calls that never reached a series
	skipped  [16]perKind       // calls skipped by Sampled; spread at random, so that callers do not collide

	thinned  atomic.Uint64 // values in taken that a sample left out; the sampled values stand for them
	cleaned  atomic.Uint64
	folded   atomic.Uint64
	series   atomic.Int64 // in the table, without overflow series
	contexts perKind      // series with something to send, added up over flushes

	packets, bytes, droppedPackets, droppedBytes atomic.Uint64
}

func (c *counts) turnAway(f fate, k kind) { c.away[f][k].Add(1) }

func (c *counts) skip(k kind) { c.skipped[rand.Uint32()%uint32(len(c.skipped))][k].Add(1) }

// handed returns how many calls of a kind there were, without the calls that are still in series.
func (c *counts) handed(k kind) uint64 {
	n := c.taken[k].Load()
	for i := range c.away {
		n += c.away[i][k].Load()
	}
	for i := range c.skipped {
		n += c.skipped[i][k].Load()
	}
	return n
}

// Stats count what happened to the calls of Count, Gauge, Timing, Histogram, Distribution,
// Set, Event and ServiceCheck so far:
//
//	Calls = Sent + Held + Skipped + Refused + Full + Unsent
//
// whenever no call and no flush is under way.
type Stats struct {
	Calls   uint64
	Sent    uint64 // in packets that the socket took: as they were, in a sum, or by sampled values with a rate
	Held    uint64 // waiting to be sent
	Skipped uint64 // left out by Sampled; the sampled values stand for them
	Refused uint64 // empty name, value not finite, negative count, or too long
	Full    uint64 // beyond MaxSeries, MaxValues or MaxBytes, or too many events at a time
	Unsent  uint64 // in a packet that the socket can never take, given up by Close, or made after Close

	Thinned   uint64 // part of Sent and Held: values beyond MaxValues; the sampled values stand for them
	Folded    uint64 // part of Sent and Held: in an overflow series, beyond MaxSeries
	Respelled uint64 // part of Calls: with a name, tag or member that the protocol cannot carry unchanged

	Series         int // held now, without overflow series
	Packets, Bytes uint64
	DroppedPackets uint64 // packets that the socket can never take, or that Close gave up
	DroppedBytes   uint64
}

// Stats returns the counts so far. It visits every series.
func (c *Client) Stats() (s Stats) {
	if c == nil {
		return s
	}
	n := &c.counts
	for i := range n.skipped {
		s.Skipped += n.skipped[i].total()
	}
	s.Sent = n.sent.total()
	s.Refused = n.away[refused].total() + n.infinite.total()
	s.Full = n.away[tooMany].total()
	s.Unsent = n.away[unsent].total() + n.unsent.total()
	taken := n.taken.total()
	s.Held = taken - min(taken, s.Sent+n.unsent.total()+n.infinite.total())
	c.table.Load().each(func(series *series) { s.Held += series.held() })
	s.Calls = s.Sent + s.Held + s.Skipped + s.Refused + s.Full + s.Unsent
	s.Thinned, s.Folded, s.Respelled = n.thinned.Load(), n.folded.Load(), n.cleaned.Load()
	s.Series = int(n.series.Load())
	s.Packets, s.Bytes = n.packets.Load(), n.bytes.Load()
	s.DroppedPackets, s.DroppedBytes = n.droppedPackets.Load(), n.droppedBytes.Load()
	return s
}

// version is sent to the server with the client's own counts.
const version = "0.1.0"

// telemetry holds the counts reported to the server, under the names that all clients use, and how
// much of each was already reported.
type telemetry struct {
	told map[string]uint64
}

const telemetryPrefix = "datadog.dogstatsd.client."

// report calls `line` with every count and its increase since the last report.
func (t *telemetry) report(c *counts, line func(name string, n uint64, tag string)) {
	tell := func(name string, n uint64, tag string) {
		key := name + tag
		line(telemetryPrefix+name, n-t.told[key], tag)
		t.told[key] = n
	}
	var metrics, contexts, away uint64
	for k := range event {
		metrics += c.handed(k)
		contexts += c.contexts[k].Load()
	}
	for _, f := range []fate{refused, tooMany} {
		away += c.away[f].total()
	}
	tell("metrics", metrics, "")
	tell("events", c.handed(event), "")
	tell("service_checks", c.handed(check), "")
	tell("metric_dropped_on_receive", away+c.infinite.total(), "")
	tell("packets_sent", c.packets.Load(), "")
	tell("bytes_sent", c.bytes.Load(), "")
	// There is no queue: the socket refused every dropped packet.
	for _, name := range []string{"packets_dropped", "packets_dropped_writer"} {
		tell(name, c.droppedPackets.Load(), "")
	}
	for _, name := range []string{"bytes_dropped", "bytes_dropped_writer"} {
		tell(name, c.droppedBytes.Load(), "")
	}
	tell("packets_dropped_queue", 0, "")
	tell("bytes_dropped_queue", 0, "")
	tell("aggregated_context", contexts, "")
	for k := range event {
		if n := c.handed(k); n > 0 {
			tell("metrics_by_type", n, "metrics_type:"+kindNames[k])
			tell("aggregated_context_by_type", c.contexts[k].Load(), "metrics_type:"+kindNames[k])
		}
	}
}

var kindNames = [...]string{
	count: "count", gauge: "gauge", timing: "timing", histogram: "histogram", distribution: "distribution", set: "set",
}
