package tile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/series"
)

// history is a random run of an aggregator: the batches of each second, and when tiles close.
type history struct {
	windows []string // each is a block of a script
	seconds []int
}

func randomHistory(seed uint64) history {
	rng := rand.New(rand.NewPCG(seed, 1))
	var h history
	for second := range 400 {
		if second > 60 && second < 60+int(seed%300) && rng.IntN(20) > 0 {
			continue // a silence that outlasts some times to live
		}
		start := second - rng.IntN(3)*rng.IntN(8) // some windows come late
		var lines []string
		for range rng.IntN(6) {
			n := rng.IntN(8)
			lines = append(lines, []string{
				fmt.Sprintf("counter c%d %d", n, rng.IntN(100)),
				fmt.Sprintf("counter c%d %d T=%ds", n, rng.IntN(100), start-rng.IntN(30)),
				fmt.Sprintf("counter c%d %d delta=%ds", n, rng.IntN(100), start-rng.IntN(30)),
				fmt.Sprintf("gauge u%d %d change delta=%ds", n, rng.IntN(100)-50, start-rng.IntN(30)),
				fmt.Sprintf("gauge g%d %d at=%d.%03ds", n, rng.IntN(100), start, rng.IntN(1000)),
				fmt.Sprintf("gauge m%d %d source=%d merge=sum", n, rng.IntN(100), rng.IntN(3)+1),
				fmt.Sprintf("timer t%d %d,%d", n, rng.IntN(100), rng.IntN(100)),
				fmt.Sprintf("timer t%d 1 x=%x:1@%dms", n, rng.IntN(1000), start*1000+rng.IntN(1000)),
				fmt.Sprintf("timer b%d %d bounds=10,50 x=%x:%d@%dms",
					n, rng.IntN(100), rng.IntN(1000), rng.IntN(100), start*1000+rng.IntN(1000)),
				fmt.Sprintf("set s%d v%d,v%d", n, rng.IntN(50), rng.IntN(50)),
				fmt.Sprintf("check k%d %d", n, rng.IntN(4)),
				fmt.Sprintf("updown o%d %d,%d", n, rng.IntN(100)-50, rng.IntN(100)-50),
				fmt.Sprintf("updown o%d %d T=%ds", n, rng.IntN(100)-50, start-rng.IntN(30)),
			}[rng.IntN(13)])
		}
		h.windows = append(h.windows, fmt.Sprintf("window start=%ds\n%s", start, strings.Join(lines, "\n")))
		h.seconds = append(h.seconds, second)
	}
	return h
}

// run plays a history and returns all samples; `between` may interfere after each window.
func (h history) run(t *testing.T, between func(p *player)) string {
	p := &player{t: t, config: testConfig()}
	p.shard = New(p.config, base)
	var out strings.Builder
	closeUntil := func(second int) {
		for p.shard.Closed()+finest.Millis()+2000 <= base+int64(second)*1000 {
			out.WriteString(p.close(nil))
		}
	}
	for i, w := range h.windows {
		closeUntil(h.seconds[i])
		p.run(w)
		between(p)
	}
	closeUntil(1200)
	return out.String()
}

// seeds returns n, and 1 in short tests.
func seeds(n uint64) uint64 {
	if testing.Short() {
		return 1
	}
	return n
}

// Any number of restarts, at any time, change no sample.
func TestRestartsChangeNothing(t *testing.T) {
	for seed := range seeds(6) {
		h := randomHistory(seed)
		want := h.run(t, func(*player) {})
		rng := rand.New(rand.NewPCG(seed, 2))
		got := h.run(t, func(p *player) {
			if rng.IntN(3) == 0 {
				p.run("restart")
			}
		})
		if got != want {
			t.Fatalf("seed %d: samples differ after restarts", seed)
		}
	}
}

// A query of open tiles changes nothing. If no more increments come, the last live sample of a counter
// equals the sample of its next tile.
func TestLookingChangesNothing(t *testing.T) {
	for seed := range seeds(3) {
		h := randomHistory(seed)
		want := h.run(t, func(*player) {})
		got := h.run(t, func(p *player) {
			p.run("live stamp=57s")
			p.run(fmt.Sprintf("live stamp=%ds width=1m", (p.shard.Closed()-base)/1000+5))
		})
		if got != want {
			t.Fatalf("seed %d: samples differ after queries of open tiles", seed)
		}
	}
}

