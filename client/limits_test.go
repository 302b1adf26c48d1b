//go:build go1.25

package client

import (
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// If there are more values than a series holds, the client sends a random sample of them, with a
// sampling rate from which the server computes the number of all values.
func TestThinnedValuesCountForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, most = 100_000, 1000
		w := &wire{network: unixgram}
		c := startOn(t, w, Options{MaxValues: most})
		for i := range calls {
			c.Histogram("h", float64(i))
		}
		flush(t, c)
		got := parse(t, w.take())["h h "]
		if !almost(got.count, calls) || len(got.values) != most {
			t.Errorf(
				"got %d values that count for %v, want %d that count for %v", len(got.values), got.count, most, calls)
		}
		// The mean of 1,000 uniformly distributed values has a standard error of 0.9 % of the width of
		// the distribution. The test allows five standard errors.
		if mean := got.sum / got.count; math.Abs(mean-calls/2) > 0.045*calls {
			t.Errorf("the mean is %v, want about %v", mean, calls/2)
		}
		if s := checkStats(t, c, calls); s.Sent != calls || s.Thinned != calls-most {
			t.Errorf("unexpected counts: %+v", s)
		}
		// The client sends all values up to the limit.
		for i := range most {
			c.Histogram("h", float64(i))
		}
		flush(t, c)
		if got := parse(t, w.take())["h h "]; got.count != most || got.sum != most*(most-1)/2 {
			t.Errorf("got %v values with the sum %v, want %d with the sum %d", got.count, got.sum, most, most*(most-1)/2)
		}
	})
}

// Each value is kept with the same probability, whether it came early or late, and however the limit
// of memory changes.
func TestSampleIsEven(t *testing.T) {
	const rounds, calls, most = 2000, 100, 20
	kept := [calls]int{}
	l := &limits{values: most}
	l.room.Store(1 << 20)
	for range rounds {
		var c series
		for i := range calls {
			if i == firstValues {
				l.room.Store(0) // no room to grow
			}
			if i == 50 {
				l.room.Store(1 << 20)
			}
			c.record(float64(i), l)
		}
		if n := len(c.first.values); n != firstValues {
			t.Fatalf("the cell holds %d values: it grew after values had been left out", n)
		}
		for _, v := range c.first.values {
			kept[int(v)]++
		}
	}
	want := float64(rounds*firstValues) / calls
	for i, n := range kept { // each of the 100 counts may be off by 4.5 standard errors
		if math.Abs(float64(n)-want) > 4.5*math.Sqrt(want) {
			t.Errorf("value %d was kept %d times, want %v", i, n, want)
		}
	}
}

func TestSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 100_000
		w := &wire{network: unixgram}
		c := startOn(t, w, Options{MaxValues: 2000})
		timing := c.Sampled(0.25).NewTiming("handle")
		if rate := c.Sampled(5e-324).rate; rate != leastRate { // servers refuse a rate of 5e-324
			t.Errorf("got the rate %v, want %v", rate, leastRate)
		}
		for range calls {
			c.Sampled(0.25).Timing("t", time.Millisecond, "k:v")
			c.Sampled(0.25).Histogram("h", 1)
			c.Sampled(0.25).Distribution("d", 1)
			timing.Record(time.Millisecond)
		}
		for range 100 {
			c.Timing("t", time.Millisecond, "k:v") // the same name, not sampled
			c.Sampled(1).Timing("all", 1)
			c.Sampled(0).Timing("all", 1)
			c.Sampled(math.NaN()).Timing("all", 1)
		}
		flush(t, c)
		packets := w.take()
		got := parse(t, packets)
		// The number of sampled values is about 25,000, with a standard error of 137. The test allows 20
		// standard errors, since the values are also thinned to 2,000.
		for _, key := range []string{"ms t k:v", "h h ", "d d ", "ms handle "} {
			if l := got[key]; math.Abs(l.count-calls) > 2800 || len(l.values) < 2000 || len(l.values) > 2100 {
				t.Errorf("%s: got %d values for a count of %v, want 2000 to 2100 values for a count of about %v",
					key, len(l.values), l.count, calls)
			}
		}
		unsampled := 0 // values without a rate, in one or two packets
		for _, line := range linesOf(packets) {
			if values, ok := strings.CutSuffix(line, "|ms|#k:v"); ok && strings.HasPrefix(line, "t:") {
				unsampled += strings.Count(values, ":1")
			}
		}
		if n := got["ms all "].count; unsampled != 100 || n != 300 {
			t.Errorf("%d timings and %v others are sent without a rate, want 100 and 300", unsampled, n)
		}
		if s := checkStats(t, c, 4*calls+400); math.Abs(float64(s.Skipped)-3*calls) > 1400 || s.Sent != s.Calls-s.Skipped {
			t.Errorf("unexpected counts: %+v", s)
		}
	})
}

func TestSeriesBeyondTheLimitFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unixgram}
		c := startOn(t, w, Options{MaxSeries: 100, FlushInterval: time.Hour})
		handle := c.NewCounter("handle") // has no series yet
		for i := range 100 {
			c.Count("known", 1, fmt.Sprint(i))
		}
		for i := range 1000 {
			tag := fmt.Sprint(i)
			c.Count("known", 1, tag)
			c.Count("new", 1, tag)
			c.Timing("timing", time.Millisecond, tag)
			c.Set("set", tag, tag)
			c.Gauge("gauge", 1, tag)
			handle.Add(1)
		}
		flush(t, c)
		got := parse(t, w.take())
		overflow := " client_overflow:true"
		for key, want := range map[string]float64{"c known 7": 2, "c known" + overflow: 900, "c new" + overflow: 1000,
			"ms timing" + overflow: 1000, "c handle" + overflow: 1000} {
			if sum := got.sum(key); sum != want {
				t.Errorf("%s: got %v, want %v", key, sum, want)
			}
		}
		if n := len(got["s set"+overflow].members); n != 1000 || len(got) != 105 {
			t.Errorf("got %d members and %d series, want 1000 and 105", n, len(got))
		}
		if s := checkStats(t, c, 6100); s.Full != 1000 || s.Folded != 4900 || s.Sent != 5100 || s.Series != 100 {
			t.Errorf("unexpected counts: %+v", s)
		}
		// There is room for 16 overflow series, and five are in use.
		for i := range 1000 {
			c.Count(fmt.Sprint("name", i), 1)
		}
		flush(t, c)
		if s := checkStats(t, c, 7100); s.Full != 1000+989 || s.Sent != 5111 {
			t.Errorf("unexpected counts: %+v", s)
		}
		// After two flushes without a call, idle series make room for other series, and for the handle.
		flush(t, c)
		flush(t, c)
		if n := c.overflow; n != 11 { // the other five were evicted with the idle series
			t.Errorf("there are %d overflow series, want 11", n)
		}
		for range idleHalfFull { // after these flushes, idle overflow series are evicted, too
			flush(t, c)
		}
		if n := c.overflow; n != 0 {
			t.Errorf("%d overflow series are left after idle flushes, want none", n)
		}
		w.take()
		for i := range 90 {
			c.Count("later", 1, fmt.Sprint(i))
		}
		handle.Add(1)
		flush(t, c)
		if got := parse(t, w.take()); len(got) != 91 || got.sum("c later 0") != 1 || got.sum("c handle ") != 1 {
			t.Errorf("after the eviction of idle series, got %d series, %v for the counter named later and %v for "+
				"the one named handle; want 91, 1, 1",
				len(got), got.sum("c later 0"), got.sum("c handle "))
		}
	})
}

// While there is room, idle series stay. When half of the room is used, some are evicted.
func TestIdleSeriesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unixgram}
		c := startOn(t, w, Options{MaxSeries: 1000})
		busy := c.NewGauge("busy")
		series := func(n int) {
			t.Helper()
			for range 20 {
				busy.Set(1)
				time.Sleep(time.Second)
			}
			synctest.Wait()
			if s := c.Stats(); s.Series != n {
				t.Fatalf("Stats has %d series, want %d", s.Series, n)
			}
		}
		for i := range 499 {
			c.Count("a", 1, fmt.Sprint(i))
		}
		series(500)
		c.Count("b", 1)
		series(2)
		for i := range 700 {
			c.Timing("a", 1, fmt.Sprint(i))
			c.Set("s", fmt.Sprint(i), fmt.Sprint(i%200))
		}
		series(1)
		if used := int64(defaultBytes) - c.limits.room.Load(); used != 0 {
			t.Errorf("%d bytes are still in use, want none", used)
		}
	})
}

