// Package buf holds byte buffers that are used again, and whose users are counted: whoever
// points into one keeps it, and the last who lets go of it gives it back.
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

// Buf is a buffer with one user or more.
type Buf struct {
	B     []byte
	users atomic.Int32
}

var pool = sync.Pool{New: func() any { return new(Buf) }}

// Get returns an empty buffer with one user.
func Get() *Buf {
	b := pool.Get().(*Buf)
	b.users.Store(1)
	return b
}

// Keep adds a user. It is called by one, for another.
func (b *Buf) Keep() *Buf {
	if b.users.Add(1) < 2 {
		panic("BUG: a buffer is kept that nobody had")
	}
	return b
}

// Release is called once by each user, who must not look into the buffer any more.
func (b *Buf) Release() {
	switch n := b.users.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic(fmt.Sprintf("BUG: a buffer of %d bytes is released by more than had it", len(b.B)))
	}
	spoil(b.B[:cap(b.B)])
	if cap(b.B) > maxKept {
		b.B = nil
	}
	b.B = b.B[:0]
	pool.Put(b)
}
