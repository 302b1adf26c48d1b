//go:build go1.25

package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsWritten(t *testing.T) {
	for _, tt := range []struct {
		name  string
		o     Options
		calls func(c *Client)
		want  string // lines, in alphabetical order
	}{
		{"a count is one sum", Options{}, func(c *Client) {
			c.Count("a", 1, "k:v", "bare")
			c.Count("a", 2.5, "k:v", "bare")
		}, "a:3.5|c|#k:v,bare"},
		{"0 makes a counter known", Options{}, func(c *Client) { c.Count("a", 0) }, "a:0|c"},
		{"a gauge is its last value", Options{}, func(c *Client) {
			c.Gauge("a", 5)
			c.Gauge("a", -0.25)
		}, "a:-0.25|g"},
		{"values are packed", Options{}, func(c *Client) {
			c.Histogram("a", 1, "k:v")
			c.Histogram("a", 0.5, "k:v")
			c.Histogram("a", 1, "k:v")
		}, "a:1:0.5:1|h|#k:v"},
		{"a timing is in milliseconds", Options{}, func(c *Client) {
			c.Timing("a", 1234567*time.Nanosecond)
			c.Timing("a", 2*time.Second)
		}, "a:1.234567:2000|ms"},
		{"a distribution", Options{}, func(c *Client) { c.Distribution("a", 7) }, "a:7|d"},
		{"members of a set are sent once", Options{}, func(c *Client) {
			c.Set("a", "x:1", "k:v")
			c.Set("a", "y", "k:v")
			c.Set("a", "x:1", "k:v")
		}, "a:x:1|s|#k:v a:y|s|#k:v"},
		{"kinds of one name are separate series", Options{}, func(c *Client) {
			c.Count("a", 1)
			c.Gauge("a", 2)
			c.Timing("a", time.Millisecond)
			c.Histogram("a", 3)
			c.Distribution("a", 4)
			c.Set("a", "5")
		}, "a:1|c a:1|ms a:2|g a:3|h a:4|d a:5|s"},
		{"parts of all lines", Options{Prefix: "shop.", Tags: []string{"env:prod", "dc:a"}, Container: "abc"},
			func(c *Client) {
				c.Count("a", 1, "k:v")
				c.Count("b", 1)
				_ = c.ServiceCheck(ServiceCheck{Name: "up", Status: Warning, Message: "m"})
				_ = c.Event(Event{Title: "t"})
			}, "_e{1,0}:t||#env:prod,dc:a|c:ci-abc _sc|shop.up|1|#env:prod,dc:a|c:ci-abc|m:m " +
				"shop.a:1|c|#k:v,env:prod,dc:a|c:ci-abc shop.b:1|c|#env:prod,dc:a|c:ci-abc"},
		{"a container alone", Options{Container: "abc"}, func(c *Client) {
			c.Count("a", 1, "k:v")
			c.Count("b", 1)
		}, "a:1|c|#k:v|c:ci-abc b:1|c|c:ci-abc"},
		{"numbers", Options{}, func(c *Client) {
			for _, v := range []float64{1e15, 123456789012345, 0.0001, 0.00001, 1.0 / 3, math.MaxFloat64, math.Copysign(0, -1),
				-5e-324} {
				c.Distribution("a", v)
			}
		}, "a:1e+15:123456789012345:0.0001:1e-05:0.3333333333333333:1.7976931348623157e+308:0:-5e-324|d"},
		{"another order of tags is another line", Options{}, func(c *Client) {
			c.Count("a", 1, "x", "y")
			c.Count("a", 1, "y", "x")
		}, "a:1|c|#x,y a:1|c|#y,x"},
		{"names and tags that look alike when joined", Options{}, func(c *Client) {
			c.Count("a,b", 1, "c")
			c.Count("a", 1, "b", "c")
			c.Count("a#b", 1)
			c.Count("a", 1, "#b")
		}, "a#b:1|c a,b:1|c|#c a:1|c|##b a:1|c|#b,c"},
		{"separators are written as _", Options{}, func(c *Client) {
			c.Count("a:b|c\nd\re", 1, "x:1,y:2", "u:p|q\n", "")
			c.Count("a_b_c_d_e", 1, "x:1_y:2", "u:p_q_") // the same series
			c.Count("b", 1, "a carriage return is part of the line break\r")
			c.Set("s", "p|q\nr:t")
		}, "a_b_c_d_e:2|c|#x:1_y:2,u:p_q_ b:1|c|#a carriage return is part of the line break_ s:p_q_r:t|s"},
		{"a name is no event", Options{}, func(c *Client) { c.Count("_e{1,1}:a|b", 1) }, "_e_1,1}_a_b:1|c"},
		{"a name with a prefix is no event", Options{Prefix: "_"}, func(c *Client) { c.Count("e{1", 1) }, "_e_1:1|c"},
		{"a name is no check", Options{}, func(c *Client) { c.Count("_sc|a|0", 1) }, "_sc_a_0:1|c"},
		{"a refused call leaves the rest alone", Options{}, func(c *Client) {
			c.Count("", 1)
			c.Count("a", -1)
			c.Count("a", math.NaN())
			c.Count("a", math.Inf(1))
			c.Gauge("a", math.NaN())
			c.Histogram("a", math.Inf(-1))
			c.Set("a", "")
			c.Count("a", 1)
			c.Count("b", math.MaxFloat64)
			c.Count("b", math.MaxFloat64) // no float64 holds the sum
		}, "a:1|c"},
		{"handles", Options{}, func(c *Client) {
			h := c.NewCounter("a|b", "k:v")
			h.Add(1)
			h.Add(2)
			c.Count("a_b", 3, "k:v")
			c.NewGauge("g").Set(4)
			c.NewSet("s").Add("m")
			c.NewTiming("t").Record(5 * time.Millisecond)
			c.NewHistogram("h").Record(6)
			c.NewDistribution("d").Record(7)
		}, "a_b:6|c|#k:v d:7|d g:4|g h:6|h s:m|s t:5|ms"},
		{"events", Options{}, func(c *Client) {
			_ = c.Event(Event{Title: "a|b\nc", Text: "ü\r\nd\re", Time: time.Unix(5, 0), Host: "h|1", AggregationKey: "k",
				Priority: "low", SourceType: "s", AlertType: "error", Tags: []string{"x:1,2", ""}})
			_ = c.Event(Event{Title: "t"})
		}, `_e{1,0}:t| _e{6,8}:a|b\nc|ü\nd\ne|d:5|h:h_1|k:k|p:low|s:s|t:error|#x:1_2`},
		{"checks", Options{}, func(c *Client) {
			_ = c.ServiceCheck(ServiceCheck{
				Name: "a:b", Status: Unknown, Time: time.Unix(5, 0), Host: "h", Message: "m: x|y\nz", Tags: []string{"k:v"},
			})
		}, `_sc|a_b|3|d:5|h:h|#k:v|m:m\: x_y\nz`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{network: unixgram}
				c := startOn(t, w, tt.o)
				tt.calls(c)
				flush(t, c)
				packets := w.take()
				if got := strings.Join(linesOf(packets), " "); got != tt.want {
					t.Errorf("\n got %s\nwant %s", got, tt.want)
				}
				parse(t, packets)
				if s := c.Stats(); s.Held != 0 || s.Calls != s.Sent+s.Refused {
					t.Errorf("unexpected counts: %+v", s)
				}
			})
		})
	}
}

func TestRefusalsOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: udp}
		c := startOn(t, w, Options{})
		long := strings.Repeat("x", defaultUDPPacket)
		for _, tt := range []struct {
			want string
			err  error
		}{
			{`event "": has no title`, c.Event(Event{Text: "x"})},
			{`event "t": field Priority = "high": must be one of normal, low`, c.Event(Event{Title: "t", Priority: "high"})},
			{`event "t": field AlertType = "warn": must be one of info, success, warning, error`,
				c.Event(Event{Title: "t", AlertType: "warn"})},
			{`event "t": field Time = 1969`, c.Event(Event{Title: "t", Time: time.Unix(-5, 0).UTC()})},
			{`event "t": is 1445 bytes long, but a packet holds at most 1432`, c.Event(Event{Title: "t", Text: long})},
			{`service check "": has no name`, c.ServiceCheck(ServiceCheck{})},
			{`service check "n": field Status = 4: must be`, c.ServiceCheck(ServiceCheck{Name: "n", Status: 4})},
			{`service check "n": is 1442 bytes long`, c.ServiceCheck(ServiceCheck{Name: "n", Message: long})},
		} {
			if tt.err == nil || !strings.HasPrefix(tt.err.Error(), tt.want) {
				t.Errorf("got %v, want %s...", tt.err, tt.want)
			}
		}
		for i := range maxEvents + 1 {
			if err := c.Event(Event{Title: "t"}); (err != nil) != (i == maxEvents) {
				t.Errorf("event %d: %v", i, err)
			}
		}
		flush(t, c)
		if s := checkStats(t, c, 8+maxEvents+1); s.Refused != 8 || s.Full != 1 || s.Sent != maxEvents {
			t.Errorf("unexpected counts: %+v", s)
		}
	})
}

