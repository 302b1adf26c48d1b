package tsdb

import (
	"errors"
	"fmt"
	"time"
)

// BrokenError is why a store cannot be opened. It is tried again with pauses, when
// somebody needs it and once a minute.
type BrokenError struct {
	Tenant, Store string
	Since         time.Time // of the first try that failed
	Cause         error
	WayOut        string // what to do, and what that loses
	Open          bool   // it is open, and broke since: see look
}

// Error does not name the tenant and the store: the errors that wrap it do.
func (e *BrokenError) Error() string { return fmt.Sprintf("%v; %s", e.Cause, e.WayOut) }

// Unwrap returns the cause.
func (e *BrokenError) Unwrap() error { return e.Cause }

var (
	errGone      = errors.New("its directory was moved or removed while it is open")
	errNotTaking = errors.New("a write failed, and its disk still takes none")
)
