package batch

import "errors"

// ErrRefused means that batches can never be taken, however often they are
// pushed.
var ErrRefused = errors.New("refused for good")

// ErrUnsynced means that batches count and survive the death of the process, but
// are not acknowledged, since they might not survive a power loss. Pushed again
// they are repeats.
var ErrUnsynced = errors.New("not synced to the disk")