// Packets are as full as possible and never too long. If a line is split over two packets, each value
// is counted once.
func TestPacketsAreFilled(t *testing.T) {
	for _, network := range []string{udp, unixgram, unix} {
		for _, size := range []int{minPacket, 0} {
			t.Run(fmt.Sprintf("%s %d", network, size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := &wire{network: network}
					c := startOn(t, w, Options{PacketBytes: size, Prefix: "p.", Tags: []string{"all:x"}})
					limit := c.options.PacketBytes
					want := map[string]float64{}
					for i := range 150 {
						tag := fmt.Sprintf("n:%d%s", i, strings.Repeat("x", i%50))
						c.Count("count", float64(i), tag)
						want["c p.count "+tag+",all:x"] = float64(i)
						for j := range i {
							c.Histogram("h", float64(j)+1.0/float64(i), tag)
						}
						want["h p.h "+tag+",all:x"] = float64(i*(i-1)/2) + 1
					}
					for i := range 1000 {
						c.Set("s", fmt.Sprint("member", i))
					}
					flush(t, c)
					packets := w.take()
					got := parse(t, packets)
					for key, sum := range want {
						if got[key] != nil && !almost(got[key].sum, sum) || got[key] == nil && sum != 1 {
							t.Errorf("%s: got %+v, want %v", key, got[key], sum)
						}
					}
					if n := len(got["s p.s all:x"].members); n != 1000 {
						t.Errorf("the set has %d members, want 1000", n)
					}
					bytes, short := 0, 0
					for _, p := range packets {
						if len(p) > limit {
							t.Errorf("a packet has %d bytes, which exceeds the limit", len(p))
						}
						if bytes += len(p); len(p) < limit-200 { // a line has less than 100 bytes besides its values
							short++
						}
					}
					if least := bytes / limit; len(packets) > least+least/8+2 || short > 1 {
						t.Errorf("%d bytes came in %d packets, want at most %d; %d packets have room for more, want at most 1",
							bytes, len(packets), least+least/8+2, short)
					}
				})
			})
		}
	}
}

func TestFlushFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unixgram}
		c := startOn(t, w, Options{FlushInterval: 3 * time.Second})
		c.Count("a", 1)
		_ = c.Event(Event{Title: "t"})
		time.Sleep(3*time.Second - time.Nanosecond)
		if got := w.take(); got != nil {
			t.Fatalf("got %q before the flush was due, want nothing", got)
		}
		checkStats(t, c, 2)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := linesOf(w.take()); !slices.Equal(got, []string{"_e{1,0}:t|", "a:1|c"}) {
			t.Fatalf("got %q when the flush was due, want the event and the count", got)
		}
		time.Sleep(time.Hour)
		if got := w.take(); got != nil {
			t.Fatalf("got %q although nothing was recorded, want nothing", got)
		}
		c.Count("a", 2)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if got := w.take(); !slices.Equal(got, []string{"a:2|c"}) {
			t.Fatalf("at the end, got %q, want a:2|c", got)
		}
	})
}

func TestAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unixgram}
		c := startOn(t, w, Options{})
		counter, gauge, timing, set := c.NewCounter("c"), c.NewGauge("g"), c.NewTiming("t"), c.NewSet("s")
		use := func() {
			counter.Add(1)
			gauge.Set(1)
			timing.Record(1)
			set.Add("m")
			c.Count("c", 1)
			c.Gauge("g", 1)
			c.Timing("t", 1)
			c.Set("s", "m")
		}
		use()
		for range 2 {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(linesOf(w.take())); n != 4 {
			t.Errorf("got %d lines, want 4", n)
		}
		use()
		if err := c.Event(Event{Title: "t"}); !errors.Is(err, errClosed) {
			t.Errorf("Event after Close returned %v, want %v", err, errClosed)
		}
		if err := c.Flush(t.Context()); !errors.Is(err, errClosed) {
			t.Errorf("Flush after Close returned %v, want %v", err, errClosed)
		}
		if s := checkStats(t, c, 17); s.Sent != 8 || s.Unsent != 9 {
			t.Errorf("unexpected counts: %+v", s)
		}
	})
}

func TestDiscard(t *testing.T) {
	c := Discard
	c.Count("a", 1)
	c.Gauge("a", 1)
	c.Timing("a", 1)
	c.Histogram("a", 1)
	c.Distribution("a", 1)
	c.Set("a", "b")
	c.Sampled(0.5).Timing("a", 1)
	c.Sampled(0.5).Histogram("a", 1)
	c.Sampled(0.5).Distribution("a", 1)
	c.NewCounter("a|").Add(1)
	c.NewGauge("a").Set(1)
	c.NewTiming("a").Record(1)
	c.NewHistogram("a").Record(1)
	c.NewDistribution("a").Record(1)
	c.NewSet("a").Add("b")
	(*Counter)(nil).Add(1)
	(*Gauge)(nil).Set(1)
	(*Timing)(nil).Record(1)
	(*Values)(nil).Record(1)
	(*Set)(nil).Add("b")
	if err := errors.Join(c.Event(Event{}), c.ServiceCheck(ServiceCheck{}), c.Flush(t.Context()), c.Close()); err != nil {
		t.Error(err)
	}
	if s := c.Stats(); s != (Stats{}) {
		t.Errorf("unexpected counts: %+v", s)
	}
}

// If a server is down for a while, or does not read, values are delayed but not lost. The values that
// were recorded meanwhile are sent together, and none is sent twice.
func TestNothingIsLostWhileTheServerIsAway(t *testing.T) {
	away := map[string]func(*wire){
		"down":    func(w *wire) { w.down = true },
		"blocked": func(w *wire) { w.blocked = true },
		"stuck in a frame": func(w *wire) {
			w.accepts = func(int) int { return 3 }
		},
	}
	back := func(w *wire) { w.down, w.blocked, w.accepts = false, false, nil }
	for _, network := range []string{udp, unixgram, unix} {
		for name, leave := range away {
			t.Run(network+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := &wire{network: network}
					c := startOn(t, w, Options{})
					got, calls := received{}, 0
					for range 20 {
						w.set(leave)
						for i := range 70 {
							calls += 4
							c.Count("a", 1, "k:v")
							c.Gauge("g", float64(calls))
							c.Timing("t", time.Duration(i)*time.Millisecond)
							c.Set("s", fmt.Sprint(calls))
							time.Sleep(time.Second / 10)
						}
						w.set(back)
						time.Sleep(lastWait + time.Second)
						synctest.Wait()
						got.read(t, w.take())
						if s := checkStats(t, c, calls); s.Sent != uint64(calls) {
							t.Fatalf("unexpected counts: %+v", s)
						}
						n := float64(calls / 4)
						if a, g, v, m := got.sum("c a k:v"), got["g g "].gauge, got["ms t "], len(got["s s "].members); a != n ||
							g != float64(calls) || v.count != n || v.sum != n/70*70*69/2 || m != int(n) {
							t.Fatalf("after %v calls of each kind, got the count %v, gauge %v, %v timings with the sum %v, %d members",
								n, a, g, v.count, v.sum, m)
						}
					}
				})
			})
		}
	}
}

