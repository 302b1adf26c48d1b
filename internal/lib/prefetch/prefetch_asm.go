//go:build amd64 || arm64

package prefetch

import "unsafe"

// Lines asks for the cache line at each address. Addresses need not be mapped.
func Lines(at []unsafe.Pointer) {
	if len(at) > 0 {
		lines(&at[0], len(at))
	}
}

//go:noescape
func lines(at *unsafe.Pointer, n int)
