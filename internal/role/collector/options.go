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
	// Push returns nil once they are acknowledged. After an error none of them
	// counts, and they are pushed again unless it wraps batch.ErrRefused, or is a
	// batch.FullError: those of the tenants that it names are refused then, the
	// others count.
	Push(ctx context.Context, batches []batch.Batch) error
	// Through says that a producer has pushed all windows that end at or before t, Unix
	// milliseconds. It is called about once a second by any goroutine, and does not wait.
	Through(producer uint64, t int64)
}

// Events takes what is no measurement.
type Events interface {
	Append(ctx context.Context, events []event.Event) error
}

// CatalogueFile keeps the catalogue, so that a name's owner is the same after a restart.
type CatalogueFile interface {
	Save([]catalogue.Entry) error
	Forget([]catalogue.Entry) error
}

// Options are what a collector works with. A reload changes Config, Mapper and Host.
type Options struct {
	Config        settings.DogStatsD
	Mapper        *mapping.Mapper
	Catalogue     *catalogue.Catalogue
	Limiter       *limit.Limiter
	CatalogueFile CatalogueFile
	Ledger        *ledger.Ledger
	Watch         *stage.Watch // nil for none
	Aggregator    Aggregator
	Events        Events
	Producer      uint64      // the number of this collector, the same after a restart
	Connections   int         // open at once on all Unix stream sockets together; 0 for as many as each takes
	Host          string      // of events whose sender named none
	Probe         *probe.Mark // on what Freshet sends itself; nil for nothing
	Now           func() time.Time
	Registry      prometheus.Registerer
	Logger        *slog.Logger

	// Inherited returns the sockets for an address of Config that are open already.
	// nil: there are none.
	Inherited func(network, address string) []sockets.Inherited
}

// address is where a socket listens. Two cannot be the same.
type address struct{ network, address string }

func addressOf(l settings.Listener) address { return address{l.Network, l.Address} }

// reports counts what the catalogue found worth telling.
type reports struct{ conflicts, forms, collisions, full atomic.Uint64 }
