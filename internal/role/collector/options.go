package collector

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/sockets"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/probe"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/settings"
)

// Aggregator takes the batches of a window.
type Aggregator interface {
	// Push hands over the batches of a window: see package batch.
	Push(ctx context.Context, batches []batch.Batch) error
	// Through tells the aggregator that all windows that end at or before t were pushed. t is in Unix
	// milliseconds. Any goroutine may call Through, about once a second, and it does not wait.
	Through(t int64)
}

// Events stores events.
type Events interface {
	Append(ctx context.Context, events []event.Event) error
}

// CatalogueFile keeps the catalogue, so that a name's owner is the same after a restart.
type CatalogueFile interface {
	Save([]catalogue.Metric) error
	Forget([]catalogue.Metric) error
}

// Pods says of which pod a container is.
type Pods interface {
	// Find returns the pod of a container, by its id or by the inode of its cgroup, or else of a pod's UID; nil if it
	// knows none of them. It does not wait. Once a pod becomes known that was not found, Collector.Renew must be called.
	Find(container, inode, uid []byte) *mapping.Pod
}

// Options are the parts of a collector. A reload changes Config, Mapper and Host.
type Options struct {
	Config        settings.DogStatsD
	Mapper        *mapping.Mapper
	Catalogue     *catalogue.Catalogue
	Limiter       *limit.Limiter
	CatalogueFile CatalogueFile
	Pods          Pods // nil if no label needs it
	Ledger        *ledger.Ledger
	Watch         *stage.Watch // may be nil
	Aggregator    Aggregator
	Events        Events
	Producer      uint64      // identifies this collector, across restarts
	Connections   int         // limit for all Unix stream sockets together; 0 means the default limit for each socket
	Shared        bool        // windows go to a group, which decides under which names series are stored
	Host          string      // for events without a host
	Probe         *probe.Mark // marks Freshet's own probes; nil if it sends none
	Now           func() time.Time
	Registry      prometheus.Registerer
	Logger        *slog.Logger

	// Inherited returns the sockets for an address of Config that are already open. If the function
	// is nil, there are none.
	Inherited func(network, address string) []sockets.Inherited
}

// address is where a socket listens. No two sockets have the same address.
type address struct{ network, address string }

func addressOf(l settings.Listener) address { return address{l.Network, l.Address} }

// reports counts what the catalogue finds.
type reports struct{ conflicts, forms, collisions, full atomic.Uint64 }
