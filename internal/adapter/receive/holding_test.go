package receive

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/golang/snappy"
)

// An ingester that lags behind others still reads the request: its memory is given back
// when that is done, not when the answer goes out.
func TestMemoryIsHeldUntilTheRequestIsDone(t *testing.T) {
	for why, send := range map[string]func(*Receiver) int{
		"remote write": func(r *Receiver) int {
			return post(r, typeV2, "snappy", bytes.NewReader(snappy.Encode(nil, v2Body(t)))).Code
		},
		"OTLP": func(r *Receiver) int {
			return postOTLP(r, protobuf, "", bytes.NewReader(must(t, otlpRequest(2).MarshalProto))).Code
		},
	} {
		var done func()
		r := newReceiver(&distributor{settings: escaping, late: &done})
		if code := send(r); code/100 != http.StatusOK/100 || done == nil {
			t.Fatalf("%s: %d", why, code)
		}
		if r.memory.TryAcquire(r.MaxMemory) {
			t.Errorf("%s: memory that is in use was given back", why)
		}
		done()
		if !r.memory.TryAcquire(r.MaxMemory) {
			t.Errorf("%s: not all memory was given back", why)
		}
	}
}
