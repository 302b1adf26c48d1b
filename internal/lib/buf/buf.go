// Package buf pools byte buffers. A buffer has one owner, which releases it when nothing
// points into it any more.
//
// With the build tag poison, Release overwrites the buffer: a pointer that outlives its
// buffer then reads nonsense in a test, instead of another request's bytes in production.
package buf

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// maxKept is the longest buffer that the pool keeps, in bytes. Longer ones are rare and would
// stay in memory.
const maxKept = 4 << 20

// Buf is a buffer of the pool.
type Buf struct {
	B     []byte
	owned atomic.Bool
}

var pool = sync.Pool{New: func() any { return new(Buf) }}

// Get returns an empty buffer. The caller owns it until Release.
func Get() *Buf {
	b := pool.Get().(*Buf)
	b.owned.Store(true)
	return b
}

// Release returns the buffer to the pool. The owner calls it once and must not use the buffer
// afterwards.
func (b *Buf) Release() {
	if !b.owned.Swap(false) {
		panic(fmt.Sprintf("BUG: a buffer of %d bytes is released twice", len(b.B)))
	}
	spoil(b.B[:cap(b.B)])
	if cap(b.B) > maxKept {
		b.B = nil
	}
	b.B = b.B[:0]
	pool.Put(b)
}
