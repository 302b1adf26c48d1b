//go:build !race && go1.25

package client

import (
	"context"
	"net"
	"testing"
	"time"
)

// A call of a known series allocates nothing, before and after a flush, by name or by handle. The test
// does not run with the race detector, which makes Go itself allocate.
func TestNoAllocations(t *testing.T) {
	w := &wire{network: unixgram}
	c := startOn(t, w, Options{FlushInterval: time.Hour, MaxValues: 100})
	for name, call := range knownCalls(c) {
		for range 3 {
			for range 1000 { // as many values as a series ever holds
				call()
			}
			if n := testing.AllocsPerRun(10, func() {
				for range 100 {
					call()
				}
			}); n > 0 {
				t.Errorf("%s: %v allocations in 100 calls, want none", name, n)
			}
			flush(t, c)
		}
	}
	if s := c.Stats(); s.Sent == 0 || s.Folded > 0 || s.Full > 0 || s.Respelled > 0 {
		t.Errorf("some calls did not go to a known series: %+v", s)
	}
}

// A flush of known series allocates nothing if an earlier flush had as many values.
func TestFlushDoesNotAllocate(t *testing.T) {
	w := &wire{network: unixgram}
	c := startOn(t, w, Options{FlushInterval: time.Hour})
	f := newFlusher(c, &socket{to: address{network: unixgram}, dial: nowhere}) // the client's own flusher is idle
	calls := knownCalls(c)
	round := func() {
		for _, call := range calls {
			for range 40 {
				call()
			}
		}
		f.flush()
	}
	for range 5 {
		round()
	}
	if n := testing.AllocsPerRun(20, round); n > 0 {
		t.Errorf("%v allocations in a flush, want none", n)
	}
	if s := c.Stats(); s.Packets < 20 || s.Held > 0 {
		t.Errorf("unexpected counts: %+v", s)
	}
}

func knownCalls(c *Client) map[string]func() {
	tags := []string{"env:prod", "route:/checkout", "code:200"}
	counter, gauge, timing, set := c.NewCounter("hc", tags...), c.NewGauge("hg", tags...), c.NewTiming("ht", tags...),
		c.NewSet("hs", tags...)
	histogram, distribution, sampled := c.NewHistogram("hh", tags...), c.NewDistribution("hd", tags...),
		c.Sampled(0.5).NewTiming("hst", tags...)
	route := "/checkout"
	return map[string]func(){
		"Count":        func() { c.Count("count", 1, tags...) },
		"literal tags": func() { c.Count("literal", 1, "env:prod", "code:200") },
		"tags that the caller joins, of 32 bytes at most": func() {
			c.Count("together", 1, "route:"+route)
		},
		"Gauge":                             func() { c.Gauge("gauge", 1, tags...) },
		"Timing":                            func() { c.Timing("timing", 1, tags...) },
		"Histogram":                         func() { c.Histogram("histogram", 1, tags...) },
		"Distribution":                      func() { c.Distribution("distribution", 1, tags...) },
		"Set":                               func() { c.Set("set", "member", tags...) },
		"Sampled":                           func() { c.Sampled(0.5).Timing("sampled", 1, tags...) },
		"Counter.Add":                       func() { counter.Add(1) },
		"Gauge.Set":                         func() { gauge.Set(1) },
		"Timing.Record":                     func() { timing.Record(1) },
		"Timing.Record, sampled":            func() { sampled.Record(1) },
		"Values.Record":                     func() { histogram.Record(1) },
		"Values.Record, for a distribution": func() { distribution.Record(1) },
		"Set.Add":                           func() { set.Add("member") },
		"refused":                           func() { c.Count("refused", -1, tags...) },
	}
}

// nowhere connects to a server that accepts all packets and discards them.
func nowhere(context.Context) (net.Conn, error) { return nowhereConn{}, nil }

type nowhereConn struct{ net.Conn }

func (nowhereConn) RemoteAddr() net.Addr             { return &net.UnixAddr{Net: unixgram} }
func (nowhereConn) SetWriteDeadline(time.Time) error { return nil }
func (nowhereConn) Write(b []byte) (int, error)      { return len(b), nil }
func (nowhereConn) Close() error                     { return nil }
