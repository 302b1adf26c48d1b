//go:build !amd64 && !arm64

package prefetch

import "unsafe"

// Lines does nothing on other processors.
func Lines([]unsafe.Pointer) {}