// A write to another host succeeds even if no server listens there. The host reports the failure later
// (ICMP). Only the writes before this report are lost, even if no server listens for a long time.
func TestLittleIsLostToAnotherHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: udp, remote: true}
		c := startOn(t, w, Options{})
		time.Sleep(time.Second / 2) // between two flushes, never during one
		for i := range 900 {
			if i == 100 || i == 500 {
				w.set(func(w *wire) { w.down = !w.down })
			}
			c.Count("a", 1, strings.Repeat("x", 1000))
			c.Count("b", 1, strings.Repeat("x", 1000)) // long, so it goes into another packet
			time.Sleep(time.Second)
		}
		flush(t, c)
		asked := 0
		w.set(func(w *wire) {
			for _, p := range w.packets {
				if p == string(probe) {
					asked++
				}
			}
		})
		got := parse(t, w.take())
		// The two packets of the first flush without a server hold one call each.
		n := got.sum("c a "+strings.Repeat("x", 1000)) + got.sum("c b "+strings.Repeat("x", 1000))
		if w.lost != 2 || n != 1798 {
			t.Errorf("%d datagrams are lost, want 2; %v of 1800 calls arrived, want 1798", w.lost, n)
		}
		if asked != 1 {
			t.Errorf("%d probes were sent, want one", asked)
		}
	})
}

// The client keeps its connection to a server that reads slowly.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unix, accepts: func(int) int { return 10 }}
		c := startOn(t, w, Options{})
		for i := range 1000 {
			c.Histogram("h", float64(i))
		}
		time.Sleep(5 * time.Minute)
		if got := parse(t, w.take())["h h "]; got == nil || got.count != 1000 || w.dialed() != 1 {
			t.Errorf("got %+v after %d connections, want 1000 values after one", got, w.dialed())
		}
	})
}

// The client pauses between bursts of UDP packets, so that a receiver can keep up.
func TestDatagramsComeInBursts(t *testing.T) {
	for network, least := range map[string]time.Duration{udp: 200 / burstPackets * burstPause, unixgram: 0} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{network: network}
			c := startOn(t, w, Options{PacketBytes: 1000})
			for i := range 200 {
				c.Count("a", 1, fmt.Sprint(i), strings.Repeat("x", 800))
			}
			before := time.Now()
			flush(t, c)
			if took, n := time.Since(before), len(w.take()); took != least || n != 200 {
				t.Errorf("%s: %d packets took %v, want 200 in %v", network, n, took, least)
			}
		})
	}
}

func TestCloseWaitsASecond(t *testing.T) {
	for name, leave := range map[string]func(*wire){
		"down":    func(w *wire) { w.down = true },
		"blocked": func(w *wire) { w.blocked = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{network: unixgram}
				c := startOn(t, w, Options{})
				w.set(leave)
				time.Sleep(time.Minute)
				for i := range 1000 {
					c.Count("a", 1, fmt.Sprint(i))
					c.Timing("t", 1)
				}
				_ = c.Event(Event{Title: "t"})
				before := time.Now()
				err := c.Close()
				if took := time.Since(before); took < closeWait || took > closeWait+writeWait {
					t.Errorf("Close took %v", took)
				}
				if err == nil || !strings.HasPrefix(err.Error(), "close: 2001 values are unsent: ") {
					t.Errorf("got the error %v", err)
				}
				if s := checkStats(t, c, 2001); s.Unsent != 2001 || s.Held != 0 || s.DroppedPackets == 0 {
					t.Errorf("unexpected counts: %+v", s)
				}
			})
		})
	}
}

