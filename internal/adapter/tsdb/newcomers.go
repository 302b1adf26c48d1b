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

// Growth says which series are new to the stores: what came by remote write and OTLP to Raw,
// what came otherwise to that of the finest tiles.
func (s *Stores) Growth() []growth.Tenant { return s.growth.Report(s.now().Unix()) }

// NewTotal is told of a series of OTLP's deltas that is new to the aggregator, or for which a
// limit has no place: its tiles do not know who sent it.
func (s *Stores) NewTotal(tenant string, ls labels.Labels, from sender.Sender, refused bool) {
	store := tile.Width10s.String()
	if refused {
		s.growth.Add(s.now().Unix(), &growth.Series{Tenant: tenant, Store: store, Labels: ls, Sender: from, Refused: true})
		return
	}
	s.growth.Sent(tenant, store, ls.Get(model.MetricNameLabel), from)
}

// newcomers tells of the series that are new to the head of one database.
type newcomers struct {
	tracker *growth.Tracker
	tenant  string
	store   string
	now     func() time.Time
	open    atomic.Bool   // the database is: what comes before was there when it was closed
	sender  sender.Sender // of the request that is being written; zero for tiles
}

// tell tells of a series.
func (n *newcomers) tell(ls labels.Labels, refused bool) {
	n.tracker.Add(n.now().Unix(), &growth.Series{Tenant: n.tenant, Store: n.store, Labels: ls, Sender: n.sender, Refused: refused})
}

// PreCreation, PostCreation and PostDeletion are tsdb's callbacks.
func (*newcomers) PreCreation(labels.Labels) error { return nil }

func (n *newcomers) PostCreation(ls labels.Labels) {
	if n.open.Load() {
		n.tell(ls, false)
	}
}

func (*newcomers) PostDeletion(map[chunks.HeadSeriesRef]labels.Labels) {}

// newcomers returns what tells of new series of the store's database; nil if that has the
// series of another store.
func (s *store) newcomers() *newcomers {
	if s.kind != Raw && s.kind != tile.Width10s.String() {
		return nil
	}
	return &newcomers{tracker: s.growth, tenant: s.tenant, store: s.kind, now: s.now}
}
