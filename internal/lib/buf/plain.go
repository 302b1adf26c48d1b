//go:build !poison

package buf

// Poisoned reports whether released buffers are overwritten.
const Poisoned = false

func spoil([]byte) {}