// If the server comes back while Close waits, the server gets all values.
func TestCloseInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unix, down: true}
		c := startOn(t, w, Options{})
		c.Count("a", 1)
		time.Sleep(time.Minute) // after this time, the pauses between tries are long
		go func() {
			time.Sleep(closeWait / 2)
			w.set(func(w *wire) { w.down = false })
		}()
		before := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(before); took > closeWait/2+2*closingWait {
			t.Errorf("Close took %v", took)
		}
		if got := w.take(); !slices.Equal(got, []string{"a:1|c"}) {
			t.Errorf("got the packets %q, want a:1|c", got)
		}
	})
}

func TestFlushUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unixgram, down: true}
		c := startOn(t, w, Options{})
		c.Count("a", 1)
		for range 2 { // the second Flush waits for the first, which waits for the server
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := c.Flush(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("got the error %v", err)
			}
		}
		done := make(chan error)
		go func() { done <- c.Flush(context.Background()) }()
		synctest.Wait()
		err := c.Close()
		if flushErr := <-done; err == nil || flushErr == nil {
			t.Errorf("Close: %v, Flush: %v, want errors", err, flushErr)
		}
	})
}

// A packet that is too long for the socket is dropped at once, and the other packets are sent.
func TestTooLongForTheSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		w := &wire{network: udp, refuses: func(p string) bool { return len(p) > 1200 }}
		c := startOn(t, w, Options{OnError: func(err error) { told = append(told, err) }})
		for i := range 1000 {
			c.Histogram("h", float64(i))
		}
		flush(t, c)
		s := checkStats(t, c, 1000)
		if s.Unsent == 0 || s.Sent == 0 || s.DroppedPackets != 2 || len(w.take()) != 1 {
			t.Errorf("unexpected counts: %+v", s)
		}
		if len(told) != 1 || !errors.Is(told[0], syscall.EMSGSIZE) {
			t.Errorf("the client reported %v, want one error, EMSGSIZE", told)
		}
	})
}

func TestErrorsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		w := &wire{network: unixgram, down: true}
		c := startOn(t, w, Options{OnError: func(err error) { told = append(told, err) }})
		for range 3 {
			w.set(func(w *wire) { w.down = true })
			c.Count("a", 1)
			time.Sleep(time.Minute)
			w.set(func(w *wire) { w.down = false })
			time.Sleep(time.Minute)
		}
		if len(told) != 3 {
			t.Errorf("the client reported %v, want 3 errors", told)
		}
		if dials := w.dialed(); dials < 3*(60/2) || dials > 3*(60/2+10) {
			t.Errorf("the client connected %d times in 3 minutes, want 90 to 120", dials)
		}
	})
}

// The client replaces a socket that accepts nothing: the old server may hang, while the socket's file
// already belongs to a new server.
func TestAnotherSocketAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unixgram}
		c := startOn(t, w, Options{})
		c.Count("a", 1)
		flush(t, c)
		w.set(func(w *wire) { w.blocked = true })
		c.Count("a", 1)
		time.Sleep(stuckAfter - time.Second)
		if w.dialed() != 1 {
			t.Errorf("the client connected %d times, want once", w.dialed())
		}
		time.Sleep(3 * time.Second)
		if w.dialed() != 2 {
			t.Errorf("the client connected %d times after %v, want twice", w.dialed(), stuckAfter)
		}
	})
}

