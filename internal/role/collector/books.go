package collector

import (
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/window"
)

// Reasons in the ledger why the collector did not hand on a sample. docs/ledger.md explains them. The
// reasons for malformed lines are in the parser.
const (
	reasonRule     = "rule"           // a mapping rule drops the metric
	reasonNegative = "negative"       // a counter cannot go down, unless a rule has updown
	reasonTimes    = "too_many_times" // more timestamps (|T) than a series may have in one window
	reasonAhead    = "too_far_ahead"  // the timestamp of a gauge or check (|T, d:) is impossible
	reasonOverflow = "overflow"       // the sum would overflow
	reasonNotTaken = "not_taken"      // the aggregator can never take the window
	reasonPending  = "store_pending"  // the backlog of the tenant's store is full
	reasonUnsent   = "not_acknowledged"
)

// clientCounts are the counts that clients send about themselves, in the open window. The listener
// reads them from the lines and not from the series, because a rule may drop the series, and a
// limit may fold them. Limits fold series in a flood, which is when clients drop most.
type clientCounts map[ledger.ClientCount]float64

// maxClientCount is larger than any real count, and small enough that sums of counts
// stay exact.
const maxClientCount = 1 << 53

func (c *clientCounts) add(m *dogstatsd.Metric) {
	if m.Type != dogstatsd.Count {
		return
	}
	count, ok := ledger.ClientCountOf(m.Name)
	if !ok {
		return
	}
	if *c == nil {
		*c = clientCounts{}
	}
	for _, v := range m.Values {
		if n := v / m.Rate; n >= 0 && n <= maxClientCount {
			(*c)[count] += n
		}
	}
}

// post adds to the ledger the samples and datagrams that a listener received between `last` and
// `next`.
func (l *listener) post(next, last *counts) {
	books, tenant := l.shared.Ledger, l.terms.tenant
	received := next.received - last.received
	transfers := make([]ledger.Transfer, 0, dogstatsd.NumReasons+8)
	for reason := range next.malformed {
		n := next.malformed[reason] - last.malformed[reason]
		received += n
		transfers = append(transfers,
			ledger.Transfer{From: ledger.Received, To: ledger.Malformed, Reason: dogstatsd.Reason(reason).String(), Samples: n})
	}
	refused := func(reason string, n uint64) {
		transfers = append(transfers, ledger.Transfer{From: ledger.Received, To: ledger.Refused, Reason: reason, Samples: n})
	}
	refused(reasonRule, next.Dropped-last.Dropped)
	refused(reasonNegative, next.Negative-last.Negative)
	refused(reasonTimes, next.TimedRefused-last.TimedRefused)
	refused(reasonAhead, next.AheadRefused-last.AheadRefused)
	refused(reasonOverflow, next.Overflowed-last.Overflowed)
	for reason := limit.MetricSeries; reason < limit.NumReasons; reason++ {
		refused(reason.String(), next.LimitRefused[reason]-last.LimitRefused[reason])
	}
	transfers = append(transfers,
		ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: received},
		ledger.Transfer{From: ledger.Received, To: ledger.Window, Samples: next.Samples - last.Samples},
	)
	books.Post(tenant, transfers...)
	books.Note(tenant, ledger.Folded, next.Folded-last.Folded)
	books.Note(tenant, ledger.Respelled, next.Respellings-last.Respellings)
	for count, n := range l.clients {
		books.Client(tenant, count, n)
	}
	clear(l.clients)
	now, before := &next.datagrams, &last.datagrams
	books.Datagrams(tenant, ledger.Datagrams{
		Read:               now.Read - before.Read,
		KernelDropped:      now.KernelDropped - before.KernelDropped,
		Oversized:          now.Oversized - before.Oversized,
		CutFrames:          now.CutFrames - before.CutFrames,
		RefusedConnections: now.RefusedConnections - before.RefusedConnections,
	})
	l.postProbes()
}

// counts are a listener's figures since it was made.
type counts struct {
	window.Stats
	received                 uint64 // values on the wire in well-formed lines
	malformed                [dogstatsd.NumReasons]uint64
	unknownFields, badFields uint64
	events, eventsRefused    uint64
	clientDrops              float64 // datagrams that the socket did not take, as the clients report
	datagrams                ledger.Datagrams
}