// The total of all tiles is the sum of all folded increments, late or not.
func TestTotalsAreExact(t *testing.T) {
	for seed := range uint64(6) {
		h := randomHistory(seed)
		p := &player{t: t, config: testConfig()}
		p.shard = New(p.config, base)
		var folded, closed uint64
		step := func() {
			closed += p.shard.Close(p.shard.Closed()+finest.Millis(), p.config).Samples
			p.shard.AllStored()
		}
		for i, w := range h.windows {
			for p.shard.Closed()+12_000 <= base+int64(h.seconds[i])*1000 {
				step()
			}
			var n uint64
			if _, err := fmt.Sscanf(p.run(w), "samples=%d", &n); err != nil {
				t.Fatal(err)
			}
			folded += n
		}
		for range MaxAhead + 1 {
			step()
		}
		if folded != closed {
			t.Fatalf("seed %d: closed tiles have %d samples, want the %d that were folded", seed, closed, folded)
		}
	}
}

// Producers add and subtract: late or early, with times of their own, repeatedly, and across restarts
// and silences. The total of an up/down counter is always the sum of the folded increments: in closed
// tiles, in open ones, and at each second of an open one. The same holds for the sum over the series of
// several hosts.
func TestUpDownTotalsAreThePlainSum(t *testing.T) {
	const counters = 4
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 7))
		p := &player{t: t, config: testConfig()}
		p.shard = New(p.config, base)
		var want [counters]float64
		var came [counters]bool
		var windows []string // the last window of each producer
		for range 3 {
			windows = append(windows, "")
		}
		check := func(second int) {
			t.Helper()
			for n := range counters {
				out := p.run(fmt.Sprintf("live stamp=%ds name=o%d", second, n))
				got := strings.Fields(out)
				switch {
				case !came[n] && out == "":
				case len(got) == 0 || got[len(got)-1] != fmt.Sprint(want[n]):
					t.Fatalf("seed %d, second %d: counter o%d is %q, want a total of %v", seed, second, n, out, want[n])
				}
			}
		}
		for second := 1; second < 900; second++ {
			for p.shard.Closed()+12_000 <= base+int64(second)*1000 {
				p.run("close")
			}
			if rng.IntN(10) == 0 {
				p.run("restart")
			}
			producer := rng.IntN(len(windows))
			if rng.IntN(10) == 0 && windows[producer] != "" {
				if out := p.run(windows[producer]); out != "samples=0\n" {
					t.Fatalf("seed %d: a repeat returned %q, want samples=0", seed, out)
				}
			}
			if second%300 > 200 { // a silence
				check(second)
				continue
			}
			window := fmt.Sprintf("window start=%ds producer=%d sequence=%d", second-1-rng.IntN(20)/19*15, producer+1, second)
			for range rng.IntN(4) {
				n, v := rng.IntN(counters), float64(rng.IntN(2000)-1000)/8
				window += fmt.Sprintf("\nupdown o%d %v", n, v)
				if rng.IntN(8) == 0 {
					window += fmt.Sprintf(" T=%ds", second-1-rng.IntN(40))
				}
				want[n], came[n] = want[n]+v, true
			}
			if strings.Contains(window, "\n") {
				p.run(window)
				windows[producer] = window
			}
			check(second)
		}
	}
}

// When nothing ran for some time, a shard that holds only totals skips that time in one step, and
// so does a replay. A shard that has samples to hand out for that time does not skip it.
func TestARestingShardLeaps(t *testing.T) {
	p := &player{t: t, config: testConfig()}
	p.shard = New(p.config, base)
	if p.run("window start=1s\nupdown open 3"); p.shard.Rests() {
		t.Error("the shard rests with an open tile")
	}
	p.run("close until=10s")
	if p.shard.Rests() {
		t.Error("the shard rests before the store of 1 min has the total")
	}
	p.run("close until=60s")
	if !p.shard.Rests() {
		t.Error("the shard does not rest, although the total was handed out")
	}
	p.run("window start=61s\ncounter c 1")
	p.run("close until=120s")
	if p.shard.Rests() {
		t.Error("the shard rests, although a counter is within its time to live")
	}
}

// Without up/down counters, a state has the version that the previous program can read.
func TestStateWithoutUpDownsIsOfVersion5(t *testing.T) {
	p := &player{t: t, config: testConfig()}
	p.shard = New(p.config, base)
	p.run("window start=1s\ncounter a 7")
	if version := p.shard.AppendState(nil)[0]; version != 5 {
		t.Errorf("version %d", version)
	}
	p.run("window start=1s\nupdown b -7")
	if version := p.shard.AppendState(nil)[0]; version != 6 {
		t.Errorf("with an up/down counter: version %d, want 6", version)
	}
}

