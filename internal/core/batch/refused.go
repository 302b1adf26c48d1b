package batch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrRefused means that batches can never be taken, however often they are
// pushed.
var ErrRefused = errors.New("refused for good")

// ErrUnsynced means that batches count and survive the death of the process, but
// are not acknowledged, since they might not survive a power loss. Pushed again
// they are repeats.
var ErrUnsynced = errors.New("not synced to the disk")

// FullError means that the batches of some tenants are refused for good: their stores take
// nothing, and as many samples wait for them as may. The batches of all other tenants count.
type FullError struct {
	Samples map[string]uint64 // refused, by tenant
	Cause   error             // why a store takes nothing, nil if it is only slow
}

// Error is part of error.
func (e *FullError) Error() string {
	text := "the store of tenant " + strings.Join(slices.Sorted(maps.Keys(e.Samples)), ", ") +
		" does not keep up, and store.pending is reached: its new samples are refused, those before are kept; mend the store, or raise the setting"
	if e.Cause != nil {
		return fmt.Sprintf("%s: %v", text, e.Cause)
	}
	return text
}

// Unwrap returns the cause.
func (e *FullError) Unwrap() error { return e.Cause }
