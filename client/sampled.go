package client

import (
	"math/rand/v2"
	"time"
)

// Sampled records only a random sample of the values, for calls so frequent that each call must cost
// less. The server gets the sampling rate, and scales the count up. Counts, gauges and sets need no
// sampling: the client sends one value for any number of calls.
type Sampled struct {
	c    *Client
	rate float64
}

// leastRate is far below any useful rate, and far above the rates that servers refuse.
const leastRate = 1e-9

// Sampled returns methods that record each value with the probability rate. With a rate outside 0 to 1
// they record all values.
func (c *Client) Sampled(rate float64) Sampled {
	if !(rate > 0 && rate < 1) {
		return Sampled{c, 1}
	}
	return Sampled{c, max(rate, leastRate)}
}

// keeps decides by chance whether to keep a value.
func (c *Client) keeps(k kind, rate float64) bool {
	if rate == 1 || rand.Float64() < rate {
		return true
	}
	c.counts.skip(k)
	return false
}

// Timing does the same as Client.Timing, for a sample of the values.
func (s Sampled) Timing(name string, d time.Duration, tags ...string) {
	s.record(timing, name, milliseconds(d), tags)
}

// Histogram does the same as Client.Histogram, for a sample of the values.
func (s Sampled) Histogram(name string, value float64, tags ...string) {
	s.record(histogram, name, value, tags)
}

// Distribution does the same as Client.Distribution, for a sample of the values.
func (s Sampled) Distribution(name string, value float64, tags ...string) {
	s.record(distribution, name, value, tags)
}

func (s Sampled) record(k kind, name string, value float64, tags []string) {
	if s.c == nil || !s.c.accepts(k, value) || !s.c.keeps(k, s.rate) {
		return
	}
	s.c.record(k, s.rate, name, value, tags)
}

// NewTiming looks up the name and tags for calls of Timing.
func (s Sampled) NewTiming(name string, tags ...string) *Timing {
	h := new(Timing)
	h.prepare(s.c, timing, s.rate, name, tags)
	return h
}

// NewHistogram looks up the name and tags for calls of Histogram.
func (s Sampled) NewHistogram(name string, tags ...string) *Values {
	h := new(Values)
	h.prepare(s.c, histogram, s.rate, name, tags)
	return h
}

// NewDistribution looks up the name and tags for calls of Distribution.
func (s Sampled) NewDistribution(name string, tags ...string) *Values {
	h := new(Values)
	h.prepare(s.c, distribution, s.rate, name, tags)
	return h
}
