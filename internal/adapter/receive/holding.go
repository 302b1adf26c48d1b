package receive

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/buf"
)

// holding has everything that a request occupies until it is answered: buffers, decoded requests,
// and its share of Receiver.memory.
type holding struct {
	receiver *Receiver
	tenant   string
	sender   sender.Sender
	token    string        // name of the request's token
	bytes    int64         // bytes taken from Receiver.memory
	shared   *atomic.Int64 // bytes that all requests of the tenant have taken
	refused  error         // the error of the request, if memory ran out
	buffers  []*buf.Buf
	requests []*write.Incoming
	offer    write.Offer // of a request that is not in `requests`
	trip     *stage.Trip // nil if the Receiver has no Watch
	tripRoom stage.Trip  // trip points to this field, which saves an allocation
}

// hold makes the holding of a request. The caller must call release when the request is
// answered.
func (r *Receiver) hold(tenant string, request *http.Request) *holding {
	shared, known := r.tenants.Load(tenant)
	if !known {
		shared, _ = r.tenants.LoadOrStore(tenant, new(atomic.Int64))
	}
	return &holding{
		receiver: r, tenant: tenant, sender: r.Sender(request), token: r.Token(request), shared: shared.(*atomic.Int64),
	}
}

// begin begins the trip of the request. `headers` may be nil.
func (h *holding) begin(input stage.Input, begun time.Time, headers http.Header) {
	if h.receiver.Watch == nil {
		return
	}
	h.trip = &h.tripRoom
	h.trip.Input, h.trip.Tenant, h.trip.Born, h.trip.Parent = input, h.tenant, begun, headers.Get("Traceparent")
	h.trip.Enter(stage.Read, begun)
}

// context returns the context for the distributor. The context carries the trip, and ends when the
// sender disconnects.
func (h *holding) context(request *http.Request) context.Context {
	if h.trip == nil {
		return request.Context()
	}
	return stage.NewContext(request.Context(), h.trip)
}

// parsed counts the request and its decompressed bytes. `requests` are the parsed parts.
func (h *holding) parsed(input stage.Input, bytes int, requests ...*write.Incoming) {
	samples, newest := 0, int64(math.MinInt64)
	for _, r := range requests {
		parts := r.Counts()
		samples += parts.Samples + parts.Histograms
		last, _ := r.Newest()
		newest = max(newest, last)
	}
	from := top.Requester{Tenant: h.tenant, Input: input.String(), Token: h.token, Sender: h.sender}
	h.receiver.sources.Sent(time.Now().Unix(), from, bytes, samples, newest)
	if h.trip == nil {
		return
	}
	h.trip.Pass(stage.Parse, stage.Distribute, time.Now())
}

// end ends the trip. After an error, the trip ends in the stage that it has reached.
func (h *holding) end(err error) {
	if err != nil {
		h.trip.Fail(time.Now())
	}
	if h.trip != nil {
		h.receiver.Watch.End(h.trip)
	}
}

// release gives back all memory, and returns the buffers to their pools.
func (h *holding) release() {
	for _, b := range h.buffers {
		b.Release()
	}
	for _, request := range h.requests {
		request.Release()
	}
	if h.offer.Take() {
		h.offer.Request.Release()
	}
	h.shared.Add(-h.bytes)
	h.receiver.memory.Release(h.bytes)
}

func (h *holding) buffer() *buf.Buf {
	b := buf.Get()
	h.buffers = append(h.buffers, b)
	return b
}

// request returns an empty write.Incoming to parse a request into.
func (h *holding) request() *write.Incoming {
	request := write.NewIncoming()
	request.Sender = h.sender
	h.requests = append(h.requests, request)
	return request
}

// offered is request for the only request of a holding, which a group may take. It has an empty Body.
func (h *holding) offered() *write.Incoming {
	request := write.NewIncoming()
	request.Sender, request.Body, request.Offer = h.sender, buf.Get(), &h.offer
	h.offer.Request = request
	return request
}

// share bounds the memory of one tenant: its requests together get at most 1/share of
// Receiver.memory, so that other tenants can write, too. A tenant with a single request may take
// all memory.
const share = 2

// take takes memory, and reports whether there was enough.
func (h *holding) take(bytes int64) bool {
	if had := h.shared.Add(bytes) - bytes; had > h.bytes && had+bytes > h.receiver.MaxMemory/share {
		h.shared.Add(-bytes)
		return false
	}
	if !h.receiver.memory.TryAcquire(bytes) {
		h.shared.Add(-bytes)
		return false
	}
	h.bytes += bytes
	return true
}

// growStep is the smallest step by which a holding grows, in bytes.
const growStep = 16 << 10

// grow takes memory so that the request has `to` bytes in total.
func (h *holding) grow(to int) error {
	if int64(to) <= h.bytes {
		return nil
	}
	most := h.receiver.MaxMemory
	if int64(to) > most {
		return h.fail(h.receiver.refuse(h.tenant, http.StatusRequestEntityTooLarge, "too_large", fmt.Errorf(
			"the decoded request takes more than the %d bytes that distributor.max_memory allows for all requests together; "+
				"send smaller requests", most)))
	}
	if !h.take(min(max(int64(to)-h.bytes, growStep), most-h.bytes)) {
		return h.fail(h.receiver.Distributor.NoMemory(h.tenant))
	}
	return nil
}

// more calls grow for the given number of additional bytes.
func (h *holding) more(bytes int) error { return h.grow(int(h.bytes) + bytes) }

func (h *holding) fail(err error) error {
	h.refused = err
	return err
}