// messyHistory is a random history with every way in which a sample can leave the tiles without being
// stored: stamped gauges that coincide with another stamped gauge or with a tile, sums that overflow,
// timers whose buckets change.
func messyHistory(seed uint64) history {
	rng := rand.New(rand.NewPCG(seed, 3))
	h := randomHistory(seed)
	for i := range h.windows {
		second := h.seconds[i] - rng.IntN(4)
		for range rng.IntN(4) {
			n := rng.IntN(4)
			h.windows[i] += "\n" + []string{
				fmt.Sprintf("gauge g%d %d T=%ds", n, rng.IntN(100), (second+rng.IntN(80)-20)/5*5),
				fmt.Sprintf("check k%d %d T=%ds", n, rng.IntN(4), second/10*10),
				fmt.Sprintf("gauge old%d 1 T=%ds", n, second-1200),
				fmt.Sprintf("counter huge 1e308,%d", n),
				fmt.Sprintf("timer b%d %d bounds=10,%d", n, rng.IntN(100), 50+rng.IntN(2)),
				fmt.Sprintf("timer t%d %d,3,4%s", n, rng.IntN(100), []string{"", " bounds=5"}[rng.IntN(2)]),
			}[rng.IntN(6)]
		}
	}
	return h
}

// At every step, and across restarts, each value on the wire is in one place: in the tiles, stored, or
// counted as not stored. In the end the tiles are empty.
func TestEveryValueLeavesTheTilesOnce(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 4))
		p := &player{t: t, config: testConfig()}
		p.shard = New(p.config, base)
		var stored, duplicates uint64
		check := func() {
			t.Helper()
			f := &p.folded
			if p.sent != f.Samples+f.LateGauge+f.Refused+f.Repeated {
				t.Fatalf("seed %d: %d values sent, but folded counts %+v", seed, p.sent, *f)
			}
			if held := p.shard.Raw()["default"]; f.Samples != held+stored+duplicates+f.Unfit {
				t.Fatalf("seed %d: %d in tiles, %d stored, %d duplicates, %d unfit, want %d together",
					seed, held, stored, duplicates, f.Unfit, f.Samples)
			}
		}
		store := func(tiles int) {
			for _, w := range p.shard.Waiting()[:tiles] {
				p.shard.Stored(w.Tenant, w.Boundary)
				stored += w.Raw
			}
			check()
		}
		step := func() {
			closed := p.shard.Close(p.shard.Closed()+finest.Millis(), p.config)
			duplicates += closed.Duplicates["default"]
			for _, waiting := range closed.Waiting {
				for _, s := range waiting.Samples[Width1m] {
					if s.Raw > 0 {
						t.Fatalf("seed %d: a sample of width 1m counts for %d values, want 0", seed, s.Raw)
					}
				}
			}
			check()
		}
		h := messyHistory(seed)
		for i, w := range h.windows {
			for p.shard.Closed()+12_000 <= base+int64(h.seconds[i])*1000 {
				step()
			}
			p.run(w)
			check()
			if rng.IntN(8) == 0 {
				store(rng.IntN(1 + len(p.shard.Waiting())))
			}
			if rng.IntN(5) == 0 {
				p.run("restart")
				check()
			}
		}
		for range MaxAhead + 1 {
			step()
		}
		store(len(p.shard.Waiting()))
		for _, e := range p.shard.tenants["default"].entries {
			if len(e.has().exemplars) > 0 {
				t.Fatalf("seed %d: %s keeps %d exemplars of tiles that are closed",
					seed, e.series.Labels, len(e.has().exemplars))
			}
		}
		if held := p.shard.Raw()["default"]; held != 0 || duplicates == 0 || p.folded.Unfit == 0 || p.folded.Refused == 0 ||
			p.folded.Repeated == 0 {
			t.Fatalf("seed %d: %d values are left in tiles, %d duplicates, other fates %+v, want 0 left, and some of "+
				"each other fate",
				seed, held, duplicates, p.folded)
		}
	}
}

