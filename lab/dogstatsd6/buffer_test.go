package dogstatsd6

import (
	"sync"
	"testing"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

// bufferSize is the size of the Agent's buffers, and so of the largest packet that the Agent accepts.
const bufferSize = 8192

// buffering is a technique. It copies n packets of the traffic into buffers, as the system call would
// do, parses them there, and returns the number of their samples.
type buffering struct {
	name string
	run  func(n int) (samples int)
}

var bufferings = []buffering{
	{"a buffer a packet", byMaking}, {"sync.Pool", byPool}, {"ours", bySlots},
}

// BenchmarkBuffer measures the time to get memory for a packet and to parse the packet there. All
// techniques use the same parser.
//
// Bound for our technique: 0 allocs/op, and no more time than the parser and a copy take.
func BenchmarkBuffer(b *testing.B) {
	for _, buffers := range bufferings {
		b.Run(buffers.name, func(b *testing.B) {
			measure(b, func(n int) {
				if got := buffers.run(n); got != n {
					b.Fatalf("%d of %d samples", got, n)
				}
			})
		})
	}
}

func TestBufferings(t *testing.T) {
	for _, buffers := range bufferings {
		if n := 3*len(traffic) + 1; buffers.run(n) != n {
			t.Errorf("%s: the technique did not count %d samples", buffers.name, n)
		}
	}
}

// byMaking is the first version: each read gets a new buffer.
func byMaking(n int) (samples int) {
	p := new(dogstatsd.Parser)
	for i := range n {
		buffer := make([]byte, bufferSize)
		samples += parse(p, buffer[:copy(buffer, packet(i))])
	}
	return samples
}

// byPool is the version of the talk: buffers come from a pool and return to it. Here both happen on
// one core, which is the best case for a pool.
func byPool(n int) (samples int) {
	p := new(dogstatsd.Parser)
	pool := sync.Pool{New: func() any { return new([bufferSize]byte) }}
	for i := range n {
		buffer := pool.Get().(*[bufferSize]byte)
		samples += parse(p, buffer[:copy(buffer[:], packet(i))])
		pool.Put(buffer)
	}
	return samples
}

// bySlots is Freshet's technique. A reader keeps adjacent slots with room for one batch of packets, and
// parses the whole batch before it reads again.
func bySlots(n int) (samples int) {
	const slots = 64
	p := new(dogstatsd.Parser)
	memory := make([]byte, slots*bufferSize)
	for i := range n {
		slot := memory[i%slots*bufferSize:][:bufferSize]
		samples += parse(p, slot[:copy(slot, packet(i))])
	}
	return samples
}