// When memory for values runs out, values are thinned but never refused. Unused memory is released.
func TestMaxBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room, series = 1 << 16, 300
		w := &wire{network: unixgram}
		c := startOn(t, w, Options{MaxBytes: room})
		handed := 0
		use := func() {
			for i := range series {
				for j := range 40 {
					c.Timing("t", time.Millisecond, fmt.Sprint(i))
					c.Set("s", fmt.Sprint(j), fmt.Sprint(i))
					handed += 2
				}
			}
		}
		use()
		if used := room - c.limits.room.Load(); used < room*9/10 || used > room {
			t.Errorf("the values use %d bytes, want %d to %d", used, room*9/10, room)
		}
		flush(t, c)
		got := parse(t, w.take())
		for i := range series {
			if l := got["ms t "+fmt.Sprint(i)]; l == nil || !almost(l.count, 40) || len(l.values) < firstValues {
				t.Fatalf("series %d: %+v", i, l)
			}
		}
		s := checkStats(t, c, handed)
		if s.Thinned == 0 || s.Full == 0 || s.Full > 40*series || s.Sent != uint64(handed)-s.Full {
			t.Errorf("unexpected counts: %+v", s)
		}
		for range 20 {
			time.Sleep(time.Second)
		}
		if used := room - c.limits.room.Load(); used != 0 {
			t.Errorf("%d bytes are in use although no values are held", used)
		}
		use()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		checkStats(t, c, handed)
		if used := room - c.limits.room.Load(); used != 0 {
			t.Errorf("%d bytes are in use after Close, want none", used)
		}
	})
}

// A member's memory is counted once, and released when the set no longer holds the member.
func TestMembersGiveBackTheirRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unixgram}
		c := startOn(t, w, Options{})
		used := func(members ...string) {
			t.Helper()
			want := int64(0)
			for _, m := range members {
				want += int64(costOf(m))
			}
			if n := defaultBytes - c.limits.room.Load(); n != want {
				t.Errorf("%d bytes are used for %q, want %d", n, members, want)
			}
		}
		for range 3 {
			c.Set("s", "clean")
			c.Set("s", "a|b")
			c.Set("s", "a_b")
		}
		used("clean", "a_b")
		flush(t, c)
		used("clean", "a_b")
		c.Set("s", "clean")
		used("clean", "a_b", "clean") // the members of the last flush, and the new member
		flush(t, c)
		used("clean")
		flush(t, c)
		used()
		c.Set("s", "clean")
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		used()
	})
}

// A nearly full set is sent early, so that none of its members is lost.
func TestFullSetsAreSentEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unixgram}
		c := startOn(t, w, Options{MaxValues: 100, FlushInterval: time.Minute})
		for i := range 500 {
			c.Set("s", fmt.Sprint(i))
			time.Sleep(earlyGap / 10)
			synctest.Wait()
		}
		flush(t, c)
		if n := len(parse(t, w.take())["s s "].members); n != 500 {
			t.Errorf("the set has %d members, want 500", n)
		}
		// Members that come even faster are refused and counted.
		for i := range 500 {
			c.Set("s", fmt.Sprint(i))
			synctest.Wait()
		}
		flush(t, c)
		if s := checkStats(t, c, 1000); s.Full != 400 || s.Sent != 600 {
			t.Errorf("unexpected counts: %+v", s)
		}
	})
}

func TestTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: udp}
		c := startOn(t, w, Options{Prefix: "p.", Tags: []string{"all:x"}})
		long := func(bytes int) string { return strings.Repeat("x", bytes) }
		room := defaultUDPPacket - len("p.:|ms|@|#,all:x") - 2*longestNumber
		kinds := []func(name string, tags ...string){
			func(name string, tags ...string) { c.Count(name, math.MaxFloat64, tags...) },
			func(name string, tags ...string) { c.Gauge(name, -math.SmallestNonzeroFloat64, tags...) },
			func(name string, tags ...string) { c.Sampled(1-1.0/3).Timing(name, 1234567, tags...) },
			func(name string, tags ...string) { c.Set(name, "member", tags...) },
		}
		for n := room - 60; n < room+10; n++ {
			for _, call := range kinds {
				call(long(n))
				call("n", long(n-2), "")
			}
			c.Set("s", long(n))
		}
		flush(t, c)
		packets := w.take()
		for _, p := range packets {
			if len(p) > defaultUDPPacket {
				t.Errorf("a packet has %d bytes, which is too long", len(p))
			}
		}
		got := parse(t, packets)
		if l := got["c p."+long(room-1)+" all:x"]; l == nil {
			t.Error("a call was refused although it fits")
		}
		s := c.Stats()
		if s.Refused == 0 || s.Sent == 0 || s.Sent+s.Refused+s.Skipped != s.Calls || s.Calls != 70*9 {
			t.Errorf("unexpected counts: %+v", s)
		}
	})
}

