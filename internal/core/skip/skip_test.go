package skip

import (
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/freshet-io/freshet/internal/core/entry"
)

// The description counts what is lost as far as it can be read, and never fails: the reason for which an entry cannot
// be applied may lie in its bytes.
func TestOf(t *testing.T) {
	request := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		{Labels: []prompb.Label{{Name: "__name__", Value: "a"}},
			Samples: []prompb.Sample{{Value: 1}, {Value: 2, Timestamp: 1}}},
		{Labels: []prompb.Label{{Name: "__name__", Value: "b"}}, Samples: []prompb.Sample{{Value: 3}}},
	}}
	body, err := request.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	of := func(kind entry.Kind, body []byte) []byte {
		e := entry.Entry{Kind: kind, Group: 1, Shape: 1, Request: entry.Request{Tenant: "blue", Window: 1000,
			Form: entry.RemoteWrite1, Body: body}}
		return e.Append(nil)
	}
	good := of(entry.KindRequest, snappy.Encode(nil, body))
	for _, c := range []struct {
		name    string
		data    []byte
		what    string
		samples uint64
	}{
		{"a request", good, `a request of tenant "blue"`, 3},
		{"deltas", of(entry.KindDeltas, snappy.Encode(nil, body)), `OTLP deltas of tenant "blue"`, 3},
		{"a body that is damaged", of(entry.KindRequest, []byte("?")), `a request of tenant "blue"`, 0},
		{"bytes of nothing", []byte{255, 1, 2}, "an entry that cannot be read", 0},
		{"an entry that ends early", good[:3], "an entry that cannot be read", 0},
	} {
		e := Of(7, c.data)
		if !strings.HasPrefix(e.What, c.what) || e.Samples != c.samples {
			t.Errorf("%s: %+v, want %q and %d samples", c.name, e, c.what, c.samples)
		}
		if all := (List{e}); all.Find(7, c.data) == nil || all.Find(8, c.data) != nil || all.Find(7, good[1:]) != nil {
			t.Errorf("%s: the list does not find exactly this entry", c.name)
		}
	}
}
