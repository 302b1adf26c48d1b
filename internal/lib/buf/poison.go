//go:build poison

package buf

// Poisoned is true if released buffers are overwritten.
const Poisoned = true

// spoil overwrites a buffer with bytes that are no text, no small number and no valid UTF-8.
func spoil(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}
