package tsdb

import (
	"errors"

	"github.com/freshet-io/freshet/internal/core/tile"
)

// Raw is the store of samples that are not tiles. Those of tiles have the names
// of their widths.
const Raw = "raw"

// kinds are the stores that a tenant has.
var kinds = []string{Raw, tile.Width10s.String(), tile.Width1m.String()}

var (
	// ErrClosed means that the store takes no reads or writes any more, or, after a
	// failed write, not in the next moments. Nothing was written.
	ErrClosed = errors.New("store is closed")

	// ErrTooManyTenants means that a write would need stores for one tenant more
	// than the configuration allows. Nothing was written.
	ErrTooManyTenants = errors.New("too many tenants; raise store.max_tenants or remove a tenant's directory")
)
