package collector

import (
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/window"
)

// Reasons in the ledger why the collector did not hand a sample on. Those of
// malformed lines are the parser's. docs/ledger.md explains them.
const (
	reasonRule     = "rule"           // a mapping rule drops the metric
	reasonNegative = "negative"       // a counter cannot go down, unless a rule has updown
	reasonTimes    = "too_many_times" // more times of their own (|T) than a series may have in one window
	reasonAhead    = "too_far_ahead"  // the time of a gauge or check (|T, d:) is one that cannot be
	reasonOverflow = "overflow"       // the sum would be beyond what a float holds
	reasonNotTaken = "not_taken"      // the aggregator can never take the window
	reasonPending  = "store_pending"  // as much waits for the tenant's store as may
	reasonUnsent   = "not_acknowledged"
)

// clientCounts is what clients said of themselves since the window before. It is read
// off the lines, since a rule may drop their series and a limit fold them: in a flood,
// when clients drop most.
type clientCounts map[ledger.ClientCount]float64

// maxClientCount is beyond what anybody counts, and far from what sums cannot hold.
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

// post enters into the books what became of a listener's samples and datagrams
// between last and next.
func (l *listener) post(next, last *counts) {
	books, tenant := l.collector.Ledger, l.terms.tenant
	received := next.received - last.received
	transfers := make([]ledger.Transfer, 0, dogstatsd.NumReasons+8)
	for reason := range next.malformed {
		n := next.malformed[reason] - last.malformed[reason]
		received += n
		transfers = append(transfers, ledger.Transfer{From: ledger.Received, To: ledger.Malformed, Reason: dogstatsd.Reason(reason).String(), Samples: n})
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

// counts is what a listener did since it was made.
type counts struct {
	window.Stats
	received                 uint64 // in well-formed lines
	malformed                [dogstatsd.NumReasons]uint64
	unknownFields, badFields uint64
	events, eventsDropped    uint64
	clientDrops              float64 // datagrams that clients say the socket did not take
	datagrams                ledger.Datagrams
}
