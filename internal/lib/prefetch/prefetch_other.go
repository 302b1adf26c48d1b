//go:build !amd64 && !arm64

package prefetch

import "unsafe"

// Lines does nothing, since there is no assembly for this processor.
func Lines([]unsafe.Pointer) {}
