//go:build go1.25

package client

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Many goroutines use the same few series, while other series are added and removed, and flushes run.
// Every call arrives once.
func TestConcurrentCallsArriveOnce(t *testing.T) {
	const goroutines, rounds = 8, 5000
	w := &wire{network: unixgram}
	c := startOn(t, w, Options{FlushInterval: time.Hour, MaxSeries: 60, MaxValues: 1 << 20, MaxBytes: 1 << 30})
	counter, timing := c.NewCounter("c", "hot"), c.NewTiming("t", "hot")
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(g)))
			for i := range rounds {
				counter.Add(1)
				timing.Record(time.Millisecond)
				c.Count("c", 2, "hot")
				c.Timing("t", time.Millisecond, "hot")
				c.Gauge("g", float64(i), "hot")
				c.Set("s", fmt.Sprint(i%100), "hot")
				// 20 series are in use at a time. After a while 20 new series replace them, and the old series
				// are evicted.
				tag := fmt.Sprint(i/250*20 + rnd.IntN(20))
				c.Count("moving", 1, tag)
				c.Timing("moving", time.Millisecond, tag)
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	flushes := 0
	for calling := true; calling; flushes++ {
		flush(t, c)
		select {
		case <-ended:
			calling = false
		default:
		}
	}
	t.Logf("%d flushes meanwhile", flushes)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	got := parse(t, w.take())
	const n = goroutines * rounds
	sums := map[string]float64{} // by kind and name, because an overflow series may hold some of a name's calls
	for key, l := range got {
		kind, name, _ := strings.Cut(key, " ")
		name, _, _ = strings.Cut(name, " ")
		if kind == "ms" {
			sums[name] += l.count
		} else {
			sums[kind+name] += l.sum
		}
	}
	if sums["cc"] != 3*n || sums["t"] != 2*n || sums["cmoving"] != n || sums["moving"] != n {
		t.Errorf("the sums are %v; want %d, %d, %d, %d", sums, 3*n, 2*n, n, n)
	}
	// If flushes are fast or callers are slow, the gauge may be idle during a flush and lose its
	// place. Then its calls may be refused. No other call is refused.
	s := checkStats(t, c, 8*n)
	if s.Sent+s.Full != s.Calls || s.Full > n {
		t.Errorf("unexpected counts: %+v", s)
	}
	if g := got["g g hot"].gauge; g != rounds-1 && s.Full == 0 { // each goroutine ends with the same value
		t.Errorf("the gauge is %v, want %v", g, rounds-1)
	}
}

// A goroutine that the scheduler stops in the middle of a call delays no other goroutine.
func TestNobodyWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unixgram}
		c := startOn(t, w, Options{FlushInterval: time.Hour})
		c.Count("a", 1)
		c.Timing("a", 1)
		c.Set("a", "x")
		stopped := 0
		c.table.Load().each(func(s *series) { s.first.mu.Lock(); stopped++ })
		for range 100 {
			c.Count("a", 1)
			c.Timing("a", 1)
			c.Set("a", "x")
			c.Set("a", "y")
		}
		// A stopped goroutine in every cell but one delays no other goroutine, either.
		c.table.Load().each(func(s *series) {
			more := s.more.Load()
			for i := range more[1:] {
				more[1+i].mu.Lock()
				defer more[1+i].mu.Unlock()
			}
			before := more[0].calls
			for range 100 {
				c.Count("a", 0)
				c.Timing("a", 0)
				c.Set("a", "x")
			}
			if n := more[0].calls - before; n != 100 {
				t.Errorf("%d calls came to the only free cell, want 100", n)
			}
		})
		var cells []*stripes
		c.table.Load().each(func(s *series) {
			s.first.mu.Unlock()
			cells = append(cells, s.more.Load())
		})
		flush(t, c)
		got := parse(t, w.take())
		if n := got.sum("c a "); n != 101 || got["ms a "].count != 401 || stopped != 3 {
			t.Errorf("%v counted, %+v", n, got["ms a "])
		}
		// The stripes are removed when calls no longer collide.
		stripes := func() (n int) {
			c.table.Load().each(func(s *series) {
				if s.more.Load() != nil {
					n++
				}
			})
			return n
		}
		if n := stripes(); n != 3 {
			t.Errorf("%d series have stripes, want 3", n)
		}
		for range idleHalfFull + 1 {
			c.Count("a", 1)
			flush(t, c)
		}
		if n := stripes(); n != 0 {
			t.Errorf("%d series have stripes after a while, want none", n)
		}
		for _, more := range cells {
			for i := range more {
				if !more[i].retired {
					t.Error("a removed cell still accepts calls from goroutines that found it earlier")
				}
			}
		}
		if s := checkStats(t, c, 403+900+idleHalfFull+1); s.Sent != s.Calls {
			t.Errorf("unexpected counts: %+v", s)
		}
	})
}

// A call may find a series that is being removed from the table at that moment. The call then goes to
// the series that replaces it.
func TestRetiredSeriesTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unixgram}
		c := startOn(t, w, Options{FlushInterval: time.Hour})
		f := newFlusher(c, &socket{to: address{network: unixgram}, dial: w.dial}) // the client's own flusher is idle
		for k, use := range map[kind]func(*series) bool{
			count:     func(s *series) bool { return s.add(1) },
			gauge:     func(s *series) bool { return s.set(1) },
			histogram: func(s *series) bool { return s.record(1, &c.limits) },
			set:       func(s *series) bool { return c.insert(s, "member") },
		} {
			s := c.find(k, 1, "a", nil)
			other := c.find(k, 1, "other", nil) // a series on which calls never collided
			if !use(s) || !use(other) {
				t.Fatal("a series in the table is retired")
			}
			f.take(other, true)
			other.first.mu.Lock()
			if k != gauge && use(other) {
				t.Errorf("a retired series of kind %s without stripes accepts a call during another call", kindLetters[k])
			}
			other.first.mu.Unlock()
			s.first.mu.Lock() // another call is under way
			if k != gauge && !use(s) {
				t.Fatal("a series in the table is retired")
			}
			s.first.mu.Unlock()
			f.take(s, true)
			if use(s) {
				t.Errorf("a retired series of kind %s accepts a call", kindLetters[k])
			}
			s.first.mu.Lock()
			if k != gauge && use(s) {
				t.Errorf("a retired series of kind %s accepts a call during another call", kindLetters[k])
			}
			s.first.mu.Unlock()
			if n := s.held(); n != 0 {
				t.Errorf("%d calls are in a retired series of kind %s, want none", n, kindLetters[k])
			}
		}
		f.send()
		if got := parse(t, w.take()); got.sum("c a ") != 2 || got["g a "].count != 1 || got["h a "].count != 2 ||
			len(got["s a "].members) != 2 {
			t.Errorf("got %+v", got)
		}
	})
}
