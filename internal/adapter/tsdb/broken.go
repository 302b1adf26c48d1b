package tsdb

import (
	"errors"
	"fmt"
	"time"
)

// BrokenError says why a store cannot be opened, or what broke after it was opened. A store that cannot
// be opened tries again once a minute and whenever it is needed, but not right after a failed try.
type BrokenError struct {
	Tenant, Store string
	Since         time.Time // time of the first failed try
	Cause         error
	WayOut        string // what to do, and which data is then lost
	Open          bool   // the store broke while open: see the method look
}

// Error does not name the tenant and the store, because the errors that wrap it do.
func (e *BrokenError) Error() string { return fmt.Sprintf("%v; %s", e.Cause, e.WayOut) }

// Unwrap returns the cause.
func (e *BrokenError) Unwrap() error { return e.Cause }

var (
	errGone      = errors.New("its directory was moved or removed while it was open")
	errNotTaking = errors.New("a write failed, and the store's disk still accepts no writes")
)
