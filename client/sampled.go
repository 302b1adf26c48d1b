package client

import (
	"math/rand/v2"
	"time"
)

// Sampled records only a random part of the values, for calls so frequent that even the call costs
// too much. The server gets the rate, and scales the count up. Counts, gauges and sets need no
// sampling: any number of calls sends one value.
type Sampled struct {
	c    *Client
	rate float64
}

// leastRate is far below any useful rate, and far above the rates that servers refuse.
const leastRate = 1e-9

// Sampled returns methods that record each value with probability rate. A rate outside 0 to 1
// records all values.
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

// Timing is Client.Timing.
func (s Sampled) Timing(name string, d time.Duration, tags ...string) {
	s.record(timing, name, milliseconds(d), tags)
}

// Histogram is Client.Histogram.
func (s Sampled) Histogram(name string, value float64, tags ...string) {
	s.record(histogram, name, value, tags)
}

// Distribution is Client.Distribution.
func (s Sampled) Distribution(name string, value float64, tags ...string) {
	s.record(distribution, name, value, tags)
}

func (s Sampled) record(k kind, name string, value float64, tags []string) {
	if s.c == nil || !s.c.accepts(k, value) || !s.c.keeps(k, s.rate) {
		return
	}
	s.c.record(k, s.rate, name, value, tags)
}

// NewTiming prepares calls of Timing.
func (s Sampled) NewTiming(name string, tags ...string) *Timing {
	h := new(Timing)
	h.prepare(s.c, timing, s.rate, name, tags)
	return h
}

// NewHistogram prepares calls of Histogram.
func (s Sampled) NewHistogram(name string, tags ...string) *Values {
	h := new(Values)
	h.prepare(s.c, histogram, s.rate, name, tags)
	return h
}

// NewDistribution prepares calls of Distribution.
func (s Sampled) NewDistribution(name string, tags ...string) *Values {
	h := new(Values)
	h.prepare(s.c, distribution, s.rate, name, tags)
	return h
}
