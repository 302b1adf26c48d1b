//go:build !amd64 && !arm64

package prefetch

import "unsafe"

// Lines does nothing where no instruction is known to us.
func Lines([]unsafe.Pointer) {}
