package client

import (
	"slices"
	"sync/atomic"
	"time"
)

// handle is a series whose name and tags are looked up only once.
type handle struct {
	c    *Client
	kind kind
	rate float64
	name string
	tags []string
	s    atomic.Pointer[series] // nil if the series is unknown, or if calls go to an overflow series
}

func (h *handle) prepare(c *Client, k kind, rate float64, name string, tags []string) {
	h.c, h.kind, h.rate, h.name, h.tags = c, k, rate, name, slices.Clone(tags)
	if c != nil && !isClean(c.options.Prefix, name, tags) {
		h.name, h.tags = cleaned(c.options.Prefix, name, tags)
		c.counts.cleaned.Add(1)
	}
}

// find does the same as Client.find.
func (h *handle) find() *series {
	if s := h.s.Load(); s != nil {
		return s
	}
	s := h.c.find(h.kind, h.rate, h.name, h.tags)
	if s != nil && !s.overflow {
		h.s.Store(s)
	}
	return s
}

// record does the same as Client.record. A handle with a sampling rate first decides by chance whether
// to record.
func (h *handle) record(v float64) {
	if h.c == nil || !h.c.accepts(h.kind, v) || !h.c.keeps(h.kind, h.rate) {
		return
	}
	for {
		s := h.find()
		if s == nil || s.record(v, &h.c.limits) {
			return
		}
		h.s.Store(nil)
	}
}

// Counter is a count whose name and tags are looked up only once.
type Counter struct{ handle }

// NewCounter looks up the name and tags for calls of Count.
func (c *Client) NewCounter(name string, tags ...string) *Counter {
	h := new(Counter)
	h.prepare(c, count, 1, name, tags)
	return h
}

// Add does the same as Client.Count.
func (h *Counter) Add(n float64) {
	if h == nil || h.c == nil || !h.c.accepts(count, n) {
		return
	}
	for {
		s := h.find()
		if s == nil || s.add(n) {
			return
		}
		h.s.Store(nil)
	}
}

// Gauge is a gauge whose name and tags are looked up only once.
type Gauge struct{ handle }

// NewGauge looks up the name and tags for calls of Gauge.
func (c *Client) NewGauge(name string, tags ...string) *Gauge {
	h := new(Gauge)
	h.prepare(c, gauge, 1, name, tags)
	return h
}

// Set does the same as Client.Gauge.
func (h *Gauge) Set(value float64) {
	if h == nil || h.c == nil || !h.c.accepts(gauge, value) {
		return
	}
	for {
		s := h.find()
		if s == nil || s.set(value) {
			return
		}
		h.s.Store(nil)
	}
}

// Set is a set whose name and tags are looked up only once.
type Set struct{ handle }

// NewSet looks up the name and tags for calls of Set.
func (c *Client) NewSet(name string, tags ...string) *Set {
	h := new(Set)
	h.prepare(c, set, 1, name, tags)
	return h
}

// Add does the same as Client.Set.
func (h *Set) Add(member string) {
	if h == nil || h.c == nil {
		return
	}
	for {
		s := h.find()
		if s == nil || h.c.insert(s, member) {
			return
		}
		h.s.Store(nil)
	}
}

// Timing is a timing whose name and tags are looked up only once.
type Timing struct{ handle }

// NewTiming looks up the name and tags for calls of Timing.
func (c *Client) NewTiming(name string, tags ...string) *Timing {
	return c.Sampled(1).NewTiming(name, tags...)
}

// Record does the same as Client.Timing.
func (h *Timing) Record(d time.Duration) {
	if h != nil {
		h.record(milliseconds(d))
	}
}

// Values is a histogram or a distribution whose name and tags are looked up only once.
type Values struct{ handle }

// NewHistogram looks up the name and tags for calls of Histogram.
func (c *Client) NewHistogram(name string, tags ...string) *Values {
	return c.Sampled(1).NewHistogram(name, tags...)
}

// NewDistribution looks up the name and tags for calls of Distribution.
func (c *Client) NewDistribution(name string, tags ...string) *Values {
	return c.Sampled(1).NewDistribution(name, tags...)
}

// Record does the same as Client.Histogram or Client.Distribution.
func (h *Values) Record(value float64) {
	if h != nil {
		h.record(value)
	}
}
