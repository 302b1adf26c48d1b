package group

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/write"
)

// A member takes a request that is offered with its entry, once. If the same offer comes again with another
// entry, that entry is decoded.
func TestAnOfferIsTakenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		p := start(t, memfs.New(), s)
		defer p.terminate()
		now, decoded := time.Now(), write.NewIncoming()
		first, second := request(t, "a", "r", now, 1), request(t, "a", "r", now.Add(time.Second), 2)
		body, err := remotewrite.Decompress(nil, first.Request.Body, 1000)
		if err == nil {
			err = decoded.DecodeV2(body)
		}
		if err != nil {
			t.Fatal(err)
		}
		offer := &write.Offer{Request: decoded}
		first.Request.Offer, second.Request.Offer = offer, offer
		for _, e := range []*entry.Entry{first, second} {
			if o, err := p.Write(t.Context(), e); err != nil || o.Written.Samples != 1 {
				t.Fatal(o, err)
			}
		}
		if offer.Take() {
			t.Error("the member has not taken what was offered")
		}
		for _, samples := range s.have {
			if samples[now.UnixMilli()] != 1 || samples[now.Add(time.Second).UnixMilli()] != 2 {
				t.Errorf("stored are %v, want 1 and 2", samples)
			}
		}
	})
}
