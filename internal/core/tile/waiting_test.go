package tile

import (
	"encoding/hex"
	"reflect"
	"testing"

	prom "github.com/prometheus/prometheus/model/histogram"
)

// A waiting histogram has the bytes that docs/format/checkpoint.md draws. Spans and buckets of the
// positive side come before the negative ones.
func TestBytesOfAWaitingHistogram(t *testing.T) {
	h := &prom.FloatHistogram{Schema: -1, ZeroThreshold: 0.5, ZeroCount: 1, Count: 8, Sum: -2,
		PositiveSpans: []prom.Span{{Offset: -3, Length: 2}}, PositiveBuckets: []float64{1, 2},
		NegativeSpans: []prom.Span{{Offset: 5, Length: 1}, {Offset: 1, Length: 1}}, NegativeBuckets: []float64{3, 1},
	}
	const want = "01" + // schema
		"000000000000e03f" + "000000000000f03f" + "0000000000002040" + "00000000000000c0" +
		"01" + "0502" + "000000000000f03f" + "0000000000000040" +
		"02" + "0a01" + "0201" + "0000000000000840" + "000000000000f03f"
	b := appendHistogram(nil, h)
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	d := decoder{b: b}
	if got := d.histogram(); d.err != nil || len(d.b) > 0 || !reflect.DeepEqual(got, h) {
		t.Errorf("read as %+v, %v, and %d bytes are left", got, d.err, len(d.b))
	}
}
