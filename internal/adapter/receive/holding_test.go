package receive

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/golang/snappy"

	"github.com/freshet-io/freshet/internal/core/write"
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

// A group takes a request from the distributor. Then the request and its body belong to the group, and other
// requests do not reuse their memory.
func TestATakenRequestStays(t *testing.T) {
	var taken *write.Incoming
	d := &distributor{take: func(r *write.Incoming) {
		if taken == nil && r.Offer.Take() {
			taken = r
		}
	}}
	r := newReceiver(d)
	send := func(body []byte) {
		if code := post(r, typeV1, "snappy", bytes.NewReader(snappy.Encode(nil, body))).Code; code != http.StatusNoContent {
			t.Fatal(code)
		}
	}
	send(v1Body(t))
	if taken == nil {
		t.Fatal("the request cannot be taken")
	}
	if taken.Offer.Take() {
		t.Error("the request can be taken twice")
	}
	for range 10 {
		send(bytes.ReplaceAll(v1Body(t), []byte("up"), []byte("no")))
	}
	if key := taken.Key(&taken.Series[0]); !bytes.Contains(key, []byte("up")) {
		t.Errorf("the taken request has become %q", key)
	}
	taken.Release()
	if !r.memory.TryAcquire(r.MaxMemory) {
		t.Error("not all memory was given back")
	}
}