// Slow stores change nothing, even if tiles close and the process restarts while samples wait. The same
// samples are stored, and answers include all samples that still wait.
func TestSlowStoresChangeNothing(t *testing.T) {
	for seed := range uint64(6) {
		h := messyHistory(seed)
		want := h.written(t, func(p *player, store func(tiles int)) { store(len(p.shard.Waiting())) })
		rng := rand.New(rand.NewPCG(seed, 5))
		got := h.written(t, func(p *player, store func(tiles int)) {
			if rng.IntN(12) == 0 {
				store(rng.IntN(1 + len(p.shard.Waiting())))
			}
			if rng.IntN(6) == 0 {
				p.run("restart")
			}
		})
		if len(want) < 500 || !slices.Equal(got, want) {
			t.Fatalf("seed %d: with a slow store, %d samples are stored, want the same %d as with a fast one",
				seed, len(got), len(want))
		}
	}
}

// written plays a history and returns the stored samples, sorted. After each window, `between`
// decides how much is stored.
func (h history) written(t *testing.T, between func(p *player, store func(tiles int))) (all []string) {
	p := &player{t: t, config: testConfig()}
	p.shard = New(p.config, base)
	store := func(tiles int) {
		for _, waiting := range p.shard.Waiting()[:tiles] {
			for w, samples := range waiting.Samples {
				for _, s := range samples {
					all = append(all,
						fmt.Sprint(Width(w), describe(s.Series.Labels, Point{s.T, s.V, s.H}), s.Raw, s.Timed, s.Exemplar))
				}
			}
			p.shard.Stored(waiting.Tenant, waiting.Boundary)
		}
	}
	closeUntil := func(second int) {
		for p.shard.Closed()+finest.Millis()+2000 <= base+int64(second)*1000 {
			p.shard.Close(p.shard.Closed()+finest.Millis(), p.config)
		}
	}
	for i, w := range h.windows {
		closeUntil(h.seconds[i])
		p.run(w)
		between(p, store)
	}
	closeUntil(1200)
	store(len(p.shard.Waiting()))
	slices.Sort(all)
	return all
}

// A state of version 1 has no counts for stamped points: each point counts as one value.
func TestStateOfVersion1(t *testing.T) {
	p := &player{t: t, config: testConfig()}
	p.shard = New(p.config, base)
	p.run("window start=1s\ngauge g 7 T=5s")
	state := p.shard.AppendState(nil)
	// The state ends with the point's count, the number of open tiles and the number of waiting tiles.
	shard, err := ParseState(p.config, append(oldState(p.shard, state[:len(state)-3], 1), 0))
	if err != nil || shard.Raw()["default"] != 1 {
		t.Errorf("%v, %v", shard, err)
	}
}

// oldState gives a state the head of a version below 5, which has no timed window after the
// boundary.
func oldState(s *Shard, state []byte, version byte) []byte {
	boundary := len(binary.AppendVarint(nil, s.closed))
	window := len(binary.AppendVarint(nil, s.timedWindow))
	old := append([]byte{version}, state[1:1+boundary]...)
	return append(old, state[1+boundary+window:]...)
}

// A state of version 3 has no exemplars and no waiting tiles. It ends with the sources of an open
// tile.
func TestStateOfVersion3(t *testing.T) {
	p := &player{t: t, config: testConfig()}
	p.shard = New(p.config, base)
	p.run("window start=1s\ntimer a 7")
	state := p.shard.AppendState(nil)
	shard, err := ParseState(p.config, oldState(p.shard, state[:len(state)-2], 3))
	if err != nil || shard.Raw()["default"] != 1 {
		t.Errorf("%v, %v", shard, err)
	}
}

// A state of version 4 has no waiting tiles and no timed window. The timed window of the
// configuration is used.
func TestStateOfVersion4(t *testing.T) {
	p := &player{t: t, config: testConfig()}
	p.shard = New(p.config, base)
	p.run("window start=1s\ncounter a 7")
	state := p.shard.AppendState(nil)
	shard, err := ParseState(p.config, oldState(p.shard, state[:len(state)-1], 4))
	if err != nil || shard.Raw()["default"] != 1 || shard.timedWindow != 600_000 {
		t.Errorf("%v, %v", shard, err)
	}
}

