package batch

import "errors"

// ErrRefused means that batches can never be taken, however often they are
// pushed.
var ErrRefused = errors.New("refused for good")
