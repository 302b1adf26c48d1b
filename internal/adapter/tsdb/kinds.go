package tsdb

import (
	"errors"

	"github.com/freshet-io/freshet/internal/core/tile"
)

// Raw is the store of samples that are not tiles. Stores of tiles are named after their width.
const Raw = "raw"

// kinds are the stores of a tenant.
var kinds = []string{Raw, tile.Width10s.String(), tile.Width1m.String()}

// ErrClosed means that the store takes no reads or writes: for a moment after a failed write or sync,
// and for good after Close. Nothing was written.
var ErrClosed = errors.New("store is closed")