// UDP does not show that a host has a new address, so the client looks its name up again.
func TestNamesAreLookedUpAgain(t *testing.T) {
	for at, want := range map[string]int{"metrics.example:8125": 5, "192.0.2.1:8125": 1} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{network: udp}
			o := Options{NoTelemetry: true}
			if err := o.complete(udp); err != nil {
				t.Fatal(err)
			}
			c := start(o, &socket{to: address{udp, at}, dial: w.dial})
			for range 250 {
				c.Count("a", 1)
				time.Sleep(time.Second)
			}
			if w.dialed() != want {
				t.Errorf("%s: the client connected %d times in 250 s, want %d", at, w.dialed(), want)
			}
			flush(t, c) // otherwise the last count might arrive after the change
			w.take()
			w.set(func(w *wire) { w.nameless = true }) // the host has not moved, but its name is not found
			for range 100 {
				c.Count("a", 1)
				time.Sleep(time.Second)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if n := parse(t, w.take()).sum("c a "); n != 100 {
				t.Errorf("%s: %v of 100 calls arrived while the name was not found, want all", at, n)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"127.0.0.1:8125", "udp://127.0.0.1:8125"},
		{"localhost", "udp://localhost:8125"},
		{"udp://agent:9125", "udp://agent:9125"},
		{"udp://agent", "udp://agent:8125"},
		{"::1", "udp://[::1]:8125"},
		{"[::1]:9", "udp://[::1]:9"},
		{"unix:///run/dsd.sock", "unix:///run/dsd.sock"},
		{"/run/dsd.sock", "unix:///run/dsd.sock"},
		{"unixgram:///run/dsd.sock", "unixgram:///run/dsd.sock"},
		{"unixstream:///run/dsd.sock", "unixstream:///run/dsd.sock"},
		{"unix://relative", "unix://relative"},
		{"unix://", `address "unix://": has no path`},
		{"tcp://a:1", `address "tcp://a:1": must begin with udp://`},
		{"a:b:c", `address "a:b:c": address a:b:c: too many colons`},
		{"run/dsd.sock", `address "run/dsd.sock": must be host:port, or a path`},
	} {
		a, err := parseAddress(tt.in)
		got := a.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%q: got %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestAddressFromTheEnvironment(t *testing.T) {
	for _, tt := range []struct{ url, host, port, want string }{
		{"", "", "", "udp://127.0.0.1:8125"},
		{"", "agent", "", "udp://agent:8125"},
		{"", "agent", "9", "udp://agent:9"},
		{"", "::1", "9", "udp://[::1]:9"},
		{"", "unix:///s", "9", "unix:///s"},
		{"unixgram:///s", "agent", "9", "unixgram:///s"},
		{"udp://other:1", "agent", "9", "udp://other:1"},
	} {
		t.Setenv("DD_DOGSTATSD_URL", tt.url)
		t.Setenv("DD_AGENT_HOST", tt.host)
		t.Setenv("DD_DOGSTATSD_PORT", tt.port)
		if got, err := parseAddress(""); err != nil || got.String() != tt.want {
			t.Errorf("%+v: %v, %v", tt, got, err)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{FlushInterval: time.Millisecond}, "option FlushInterval = 1ms: must be at least 10ms"},
		{Options{PacketBytes: 100}, "option PacketBytes = 100: must be from 512 to 65507"},
		{Options{MaxSeries: -1}, "options MaxSeries = -1, MaxValues = 4096, MaxBytes = 8388608: none may be negative"},
		{Options{Prefix: "a:"}, `option Prefix = "a:": must hold no`},
		{Options{Prefix: "_e{"}, `option Prefix = "_e{": must hold no`},
		{Options{Tags: []string{"a", ""}}, `option Tags: "": must not be empty`},
		{Options{Tags: []string{"a,b"}}, `option Tags: "a,b": must not be empty`},
		{Options{Container: "a|b"}, `option Container = "a|b": must hold no`},
		{Options{Tags: []string{strings.Repeat("x", 800)}},
			"options Prefix, Tags and Container have 801 bytes: together they may have at most half of PacketBytes " +
				"(1432)"},
	} {
		c, err := NewWithOptions("127.0.0.1:8125", tt.o)
		if want := "client to udp://127.0.0.1:8125: " + tt.want; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", tt.o, err, want)
		}
		c.Count("a", 1) // c is nil, and can still be called
	}
	if _, err := New("tcp://a"); err == nil {
		t.Error("New accepts the scheme tcp")
	}
}

func TestMain(m *testing.M) {
	for _, name := range []string{"DD_DOGSTATSD_URL", "DD_AGENT_HOST", "DD_DOGSTATSD_PORT"} {
		os.Unsetenv(name)
	}
	os.Exit(m.Run())
}
