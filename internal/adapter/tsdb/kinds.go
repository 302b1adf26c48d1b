package tsdb

import (
	"errors"
	"slices"

	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// Raw is the store of samples that senders made. Stores of tiles are named after their width.
const Raw = "raw"

// Rules is the store of the results of rules. They are not in Raw, since a result is as new as the clock:
// in one store, results of now would make the samples of a sender that is far behind too old.
const Rules = "rules"

// History is the store of blocks that operators imported. Nobody writes samples to it, and nothing deletes
// or compacts its blocks: an import may be older than any retention, and may overlap with other samples.
const History = "history"

// kinds are the stores of a tenant.
var kinds = []string{Raw, Rules, History, tile.Width10s.String(), tile.Width1m.String()}

// requestKinds are the stores of requests. The others have tiles, or what was imported.
var requestKinds = []string{Raw, Rules}

// hasRequests reports whether the store is one of requestKinds.
func (s *store) hasRequests() bool { return slices.Contains(requestKinds, s.kind) }

// queue returns the name of the queue whose requests the store has.
func (s *store) queue() string { return write.QueueOf(s.tenant, s.kind == Rules) }

// ErrClosed means that the store takes no reads or writes: for a moment after a failed write or sync,
// and for good after Close. Nothing was written.
var ErrClosed = errors.New("store is closed")

var errDamaged = errors.New("another write at the same time failed")
