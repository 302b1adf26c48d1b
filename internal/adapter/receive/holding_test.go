package receive

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/golang/snappy"
)

// The distributor may read the request until Push returns, but not later.
func TestMemoryIsHeldUntilTheRequestIsDone(t *testing.T) {
	for why, send := range map[string]func(*Receiver) int{
		"remote write": func(r *Receiver) int {
			return post(r, typeV2, "snappy", bytes.NewReader(snappy.Encode(nil, v2Body(t)))).Code
		},
		"OTLP": func(r *Receiver) int {
			return postOTLP(r, protobuf, "", bytes.NewReader(must(t, otlpRequest(2).MarshalProto))).Code
		},
	} {
		d, pushed := &distributor{settings: escaping}, false
		r := newReceiver(d)
		d.during = func() {
			if pushed = true; r.memory.TryAcquire(r.MaxMemory) {
				t.Errorf("%s: memory was given back while it was in use", why)
			}
		}
		if code := send(r); code/100 != http.StatusOK/100 || !pushed {
			t.Fatalf("%s: %d", why, code)
		}
		if !r.memory.TryAcquire(r.MaxMemory) {
			t.Errorf("%s: not all memory was given back", why)
		}
	}
}