// In each store, the times of a series only grow: nothing is written twice or out of order.
func TestTimesOfASeriesGrow(t *testing.T) {
	for seed := range uint64(6) {
		p := &player{t: t, config: testConfig()}
		p.shard = New(p.config, base)
		newest := map[string]int64{}
		h := randomHistory(seed)
		for i, w := range h.windows {
			for p.shard.Closed()+12_000 <= base+int64(h.seconds[i])*1000 {
				closed := p.shard.Close(p.shard.Closed()+finest.Millis(), p.config)
				p.shard.AllStored()
				for _, waiting := range closed.Waiting {
					for w, samples := range waiting.Samples {
						for _, s := range samples {
							key := fmt.Sprint(w, s.Series.Labels)
							if s.T <= newest[key] {
								t.Fatalf("seed %d: %s: time %d is not after %d", seed, key, s.T, newest[key])
							}
							newest[key] = s.T
						}
					}
				}
			}
			p.run(w)
		}
	}
}

func TestStateThatWasCutShortIsRefused(t *testing.T) {
	p := &player{t: t, config: testConfig()}
	p.shard = New(p.config, base)
	for _, w := range randomHistory(3).windows[:40] {
		p.run(w)
	}
	state := p.shard.AppendState(nil)
	for n := range state {
		if _, err := ParseState(p.config, state[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes of a state are accepted, want an error", n, len(state))
		}
	}
}

func TestFoldOfKnownSeriesDoesNotAllocate(t *testing.T) {
	p := &player{t: t, config: testConfig()}
	p.shard = New(p.config, base)
	lines := []string{
		"counter c 1", "updown u -1", "gauge g 1", "timer t 1,2 x=4bf92f3577b34da6a3ce929d0e0e4736:2@3.5s", "set s a,b",
		"check k 0",
	}
	p.window(map[string]string{"start": "3s"}, lines)
	sequence := uint64(100)
	h := batch.Header{Tenant: []byte("default"), Producer: 1, Incarnation: 1, Second: base/1000 + 3, UpDown: true}
	b := batch.Begin(nil, &h)
	for _, line := range lines {
		b = p.increment(line, h.Second).Append(b, h.Second)
	}
	batch.End(b, uint32(len(lines)))
	if n := testing.AllocsPerRun(100, func() {
		sequence++
		b[19], b[20] = byte(sequence), byte(sequence>>8) // the header's sequence
		if f, err := p.shard.Fold(b); err != nil || f.Samples != 8 {
			t.Fatal(f, err)
		}
	}); n > 1 { // the tenant's name
		t.Errorf("%v allocations a batch, want at most 1", n)
	}
}

// A fold finds the series of a batch by the order in which the previous batch had them. A removed series
// is not found in that way: it comes back like a new series.
func TestASeriesThatLeftIsNotExpected(t *testing.T) {
	p := &player{t: t, config: testConfig()}
	p.shard = New(p.config, base)
	both := []string{"gauge stays 1", "gauge leaves 1"}
	p.window(map[string]string{"start": "3s"}, both)
	second := 0
	for ; p.shard.Len() > 1; second += 10 {
		if second > 3600 {
			t.Fatal("the series never left")
		}
		p.window(map[string]string{"start": fmt.Sprintf("%ds", second+5)}, both[:1])
		p.close(nil)
	}
	p.window(map[string]string{"start": fmt.Sprintf("%ds", second+5)}, both)
	if out := p.close(nil); p.shard.Len() != 2 || !strings.Contains(out, "leaves") {
		t.Errorf("the shard has %d series, want 2, and a sample of the gauge that left among the stored ones:\n%s",
			p.shard.Len(), out)
	}
}

// The states are small, since the fuzzer minimizes each input that it finds, which takes a minute for a
// large one.
func FuzzParseState(f *testing.F) {
	for _, increment := range []string{
		"counter c 1", "counter d 1 delta=2s", "updown o -1", "gauge g 1", "gauge m 1 source=3 merge=sum",
		"gauge t 1 T=50s", "timer t 3,5 x=a1:5@2s", "timer b 7 bounds=10 x=a2:7@2s", "set s a,b", "check k 2",
	} {
		p := &player{config: testConfig()}
		p.shard = New(p.config, base)
		p.run("window start=3s\n" + increment)
		f.Add(p.shard.AppendState(nil))
		p.shard.Close(p.shard.Closed()+finest.Millis(), p.config) // and waits
		p.run("window start=13s\n" + increment)
		f.Add(p.shard.AppendState(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseState(testConfig(), b)
		if err != nil {
			return
		}
		state := s.AppendState(nil)
		again, err := ParseState(testConfig(), state)
		if err != nil || again.Len() != s.Len() || len(again.Waiting()) != len(s.Waiting()) {
			t.Fatalf("read back: %v", err)
		}
		if !bytes.Equal(again.AppendState(nil), state) {
			t.Fatal("the state has other bytes after it is read and written")
		}
	})
}

// benchmarkLines returns one increment of each of `count` series.
func benchmarkLines(count int) (lines []string) {
	for i := range count {
		kind := []string{"counter", "gauge", "timer"}[i%3]
		lines = append(lines, fmt.Sprintf("%s service_request_duration_of_a_rather_long_route_that_ends_in_%d 12", kind, i))
	}
	return lines
}

// Bound: 400 ns an increment on one core of the CI machine, so a second of 10,000 series costs 4
// ms. Each window has increments for all shards. Most shards are not in a near cache of the CPU, as
// in a process with other work. Tiles close as time passes.
func BenchmarkFold(b *testing.B) {
	const count = 10_000
	var shards [series.Shards]*Shard
	for i := range shards {
		shards[i] = New(testConfig(), base)
	}
	p := &player{config: testConfig()}
	var all []*batch.Increment
	for _, line := range benchmarkLines(count) {
		all = append(all, p.increment(line, base/1000))
	}
	var w batch.Writer
	elsewhere := make([]byte, 4<<20)
	b.ReportAllocs()
	for sequence := uint64(1); b.Loop(); sequence++ {
		b.StopTimer()
		second := base/1000 + int64(sequence)
		for _, s := range shards {
			for s.Closed()+finest.Millis()+2000 <= second*1000 {
				s.Close(s.Closed()+finest.Millis(), testConfig())
				s.AllStored()
			}
		}
		w.Begin(batch.Header{Tenant: []byte("default"), Producer: 1, Incarnation: 1, Sequence: sequence, Second: second})
		for _, inc := range all {
			w.Add(series.Shard("default", inc.Key), inc)
		}
		for i := range elsewhere {
			elsewhere[i]++
		}
		b.StartTimer()
		for _, x := range w.End() {
			if _, err := shards[x.Shard].Fold(x.Bytes); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/increment")
}

// Bound: 1 us a series that has a sample in its tile, on one core of the CI machine. So closing the
// tiles of 100,000 series every 10 s costs 1 % of a core.
func BenchmarkClose(b *testing.B) {
	const count = 10_000
	shard, p := New(testConfig(), base), &player{config: testConfig()}
	var all []*batch.Increment
	for _, line := range benchmarkLines(count) {
		all = append(all, p.increment(line, base/1000))
	}
	b.ReportAllocs()
	for sequence := uint64(1); b.Loop(); sequence++ {
		b.StopTimer()
		h := batch.Header{
			Tenant: []byte("default"), Producer: 1, Incarnation: 1, Sequence: sequence, Second: shard.Closed() / 1000,
		}
		w := batch.Begin(nil, &h)
		for _, inc := range all {
			inc.At = h.Second * 1e9
			w = inc.Append(w, h.Second)
		}
		batch.End(w, count)
		if _, err := shard.Fold(w); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		shard.Close(shard.Closed()+finest.Millis(), testConfig())
		b.StopTimer()
		shard.AllStored()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/series")
}

// Bound: 3 us a series on one core of the CI machine. So a query of 10,000 series waits 30 ms for
// their open tiles.
func BenchmarkLive(b *testing.B) {
	const count = 10_000
	shard, p := New(testConfig(), base), &player{config: testConfig()}
	p.shard = shard
	lines := benchmarkLines(count)
	p.window(map[string]string{"start": "3s"}, lines)
	p.close(map[string]string{"quiet": ""})
	for _, start := range []string{"13s", "21s", "22s"} {
		p.window(map[string]string{"start": start}, lines)
	}
	for _, until := range []int64{23_000, 22_000} {
		b.Run(fmt.Sprintf("until=%ds", until/1000), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if n := len(shard.Live("default", Width10s, base+23_000, base+until, nil)); n != count {
					b.Fatal(n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/series")
		})
	}
}

// Bound: 1 us a series. So a checkpoint of 100,000 series, written every 5 min, takes 0.1 s of a
// core.
func BenchmarkAppendState(b *testing.B) {
	const count = 10_000
	p := &player{config: testConfig()}
	p.shard = New(p.config, base)
	lines := benchmarkLines(count)
	p.window(map[string]string{"start": "3s"}, lines)
	b.ReportAllocs()
	var state []byte
	for b.Loop() {
		state = p.shard.AppendState(state[:0])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/series")
}
