package batch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrRefused means that the batches will never be accepted: retrying cannot help.
var ErrRefused = errors.New("refused for good")

// ErrUnsynced means that the batches count, but are not acknowledged, because a power loss might
// lose them.
var ErrUnsynced = errors.New("not synced to the disk")

// FullError means that the batches of some tenants are refused for good: their stores accept
// nothing, and no more samples may wait for them. The batches of all other tenants are
// accepted.
type FullError struct {
	Samples map[string]uint64 // how many samples are refused, by tenant
	Cause   error             // why a store accepts nothing, nil if it is only slow
}

// Error names the tenants, and the setting whose limit was reached.
func (e *FullError) Error() string {
	text := "the store of tenant " + strings.Join(slices.Sorted(maps.Keys(e.Samples)), ", ") +
		" does not keep up, and store.pending is reached: new samples are refused, waiting ones are kept; mend the store, " +
		"or raise the setting"
	if e.Cause != nil {
		return fmt.Sprintf("%s: %v", text, e.Cause)
	}
	return text
}

// Unwrap returns the cause.
func (e *FullError) Unwrap() error { return e.Cause }
