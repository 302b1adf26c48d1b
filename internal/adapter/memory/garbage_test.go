//go:build linux

package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
	"time"
)

func TestGarbage(t *testing.T) {
	collector := Garbage{Percent: 25, Most: 16 << 20}
	for _, c := range []struct {
		live uint64 // MiB
		want int
	}{
		{0, 25},
		{4, 25},
		{64, 25},
		{65, 24},
		{160, 10},
		{1600, 1},
		{16000, 1}, // the least that the runtime accepts
	} {
		if got := collector.percent(c.live<<20, pace{now: 1e9, mean: 1e9}); got != c.want {
			t.Errorf("with %d MiB live: got %d %%, want %d %%", c.live, got, c.want)
		}
	}
}

// Little live memory may have much garbage beside it, up to Percent, and much live memory may always have Least.
func TestGarbageInBounds(t *testing.T) {
	opening := Garbage{Percent: 1000, Most: 1 << 30, Least: 25}
	for _, c := range []struct {
		live uint64 // MiB
		want int
	}{{0, 1000}, {4, 1000}, {512, 200}, {1024, 100}, {4096, 25}, {16_384, 25}} {
		if got := opening.percent(c.live<<20, pace{}); got != c.want {
			t.Errorf("with %d MiB live: got %d %%, want %d %%", c.live, got, c.want)
		}
	}
}

// Collections of a process with stores are a minute apart, if that takes 25 to 100 percent of the live memory. In a
// burst they are five seconds apart.
func TestGarbageByItsPace(t *testing.T) {
	stores := Garbage{Percent: 25, Apart: time.Minute}
	for _, c := range []struct {
		why  string
		pace pace // MiB a second
		want int
	}{
		{"little garbage", pace{now: .1, mean: .1}, 25},
		{"60 MiB in a minute", pace{now: 1, mean: 1}, 60},
		{"more than the live memory in a minute", pace{now: 10, mean: 10}, 100},
		{"the burst of a tile", pace{now: 4, mean: .5}, 30},
		{"a flood that has just begun", pace{now: 100, mean: .5}, 100},
		{"no collection yet", pace{now: 1, mean: 1}, 25},
	} {
		live := uint64(100 << 20)
		if c.why == "no collection yet" {
			live = 0
		}
		c.pace.now, c.pace.mean = c.pace.now*(1<<20), c.pace.mean*(1<<20)
		if got := stores.percent(live, c.pace); got != c.want {
			t.Errorf("%s: got %d %%, want %d %%", c.why, got, c.want)
		}
	}
}

// The mean follows a change within some tiles, and one burst hardly moves it.
func TestPace(t *testing.T) {
	var p pace
	for made := uint64(1000); made <= 60_000; made += 1000 {
		p.look(made, time.Second)
	}
	if p.now != 1000 || p.mean < 850 || p.mean > 1000 {
		t.Errorf("after a minute of 1,000 bytes a second: %+v", p)
	}
	p.look(p.made+10_000, time.Second)
	if p.now != 10_000 || p.mean > 1300 {
		t.Errorf("in a burst of one second: %+v", p)
	}
}

// Each collection is told, also those that come soon after another.
func TestCollectionsAreTold(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	collected := make(chan struct{}, 1)
	tellCollections(ctx, collected)
	for range 3 {
		runtime.GC()
		<-collected
	}
}

// A flood may have more garbage after its first collection, and not only after the next look.
func TestAFloodIsSeenBeforeTheNextLook(t *testing.T) {
	limitWithoutLooks(t, Garbage{Percent: 25, Apart: time.Minute})
	collectUntil(t, 100)
}

// Most bounds the garbage of a heap that grows fast after its first collection, and not only after the next look. When
// the heap is small again, so is the bound.
func TestMostIsABoundBeforeTheNextLook(t *testing.T) {
	limitWithoutLooks(t, Garbage{Percent: 1000, Most: 16 << 20, Least: 25})
	collectUntil(t, 1000)
	grown = make([]byte, 64<<20)
	collectUntil(t, 25)
	grown = nil
	collectUntil(t, 1000)
}

// limitWithoutLooks enforces g until the test ends. Only collections tell it to look at the heap.
func limitWithoutLooks(t *testing.T, g Garbage) {
	was := debug.SetGCPercent(25)
	ctx, end := context.WithCancel(t.Context())
	var limit sync.WaitGroup
	t.Cleanup(func() {
		end()
		limit.Wait()
		debug.SetGCPercent(was)
	})
	limit.Go(func() { g.limit(ctx, nil) })
}

// collectUntil makes garbage and collects it until the runtime's percentage is as wanted.
func collectUntil(t *testing.T, want uint64) {
	t.Helper()
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for range 500 {
		for range 100 {
			flood = make([]byte, 64<<10)
		}
		runtime.GC()
		if metrics.Read(percent); percent[0].Value.Uint64() == want {
			return
		}
	}
	t.Fatalf("after 500 collections, %d %% of garbage are allowed, want %d %%", percent[0].Value.Uint64(), want)
}

var flood, grown []byte // so that the compiler does not keep them on the stack
