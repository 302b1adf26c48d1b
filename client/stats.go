package client

import (
	"math/rand/v2"
	"sync/atomic"
)

// fate is the reason why a call was not aggregated.
type fate uint8

const (
	refused fate = iota // the server would not accept the value
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
	taken    perKind           // calls whose values the flusher took out of series, and all events and checks
	sent     perKind           // taken calls in packets that the socket accepted
	unsent   perKind           // taken calls in packets that were dropped
	infinite perKind           // taken calls whose sum overflowed a float64
	away     [numFates]perKind // calls that never reached a series
	skipped  [16]perKind       // calls skipped by Sampled, in random elements, so that callers do not collide

	thinned  atomic.Uint64 // values of taken calls that a random sample left out; the sample's rate accounts for them
	cleaned  atomic.Uint64
	folded   atomic.Uint64
	series   atomic.Int64 // series in the table, without overflow series
	contexts perKind      // series with something to send, summed over all flushes

	packets, bytes, droppedPackets, droppedBytes atomic.Uint64
}

func (c *counts) turnAway(f fate, k kind) { c.away[f][k].Add(1) }

func (c *counts) skip(k kind) { c.skipped[rand.Uint32()%uint32(len(c.skipped))][k].Add(1) }

// handed returns the number of calls of a kind, without the calls whose values are still in series.
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

// Stats counts what became of the calls of Count, Gauge, Timing, Histogram, Distribution, Set, Event and
// ServiceCheck so far. Whenever no call and no flush is in progress,
//
//	Calls = Sent + Held + Skipped + Refused + Full + Unsent
type Stats struct {
	Calls   uint64
	Sent    uint64 // calls in packets that the socket accepted: as single values, in a sum, or in a sample with a rate
	Held    uint64 // calls that wait to be sent
	Skipped uint64 // left out by Sampled; the rate of the sampled values accounts for them
	Refused uint64 // an empty name, a value that is not finite, a negative count, or a line that is too long
	Full    uint64 // beyond MaxSeries, MaxValues or MaxBytes, or too many events at a time
	Unsent  uint64 // calls after Close, or in a packet that Close dropped or that was too long for the socket

	Thinned   uint64 // part of Sent and Held: values beyond MaxValues; the rate of the sample accounts for them
	Folded    uint64 // part of Sent and Held: in an overflow series, beyond MaxSeries
	Respelled uint64 // part of Calls: with a name, tag or member that the protocol cannot carry unchanged

	Series         int // series in the client now, without overflow series
	Packets, Bytes uint64
	DroppedPackets uint64 // packets that were too long for the socket, or that Close dropped
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

// version is the client's version, which it sends to the server with its own counts.
const version = "0.1.0"

// telemetry holds the counts that are reported to the server, under the names that all clients use, and
// how much of each count was already reported.
type telemetry struct {
	told map[string]uint64
}

const telemetryPrefix = "datadog.dogstatsd.client."

// report calls `line` for every count, with its increase since the last report.
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
	// The client has no queue: only the writer drops packets.
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
