package tsdb

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/freshet-io/freshet/internal/core/growth"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// Growth returns which series are new to the stores: series of remote write and OTLP count in
// Raw, all others in the store of the finest tiles.
func (s *Stores) Growth() []growth.Tenant { return s.growth.Report(s.now().Unix()) }

// NewTotal notes a series of OTLP deltas that is new to the aggregator, or that a limit refuses. Tiles
// do not name the sender, so a store that gets them could not note the sender of the series.
func (s *Stores) NewTotal(tenant string, ls labels.Labels, from sender.Sender, refused bool) {
	store := tile.Width10s.String()
	if refused {
		s.growth.Add(s.now().Unix(), &growth.Series{Tenant: tenant, Store: store, Labels: ls, Sender: from, Refused: true})
		return
	}
	s.growth.Sent(tenant, store, ls.Get(model.MetricNameLabel), from)
}

// newcomers notes the series that are new to the head of one database.
type newcomers struct {
	tracker *growth.Tracker
	tenant  string
	store   string
	now     func() time.Time
	open    atomic.Bool   // set once the database is open; series that come earlier were read from disk and are not new
	sender  sender.Sender // sender of the request being written; zero for tiles
}

// tell is called for each series that is new or refused.
func (n *newcomers) tell(ls labels.Labels, refused bool) {
	n.tracker.Add(n.now().Unix(), &growth.Series{
		Tenant: n.tenant, Store: n.store, Labels: ls, Sender: n.sender, Refused: refused,
	})
}

// PreCreation, PostCreation and PostDeletion are tsdb's callbacks.
func (*newcomers) PreCreation(labels.Labels) error { return nil }

func (n *newcomers) PostCreation(ls labels.Labels) {
	if n.open.Load() {
		n.tell(ls, false)
	}
}

func (*newcomers) PostDeletion(map[chunks.HeadSeriesRef]labels.Labels) {}

// newcomers returns the callbacks that note the new series of the store's database. It returns nil if
// another store has the same series and notes them, and for History, which gets no series of senders.
func (s *store) newcomers() *newcomers {
	if s.kind == tile.Width1m.String() || s.kind == History {
		return nil
	}
	return &newcomers{tracker: s.growth, tenant: s.tenant, store: s.kind, now: s.now}
}
