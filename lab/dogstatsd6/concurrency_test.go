package dogstatsd6

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

// concurrency is a technique. It parses n packets of the traffic and returns the number of their
// samples.
type concurrency struct {
	name string
	run  func(n int) (samples int)
}

var concurrencies = []concurrency{
	{"goroutine a packet", byGoroutines}, {"pool", byWorkers}, {"ours", byReader},
}

// BenchmarkConcurrency measures the path from the reader to the counted sample. All techniques use the
// same parser.
//
// Bound for our technique: 0 allocs/op, and no more time than the parser alone takes.
func BenchmarkConcurrency(b *testing.B) {
	for _, c := range concurrencies {
		b.Run(c.name, func(b *testing.B) {
			measure(b, func(n int) {
				if got := c.run(n); got != n {
					b.Fatalf("%d of %d samples", got, n)
				}
			})
		})
	}
}

func TestConcurrencies(t *testing.T) {
	for _, c := range concurrencies {
		if n := 3*len(traffic) + 1; c.run(n) != n {
			t.Errorf("%s: the technique did not count %d samples", c.name, n)
		}
	}
}

// byGoroutines is the first version: a goroutine for each packet. Here a bound limits the number of
// goroutines. In the Agent, only the rate of packets limited this number.
func byGoroutines(n int) int {
	var samples atomic.Int64
	var all sync.WaitGroup
	parsers := sync.Pool{New: func() any { return new(dogstatsd.Parser) }}
	running := make(chan struct{}, 1000)
	for i := range n {
		running <- struct{}{}
		all.Go(func() {
			p := parsers.Get().(*dogstatsd.Parser)
			samples.Add(int64(parse(p, packet(i))))
			parsers.Put(p)
			<-running
		})
	}
	all.Wait()
	return int(samples.Load())
}

// byWorkers is the version of the talk: packets pass through one channel to a fixed number of workers.
func byWorkers(n int) int {
	var samples atomic.Int64
	var all sync.WaitGroup
	packets := make(chan []byte, 1000)
	for range max(2, runtime.GOMAXPROCS(0)-2) {
		all.Go(func() {
			var p dogstatsd.Parser
			own := 0
			for packet := range packets {
				own += parse(&p, packet)
			}
			samples.Add(int64(own))
		})
	}
	for i := range n {
		packets <- packet(i)
	}
	close(packets)
	all.Wait()
	return int(samples.Load())
}

// byReader is Freshet's technique: one goroutine reads the socket and parses, and shares nothing.
// To use more cores, Freshet opens more sockets.
func byReader(n int) (samples int) {
	var p dogstatsd.Parser
	for i := range n {
		samples += parse(&p, packet(i))
	}
	return samples
}
