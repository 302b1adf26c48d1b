package dogstatsd6

import (
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/load"
)

// traffic holds the packets for all tables; their number is a power of two.
var traffic = func() [][]byte {
	c := load.Standard()
	c.MetricsPerPacket = 1
	l, err := load.New(c)
	if err != nil {
		panic("BUG: the standard load: " + err.Error())
	}
	packets := make([][]byte, 0, 1<<12)
	for len(packets) < cap(packets) {
		next := l.Next(cap(packets) - len(packets))
		for packet := range slices.Chunk(next.Data, next.Size) {
			// Give each packet spare capacity, since a receiver's buffer extends beyond a packet.
			packets = append(packets, slices.Grow(slices.Clone(packet), 128))
		}
	}
	return packets
}()

// packet returns packet i of the traffic, which repeats without end.
func packet(i int) []byte { return traffic[i&(len(traffic)-1)] }

// measure runs f for n metrics and reports the CPU time of each metric instead of its wall time.
func measure(b *testing.B, f func(n int)) {
	f(len(traffic)) // introduces the contexts and allocates their memory
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime()
	f(b.N)
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "ns/op")
}

// cpuTime returns the CPU time of the process in nanoseconds.
func cpuTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("BUG: getrusage of oneself: " + err.Error())
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// parse is the step that all tables with whole packets share: it reads a packet with our parser and returns
// the number of its samples.
func parse(p *dogstatsd.Parser, packet []byte) (samples int) {
	p.Reset(packet)
	for p.Next() == dogstatsd.MetricLine {
		samples += max(1, len(p.Metric.Values))
	}
	return samples
}
