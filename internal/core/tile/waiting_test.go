package tile

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"slices"
	"strings"
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
		t.Errorf("the histogram is read as %+v, error %v, with %d bytes left, want %+v", got, d.err, len(d.b), h)
	}
}

// Two shards fold the same log, and must behave alike. The stores of the first shard take each tile at
// once, and those of the second take nothing. A series that had ended used to stay in a shard while
// samples of its tenant waited. So the second shard still knew the counter's last delta, and refused a
// late delta. It also closed each tile of a downtime, although it had only an up/down counter, for which
// these tiles need not be made.
func TestWhatWaitsDecidesNothing(t *testing.T) {
	var shards [2]*Shard
	var outs [2][]string
	for i := range shards {
		p := &player{t: t, config: testConfig()}
		p.shard = New(p.config, base)
		until := func(seconds int64) {
			for end := base + seconds*1000; p.shard.Closed() < end; {
				next := p.shard.Closed() + tileMillis
				if p.shard.Rests() {
					next = end
				}
				for _, w := range p.shard.Close(next, p.config).Waiting {
					outs[i] = append(outs[i], p.describe(w, ""))
				}
				if i == 0 {
					p.shard.AllStored()
				}
			}
		}
		outs[i] = append(outs[i], p.run("window start=1s\ncounter c 5 delta=2s"))
		until(600)
		outs[i] = append(outs[i], p.run("window start=601s\ncounter c 7 delta=2s\nupdown u -3"))
		until(3600)
		p.shard.AllStored()
		shards[i] = p.shard
	}
	if !slices.Equal(outs[0], outs[1]) {
		t.Errorf("tiles stored at once: got\n%s\ntiles stored late: got\n%s",
			strings.Join(outs[0], ""), strings.Join(outs[1], ""))
	}
	if !bytes.Equal(shards[0].AppendState(nil), shards[1].AppendState(nil)) {
		t.Error("the states differ")
	}
}
