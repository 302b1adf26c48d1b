package member

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/fault"
)

// Windows says what became of the samples in an entry's windows.
type Windows struct {
	Pushes  int                     // in the entry
	Batches int                     // that were folded now
	Folded  map[string]*tile.Folded // by tenant
	Damaged int                     // damaged batches: only their readable parts count
	Clock   int64                   // the leader's clock, in KindWindows
	Ends    []End                   // of the windows, in the order of the pushes
}

// End is the end of a collector's window, in Unix milliseconds, or the end of the collector.
type End struct {
	Producer, Incarnation uint64
	End                   int64
	Left                  bool // no window follows under this incarnation
}

// lastWindows are the last windows of a producer in the log.
type lastWindows struct {
	incarnation uint64
	clock       int64 // the leader's
}

// applyWindows folds the batches of all pushes of an entry.
func (m *Member) applyWindows(index uint64, w *entry.Windows) (done Windows, err error) {
	done.Folded, done.Clock = map[string]*tile.Folded{}, w.Clock
	for bytes := range w.Pushes.All() {
		p, err := entry.ParsePush(bytes)
		if err != nil {
			return done, err
		}
		done.Pushes++
		m.since = cmp.Or(m.since, w.Clock)
		end := End{Producer: p.Producer, Incarnation: p.Incarnation, Left: p.Leaves}
		if p.Leaves {
			m.leave(index, &p)
		} else {
			m.senders[p.Producer] = lastWindows{p.Incarnation, w.Clock}
		}
		for b := range p.Batches.All() {
			if end.End == 0 { // all batches of a push are of one window
				if h, err := batch.ParseHeader(b); err == nil {
					end.End = (h.Second + 1) * 1000
				}
			}
			if err := m.fold(index, b, w.MaxTenants, &done); err != nil {
				return done, err
			}
		}
		done.Ends = append(done.Ends, end)
	}
	m.forgetSenders(w.Clock)
	return done, nil
}

// leave handles a producer's notice that it sends nothing more under an incarnation. The producer's next
// incarnation may have begun.
func (m *Member) leave(index uint64, p *entry.Push) {
	if m.senders[p.Producer].incarnation == p.Incarnation {
		delete(m.senders, p.Producer)
	}
	for number := range uint16(series.Shards) {
		if index > m.restored[number] {
			m.shards.Left(number, p.Producer, p.Incarnation)
		}
	}
}

// rememberSenders is how long a sender is remembered after its last windows, in milliseconds of the
// leaders' clocks. A new leader needs the senders of the last 10 s: see Node.settled.
const rememberSenders = 60_000

// forgetSenders forgets the senders that have been silent for rememberSenders. It looks for them at
// most once in that time.
func (m *Member) forgetSenders(now int64) {
	if now >= m.swept && now-m.swept < rememberSenders {
		return
	}
	m.swept = now
	maps.DeleteFunc(m.senders, func(_ uint64, last lastWindows) bool { return last.clock <= now-rememberSenders })
}

// fold folds a batch into its shard, unless the restored shard has the batch already. The samples of a
// tenant that is not admitted are refused.
func (m *Member) fold(index uint64, b []byte, maxTenants int, done *Windows) error {
	h, err := batch.ParseHeader(b)
	admitted := err != nil || m.has.Admit(string(h.Tenant), maxTenants)
	if err == nil && index <= m.restored[h.Shard] {
		return nil
	}
	done.Batches++
	if fault.LosesBatch() {
		return nil
	}
	var folded tile.Folded
	if admitted {
		_, folded, err = m.shards.Fold(h.Shard, b)
	} else {
		_, folded, err = m.shards.Refuse(h.Shard, b)
	}
	switch {
	case errors.Is(err, batch.ErrNewer):
		return err
	case err != nil:
		done.Damaged++
	}
	sum := done.Folded[string(h.Tenant)]
	if sum == nil {
		sum = new(tile.Folded)
		done.Folded[string(h.Tenant)] = sum
	}
	sum.Add(folded)
	return nil
}