// Memory is bounded, whatever calls are made while the client cannot send.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds = 20_000
		w := &wire{network: unixgram, down: true}
		c := startOn(t, w, Options{MaxSeries: 1000, MaxBytes: 1 << 20})
		before := heap()
		for i := range rounds {
			tag := fmt.Sprintf("request:%d", i)
			c.Count("c", 1, tag)
			c.Timing("t", time.Duration(i), tag)
			c.Set("s", tag, tag)
			c.Gauge("g", 1, tag)
			c.Histogram("h", float64(i))
			_ = c.Event(Event{Title: tag})
			if i%1000 == 0 {
				time.Sleep(time.Second) // the client tries to flush
			}
		}
		// The bytes in use hold 1,000 series of 128 bytes, their text and the first values of their
		// cells, and a map for each set. Another 2 MiB are allowed for the maps, since MaxBytes is an
		// estimate.
		if grown := heap() - before; grown > 4<<20 {
			t.Errorf("%d bytes are held, want at most 4 MiB", grown)
		}
		s := checkStats(t, c, 6*rounds)
		if s.Held+s.Full != s.Calls || s.Series != 1000 {
			t.Errorf("unexpected counts: %+v", s)
		}
		w.set(func(w *wire) { w.down = false })
		flush(t, c)
		counted, values := 0.0, 0.0
		for key, l := range parse(t, w.take()) {
			switch key[:4] {
			case "c c ":
				counted += l.sum
			case "h h ":
				values += l.count
			}
		}
		if counted != rounds || !almost(values, rounds) {
			t.Errorf("the server got the count %v and %v values, want %v of each", counted, values, rounds)
		}
		if s := checkStats(t, c, 6*rounds); s.Held != 0 {
			t.Errorf("unexpected counts: %+v", s)
		}
	})
}

// heap returns the number of reachable bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A series has two cache lines. Calls only read the first, to find the series, and write to the second.
func TestSeriesIsTwoCacheLines(t *testing.T) {
	if whole, cell := unsafe.Sizeof(series{}), unsafe.Sizeof(cell{}); bits.UintSize == 64 && (whole != 128 || cell != 64) {
		t.Errorf("a series has %d bytes and a cell %d, want 128 and 64", whole, cell)
	}
}

// Two series are the same only if their kind, rate, name and tags are the same, whatever their hashes.
func TestSeriesAreToldApart(t *testing.T) {
	s := newSeries(1, count, 1, "a,n", []string{"b", "c"})
	for _, tt := range []struct {
		k    kind
		rate float64
		name string
		tags []string
		want bool
	}{
		{count, 1, "a,n", []string{"b", "c"}, true},
		{gauge, 1, "a,n", []string{"b", "c"}, false},
		{count, 0.5, "a,n", []string{"b", "c"}, false},
		{count, 1, "a,m", []string{"b", "c"}, false},
		{count, 1, "a", []string{"n", "b", "c"}, false},
		{count, 1, "a,n|#b", []string{"c"}, false},
		{count, 1, "a,n", []string{"b", "d"}, false},
		{count, 1, "a,n", []string{"b"}, false},
		{count, 1, "a,n", nil, false},
		{count, 1, "a,n", []string{"b", "c", ""}, false},
		{count, 1, "a,n", []string{"b,c"}, false},
		{count, 1, "a,n", []string{"b,", ""}, false},
		{count, 1, "a,n", []string{"", ",c"}, false},
		{count, 1, "a,n", []string{"", "bc"}, false},
		{count, 1, "a,n", []string{"c", "b"}, false},
	} {
		if got := s.is(tt.k, tt.rate, tt.name, tt.tags); got != tt.want {
			t.Errorf("%s %q %q @%v: %v", kindLetters[tt.k], tt.name, tt.tags, tt.rate, got)
		}
	}
}
