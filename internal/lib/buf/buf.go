// Package buf holds byte buffers that are used again. A buffer has one owner, who gives it
// back when nobody points into it any more.
//
// With the build tag poison what is given back is overwritten, so that a pointer that
// outlives its buffer reads nonsense in a test, and not another request's bytes in
// production.
package buf

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// maxKept is the longest buffer that is used again, in bytes. Longer ones are rare, and
// would stay in memory.
const maxKept = 4 << 20

// Buf is a buffer.
type Buf struct {
	B     []byte
	owned atomic.Bool
}

var pool = sync.Pool{New: func() any { return new(Buf) }}

// Get returns an empty buffer, which is the caller's until Release.
func Get() *Buf {
	b := pool.Get().(*Buf)
	b.owned.Store(true)
	return b
}

// Release is called once by the owner, who must not look into the buffer any more.
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
