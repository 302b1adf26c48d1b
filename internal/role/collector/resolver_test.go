package collector

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
)

// newContexts is a datagram of 14 lines, each of a new context with four tags.
type newContexts struct {
	packet []byte
	ids    [14][]byte // the tag values of the lines, in the packet
	next   int
}

func newStorm() *newContexts {
	n := &newContexts{}
	var ends [14]int
	for i := range n.ids {
		n.packet = fmt.Appendf(n.packet, "shop.requests%d:1|c|#method:GET,status:200,route:/cart,id:0000000000\n", i)
		ends[i] = len(n.packet) - 1
	}
	for i, end := range ends {
		n.ids[i] = n.packet[end-10 : end]
	}
	return n
}

// datagram returns the next datagram, which overwrites the last one.
func (n *newContexts) datagram() []byte {
	for _, id := range n.ids {
		for i, rest := len(id)-1, n.next; i >= 0; i, rest = i-1, rest/10 {
			id[i] = byte('0' + rest%10)
		}
		n.next++
	}
	return n.packet
}

// newStormListener returns a listener of a collector with constant labels.
func newStormListener(t testing.TB, limits limit.Config) *listener {
	l := newFixture(t, func(o *Options) {
		mapper, err := mapping.New(mapping.Config{}, labels.FromStrings("host", "web-1"))
		if err != nil {
			t.Fatal(err)
		}
		o.Mapper, o.Limiter = mapper, limit.New(limits, time.Minute, time.Hour)
	}).listeners()[0]
	l.Tick(time.Now().UnixNano())
	return l
}

// A context over a limit takes the slow path each time. A flood must make no garbage except the text of
// the line, and the name if it has to change.
func TestContextsOverALimitMakeLittleGarbage(t *testing.T) {
	l, storm, now := newStormListener(t, limit.Config{MaxSeriesPerMetric: 1}), newStorm(), time.Now().UnixNano()
	l.Packet(storm.datagram(), now)
	l.Packet(storm.datagram(), now)
	most := 2 * float64(len(storm.ids))
	if allocs := testing.AllocsPerRun(100, func() { l.Packet(storm.datagram(), now) }); allocs > most {
		t.Errorf("%v allocations for %d contexts, want at most %v", allocs, len(storm.ids), most)
	}
}

// BenchmarkNewContext measures the cost of a new context on the reading thread. The context is parsed,
// resolved, and given a place or turned away.
//
// Bound: 1.7 µs of CPU for a context with a place, 1 µs for one over a limit. So a storm of 100,000
// contexts a second takes a tenth to a sixth of a core.
func BenchmarkNewContext(b *testing.B) {
	for _, bench := range []struct {
		name   string
		limits limit.Config
	}{
		{"placed", limit.Config{}},
		{"over a metric's limit", limit.Config{MaxSeriesPerMetric: 1}},
		{"over the tenant's limit", limit.Config{MaxSeries: 14}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l, storm, now := newStormListener(b, bench.limits), newStorm(), time.Now().UnixNano()
			l.Packet(storm.datagram(), now)
			b.ReportAllocs()
			for b.Loop() {
				l.Packet(storm.datagram(), now)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(storm.ids)), "ns/line")
		})
	}
}
