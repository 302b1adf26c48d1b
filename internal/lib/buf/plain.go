//go:build !poison

package buf

// Poisoned is true if released buffers are overwritten.
const Poisoned = false

func spoil([]byte) {}