// Conflict is a claim of a name that already belongs to another kind, or to another form of timers.
type Conflict struct {
	Tenant   string
	StoredAs string
	catalogue.Report
}

// applyNames gives names to their owners, in the order of the claims. If the claimant already owns the
// name, the claim says that the name is in use. Claims of tenants that are not admitted do nothing.
func (m *Member) applyNames(e *entry.Names) (conflicts []Conflict, err error) {
	terms := termsOf(e)
	for b := range e.Claims.All() {
		c, err := entry.ParseClaim(b)
		if err != nil || !series.Kind(c.Kind).Valid() {
			return nil, fmt.Errorf("it claims the name %.80q for kind %d: %w", c.Name, c.Kind, cmp.Or(err, errKind))
		}
		if !m.has.Admit(c.Tenant, e.MaxTenants) {
			continue
		}
		claim := claimOf(&c)
		if r := m.names.Claim(&terms, &claim); r.Finding == catalogue.KindConflict || r.Finding == catalogue.FormConflict {
			stored, _, _ := m.names.Peek(&claim)
			conflicts = append(conflicts, Conflict{claim.Tenant, stored, r})
		}
	}
	return conflicts, nil
}

var errKind = errors.New("there is no such kind")

// claimOf returns a claim in its own memory.
func claimOf(c *entry.Claim) catalogue.Claim {
	return catalogue.Claim{
		Tenant: strings.Clone(c.Tenant), Name: strings.Clone(c.Name), Kind: series.Kind(c.Kind),
		Buckets: strings.Clone(c.Buckets),
	}
}

func termsOf(e *entry.Names) catalogue.Terms {
	terms := catalogue.Terms{Now: e.Clock, MaxNames: e.MaxNames, Unused: e.Unused}
	for kind := series.Kind(1); kind <= series.LastKind; kind++ {
		switch kind {
		case series.Gauge:
			terms.Kept[kind] = e.GaugeTTL
		case series.Check:
			terms.Kept[kind] = e.CheckTTL
		case series.UpDown:
			terms.Kept[kind] = e.UpDownTTL
		default:
			terms.Kept[kind] = e.CounterTTL
		}
	}
	return terms
}

// Closed is what a boundary closed.
type Closed struct {
	Samples    uint64            // values on the wire, in the closed tiles
	Duplicates map[string]uint64 // as in tile.Closed
}

// applyBoundary closes the tiles of an entry's shards up to its end, and puts their samples into the
// queues of their tenants.
func (m *Member) applyBoundary(index uint64, b *entry.Boundary) (done Closed) {
	config := tile.Config{
		CounterTTL: millis(b.CounterTTL), GaugeTTL: millis(b.GaugeTTL), CheckTTL: millis(b.CheckTTL),
		UpDownTTL: millis(b.UpDownTTL), OutOfOrder: millis(b.Timed),
	}
	if mutant.OwnConfig {
		config = *m.config
	}
	for tenant := range b.Full.All() {
		config.Full = append(config.Full, string(tenant))
	}
	done.Duplicates = map[string]uint64{}
	for number := range uint16(series.Shards) {
		if !b.Shards.Has(number) || index <= m.restored[number] {
			continue
		}
		if s := m.shards.Of(number); b.Begins && s != nil && s.Len() > 0 {
			continue // the series came with an entry that was under way when the leader proposed the boundary
		}
		for _, closed := range m.shards.CloseUpTo(number, index, b.End, &config) {
			done.Samples += closed.Samples
			for tenant, n := range closed.Duplicates {
				done.Duplicates[tenant] += n
			}
			m.marks.Closed(closed.Waiting)
			m.queue(number, closed.Waiting)
		}
	}
	return done
}

// queue puts closed tiles into the queues of their tenants, unless the stores are known to have them.
func (m *Member) queue(shard uint16, closed []*tile.Waiting) {
	for _, w := range closed {
		if w.Index <= m.stored[w.Tenant] {
			m.shards.Stored(shard, w.Tenant, w.Boundary)
			continue
		}
		m.addTile(Tile{shard, w})
	}
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
