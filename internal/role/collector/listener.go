package collector

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/sockets"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/core/window"
)

// keptValues is the number of values for which each parsed line of a listener keeps memory between
// batches. This memory is 8 KiB, more than a datagram of 1,432 bytes fills. Within a batch all lines
// together may take 4 MiB, if each is 64 KiB long, or 64 MiB with a dogstatsd.max_packet of 1 MiB.
const keptValues = 1024

// busyRetry is the time after which a listener tries again to close its window while the flusher is
// busy with the previous window, in nanoseconds.
const busyRetry = int64(10 * time.Millisecond)

// listener counts what one socket receives. The fields before `next` belong to the reading goroutine.
type listener struct {
	shared        *shared
	socket        *sockets.Listener
	address       address
	terms         *terms // the terms for which `table` was made
	parser        dogstatsd.Parser
	lines         [window.MaxLines]dogstatsd.Metric // parsed, and counted together
	held          int                               // how many elements of `lines` wait to be counted
	from          sender.Sender                     // sender of the packet being parsed, and of all held lines
	table         *window.Table
	now           int64        // Unix nanoseconds when the packet being counted was read
	left          window.Stats // statistics of earlier tables
	started       bool
	received      uint64 // values in well-formed lines, whatever their fate
	events        []event.Event
	eventCount    uint64
	eventsRefused uint64
	tally         *top.Tally // senders of the open window; nil while senders are not counted
	clients       clientCounts
	clientDrops   float64 // drops that clients reported in all earlier windows
	probes        *probes // nil before the first probe
	probed        uint64  // datagrams that were probes

	next   atomic.Pointer[terms] // the terms from the next window on
	mark   *mark                 // the listener's progress in shared.windows
	handed atomic.Bool           // the flusher has not taken the last window yet
	stop   context.CancelFunc    // ends the reading; set by Run
	ended  chan struct{}         // closed after its last window

	mu        sync.Mutex
	published counts // the counts when the last window was closed
	lately    lately
}

func newListener(s *shared, socket *sockets.Listener, a address, t *terms) *listener {
	l := &listener{shared: s, mark: new(mark), socket: socket, address: a, terms: t, ended: make(chan struct{})}
	l.next.Store(t)
	l.table = l.newTable()
	return l
}

func (l *listener) newTable() *window.Table {
	limits := l.shared.Limiter.Tenant(l.terms.tenant)
	return window.New(&resolver{
		Options: &l.shared.Options, terms: l.terms, reports: &l.shared.reports, limits: limits, sender: l.sender,
		now: func() int64 { return l.now },
	}, window.Options{
		Limits:         limits,
		OriginLabels:   l.terms.mapper.OriginLabels(),
		RelativeGauges: l.terms.relativeGauges,
		IdleWindows:    l.terms.idleWindows,
	})
}

// sender returns the sender of the packet being counted, or zero if senders are not tracked.
func (l *listener) sender() sender.Sender { return l.from }

// name returns the address as metrics and logs show it.
func (l *listener) name() string { return l.address.network + "://" + l.socket.Addr().String() }

// run reads until ctx is done and hands over the last window.
func (l *listener) run(ctx context.Context) error {
	err := l.socket.Run(ctx, l) // the error names the socket
	for !l.close(l.shared.Now().UnixNano(), true) {
		// The flusher is still pushing the previous window.
		time.Sleep(time.Duration(busyRetry))
	}
	return err
}

// timed receives the times of some batches, from all listeners.
func (c *Collector) timed(t sockets.Timing) {
	trip := &stage.Trip{Input: stage.DogStatsD, Born: t.Read.Add(-t.Reading - t.Waited)}
	if t.Reading > 0 {
		trip.Enter(stage.Read, t.Read.Add(-t.Reading))
		trip.Leave(stage.Read, t.Read)
	}
	trip.Enter(stage.Parse, t.Read)
	trip.Leave(stage.Parse, t.Read.Add(t.Handling))
	c.Watch.End(trip)
}

// Packet counts one datagram, or parses it and holds its metrics. Most of the cost of a metric is
// waiting for loads from memory, and the loads for metrics of several datagrams can run at the
// same time. Held metrics are counted when a group is complete, or by Tick.
func (l *listener) Packet(packet []byte, now int64) {
	if l.shared.Probe.On(packet) {
		l.probe(packet, now)
		return
	}
	if open := l.shared.taps.open.Load(); open != nil {
		l.tap(*open, packet, now)
	}
	from := l.socket.Sender()
	// Count the held metrics first: they belong to the previous sender, and the next copy
	// would overwrite their bytes.
	if from != l.from || !dogstatsd.InPlace(packet) {
		l.countHeld(now)
	}
	l.from, l.now = from, now
	if l.tally == nil {
		l.parse(packet, now)
		return
	}
	before := l.parser.Malformed
	lines := l.parse(packet, now)
	l.tell(packet, lines, &before)
}

// tell counts a packet's well-formed and malformed lines for the senders in freshet top and on the page.
func (l *listener) tell(packet []byte, lines int, before *[dogstatsd.NumReasons]uint64) {
	malformed := uint64(0)
	for why, n := range l.parser.Malformed {
		malformed += n - before[why]
	}
	l.tally.Add(l.from, len(packet), lines+int(malformed))
	if malformed == 0 {
		return
	}
	line, last := l.parser.LastFault()
	l.tally.Malformed(l.from, l.parser.Malformed[last]-before[last], last.String(), line)
	for why, n := range l.parser.Malformed {
		if n -= before[why]; n > 0 && dogstatsd.Reason(why) != last {
			l.tally.Malformed(l.from, n, dogstatsd.Reason(why).String(), nil)
		}
	}
}

