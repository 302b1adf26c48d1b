package tsdb

import (
	"errors"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/core/partial"
)

// BrokenError says why a store cannot be opened, or what broke after it was opened. A store that cannot
// be opened tries again once a minute and whenever it is needed, but not right after a failed try.
type BrokenError struct {
	Tenant, Store string
	Since         time.Time // time of the first failed try
	Cause         error
	WayOut        string // what to do, and which data is then lost
	Open          bool   // the store broke while open: see the method look

	// Damaged says that files of the store are damaged, and that other members of the group have its data: see
	// Stores.NeverRepair.
	Damaged bool
}

// Error does not name the tenant and the store, because the errors that wrap it do.
func (e *BrokenError) Error() string { return fmt.Sprintf("%v; %s", e.Cause, e.WayOut) }

// otherMember is the way out for a damaged store of a group.
const otherMember = "other nodes have all data of this store: replace this node"

// Is makes errors.Is find ErrElsewhere in the error of a damaged store.
func (e *BrokenError) Is(target error) bool { return e.Damaged && target == partial.ErrElsewhere }

// Unwrap returns the cause.
func (e *BrokenError) Unwrap() error { return e.Cause }

var (
	errGone      = errors.New("its directory was moved or removed while it was open")
	errNotTaking = errors.New("a write failed, and the store's disk still accepts no writes")
)
