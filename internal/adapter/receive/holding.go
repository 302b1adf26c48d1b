package receive

import (
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/lib/buf"
)

// holding is all that one request holds until nobody uses it any more: buffers, decoded
// requests, and its part of the memory of all requests.
type holding struct {
	receiver *Receiver
	tenant   string
	bytes    int64 // of Receiver.memory
	users    atomic.Int32
	buffers  []*buf.Buf
	requests []*remotewrite.Request
}

// hold begins a holding with one user.
func (r *Receiver) hold(tenant string) *holding {
	h := &holding{receiver: r, tenant: tenant}
	h.users.Store(1)
	return h
}

// keep adds a user, who calls what it returns once.
func (h *holding) keep() (release func()) {
	h.users.Add(1)
	return h.release
}

// release is called once by each user. The last one gives everything back.
func (h *holding) release() {
	switch n := h.users.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("BUG: what a request holds is released by more than use it")
	}
	for _, b := range h.buffers {
		b.Release()
	}
	for _, request := range h.requests {
		if request.Small() {
			h.receiver.decoded.Put(request)
		}
	}
	h.receiver.memory.Release(h.bytes)
}

func (h *holding) buffer() *buf.Buf {
	b := buf.Get()
	h.buffers = append(h.buffers, b)
	return b
}

func (h *holding) request() *remotewrite.Request {
	request := h.receiver.decoded.Get().(*remotewrite.Request)
	h.requests = append(h.requests, request)
	return request
}

// take takes memory, and reports whether there was enough.
func (h *holding) take(bytes int64) bool {
	if !h.receiver.memory.TryAcquire(bytes) {
		return false
	}
	h.bytes += bytes
	return true
}

// growStep is what a holding grows by at least, in bytes.
const growStep = 64 << 10

// grow takes memory until the request has that many bytes.
func (h *holding) grow(to int) error {
	if int64(to) <= h.bytes {
		return nil
	}
	most := h.receiver.MaxMemory
	if int64(to) > most {
		return h.receiver.refuse(h.tenant, http.StatusRequestEntityTooLarge, "too_large", fmt.Errorf(
			"the request takes more than %d bytes once its data points are series, which is what ingest.max_memory allows for all requests together; send fewer data points in a request", most))
	}
	if !h.take(min(max(int64(to)-h.bytes, growStep), most-h.bytes)) {
		return h.receiver.Distributor.NoMemory()
	}
	return nil
}