// parse holds the metrics of a packet, and counts everything else. It returns the number of
// well-formed lines.
func (l *listener) parse(packet []byte, now int64) (lines int) {
	p := &l.parser
	p.Reset(packet)
	for {
		n, next := p.Metrics(l.lines[l.held:])
		l.held += n
		lines += n
		if l.held == len(l.lines) {
			l.countHeld(now)
		}
		switch next {
		case dogstatsd.CheckLine:
			lines++
			l.countHeld(now) // metrics that came before this check, since the first line with a name owns the name
			l.received++
			l.table.Check(&p.Check, now)
		case dogstatsd.EventLine:
			lines++
			l.event(now)
		case dogstatsd.End:
			return lines
		}
	}
}

// countHeld counts the held metrics.
func (l *listener) countHeld(now int64) {
	lines := l.lines[:l.held]
	l.held = 0
	for i := range lines {
		l.received += lines[i].Samples()
		l.clients.add(&lines[i])
	}
	l.table.Metrics(lines, now)
	dropValues(l.lines[:min(len(lines)+1, len(l.lines))]) // plus one line, which may hold values of a malformed line
}

// dropValues frees the memory for values of long packed lines. Otherwise each line could keep
// as much memory as the longest line needs.
func dropValues(lines []dogstatsd.Metric) {
	for i := range lines {
		if cap(lines[i].Values) > keptValues {
			lines[i].Values = nil
		}
	}
}

func (l *listener) event(now int64) {
	l.eventCount++
	if len(l.events) == maxEvents {
		l.eventsRefused++
		return
	}
	e := event.FromDogStatsD(l.terms.tenant, now/1e6, &l.parser.Event)
	if e.Host == "" {
		e.Host = l.terms.host
	}
	l.events = append(l.events, e)
}

// Tick closes the window when its second is over, or when the clock was set back.
func (l *listener) Tick(now int64) (next int64) {
	if !l.started {
		l.started = true
		l.table.Start(now)
	}
	l.countHeld(now)
	if now/1e9 != l.table.Second() && !l.close(now, false) {
		return now + busyRetry
	}
	return (now/1e9 + 1) * 1e9
}

// close hands the open window to the flusher, with the table if this is the table's last window. It
// does not wait for the flusher, since a waiting reader would lose packets: it returns false while
// the flusher still has the previous window.
func (l *listener) close(now int64, last bool) bool {
	l.countHeld(now)
	if l.handed.Load() {
		return false
	}
	closing := l.table.Second()
	if !l.probes.close(now) {
		return false
	}
	w, ok := l.table.Close(now)
	if !ok {
		return false
	}
	probed := l.probes.take()
	l.shared.windows.close(l.mark, closing, l.table.Second(), w == nil && probed == nil)
	l.publish(now)
	l.tally = l.shared.top.windowed(l.terms.tenant, l.tally, now)
	closed := closedWindow{
		mark: l.mark, handed: &l.handed, tenant: l.terms.tenant, at: time.Unix(0, now), window: w, probed: probed,
		events: l.events,
	}
	if next := l.next.Load(); last || next != l.terms {
		closed.left = l.table
		if !last {
			l.change(next, now)
		}
	}
	empty := w == nil && probed == nil
	if empty {
		l.shared.flusher.tell() // without a window to push, the flusher might report progress a second later
	}
	if empty && len(l.events) == 0 && closed.left == nil {
		return true
	}
	l.handed.Store(true)
	l.shared.closed <- closed
	l.events = nil
	return true
}

// change makes a new table for new terms, so that each context is resolved again at its next line.
// The old table goes to the flusher, which releases the table's places after its last window.
func (l *listener) change(t *terms, now int64) {
	l.left = l.left.Plus(l.table.Stats())
	l.terms = t
	l.table = l.newTable()
	l.table.Start(now)
}

// publish copies the counts for readers of metrics, and posts their increase since the
// previous window.
func (l *listener) publish(now int64) {
	read := l.socket.Stats()
	l.clientDrops += l.clients[ledger.PacketsDroppedWriter]
	next := counts{
		Stats:         l.left.Plus(l.table.Stats()),
		received:      l.received,
		malformed:     l.parser.Malformed,
		unknownFields: l.parser.UnknownFields,
		badFields:     l.parser.BadFields,
		events:        l.eventCount,
		eventsRefused: l.eventsRefused,
		clientDrops:   l.clientDrops,
		datagrams: ledger.Datagrams{
			Read: read.Packets - l.probed, KernelDropped: l.socket.Drops(), Oversized: read.Truncated + read.LongFrames,
			CutFrames: read.CutFrames, RefusedConnections: read.Refused,
		},
	}
	l.mu.Lock()
	last := l.published
	l.published = next
	l.lately.add(now/1e9, next.received-last.received, &next.malformed, &last.malformed)
	l.mu.Unlock()
	l.post(&next, &last)
	// Count the samples here, because `timed` sees only some of the batches.
	for _, s := range []stage.Stage{stage.Read, stage.Parse} {
		l.shared.Watch.Count(s, stage.DogStatsD, next.received-last.received)
	}
	l.shared.Ledger.Close(now / 1e6)
}

func (l *listener) counts() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.published
}
