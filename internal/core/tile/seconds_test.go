package tile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// For any second of an open tile, a query gets the same answer as when that second was the last complete
// one, although more seconds have come since. That also holds if only this shard has a later second and
// other shards lack it. An earlier program returned 109 for rate(x[20s]) in that case, for a rate of 100
// a second.
func TestAnySecondOfAnOpenTile(t *testing.T) {
	seconds, atLeast := 100, 1000 // questions
	if testing.Short() {
		seconds, atLeast = 40, 300
	}
	for seed := range seeds(2) {
		rng := rand.New(rand.NewPCG(seed, 7))
		p := &player{t: t, config: testConfig()}
		p.shard = New(p.config, base)
		was := map[string][]string{} // by width and second: the answer while it was the last second
		asked := 0
		for second := 1; second <= seconds; second++ {
			for producer := range 2 {
				p.run(fmt.Sprintf("window start=%ds producer=%d\n%s",
					second-1, producer+1, strings.Join(increments(rng, second-1, producer), "\n")))
			}
			for w := range Width(NumWidths) {
				was[fmt.Sprint(w, second)] = p.at(w, second, base+int64(second)*1000)
			}
			for s := second - 1; base+int64(s)*1000 > p.shard.Closed(); s-- {
				for w := range Width(NumWidths) {
					asked++
					got, want := p.at(w, second, base+int64(s)*1000+rng.Int64N(1000)), was[fmt.Sprint(w, s)]
					if !slices.Equal(got, want) {
						t.Fatalf("seed %d, width %v: at %d s, a query that ends at %d s returns\n%s\nwant the answer "+
							"of that second:\n%s",
							seed, w, second, s, strings.Join(got, ""), strings.Join(want, ""))
					}
					if got := p.at(w, s, base+int64(second)*1000); !slices.Equal(got, want) {
						t.Fatalf("seed %d, width %v: %d s are folded here and %d s everywhere: got\n%s\nwant the "+
							"answer with %[4]d s here:\n%s",
							seed, w, second, s, strings.Join(got, ""), strings.Join(want, ""))
					}
				}
			}
			for p.shard.Closed()+finest.Millis()+4000 <= base+int64(second)*1000 {
				p.close(nil)
			}
		}
		if asked < atLeast {
			t.Fatalf("asked %d times", asked)
		}
	}
}

// at returns the live samples, sorted, at the last second up to `until` that all shards have folded.
// `second` is the last second that they have folded.
func (p *player) at(w Width, second int, until int64) (lines []string) {
	last := min(int64(second)*1000, until-until%1000-base)
	for line := range strings.Lines(p.live(map[string]string{
		"stamp": fmt.Sprintf("%ds", second), "until": fmt.Sprintf("%dms", until-base), "width": w.String()})) {
		if strings.Contains(line, "@"+(time.Duration(last)*time.Millisecond).String()+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// increments returns the increments of one producer in a second, of all kinds.
func increments(rng *rand.Rand, second, producer int) (lines []string) {
	for n := range 4 {
		if rng.IntN(3) == 0 {
			continue
		}
		v := rng.IntN(100)
		lines = append(lines,
			fmt.Sprintf("counter c%d %d.%d", n, v, rng.IntN(10)),
			fmt.Sprintf("gauge g%d %d at=%d.%03ds", n, v, second, rng.IntN(1000)),
			fmt.Sprintf("gauge r%d %d change", n, v-50),
			fmt.Sprintf("gauge m%d %d source=%d merge=sum", n, v, producer+1),
			fmt.Sprintf("timer t%d %d,%d x=1:%d@%ds", n, v+1, rng.IntN(1000)+1, v, second),
			fmt.Sprintf("timer b%d %d bounds=10,50", n, v),
			fmt.Sprintf("set s%d v%d,v%d", n, v, rng.IntN(50)),
			fmt.Sprintf("check k%d %d", n, v%4))
	}
	return lines
}

// The memory for queries of earlier seconds is bounded, and reused from tile to tile. Beyond the bound,
// queries see open tiles as they are now.
func TestLogOfAnOpenTileIsBounded(t *testing.T) {
	p := &player{t: t, config: testConfig()}
	p.shard = New(p.config, base)
	var lines []string
	for n := range 100 {
		lines = append(lines, fmt.Sprintf("counter c%d 1.25", n))
	}
	size := func() (n int) {
		for _, l := range p.shard.seconds.tiles {
			n += cap(l.b)
		}
		return n + cap(p.shard.seconds.spare)
	}
	window := func(second int) { p.window(map[string]string{"start": fmt.Sprintf("%ds", second)}, lines) }
	window(2)
	if got := p.at(Width10s, 5, base+4000); len(got) != 100 {
		t.Fatalf("at 4 s, %d series are known, want 100", len(got))
	}
	for p.shard.seconds.tiles[1].end != 0 && len(p.shard.seconds.tiles[1].b) <= maxTrail {
		window(3)
	}
	window(4)
	if got := p.at(Width10s, 9, base+4000); len(got) != 0 {
		t.Errorf("beyond the bound, %d series are known at 4 s, want 0", len(got))
	}
	if got := p.at(Width10s, 9, base+9000); len(got) != 100 {
		t.Errorf("at 9 s, %d series are known, want 100", len(got))
	}
	if size() > 2*maxTrail {
		t.Errorf("%d bytes are kept", size())
	}
	for second := 10; second < 200; second += 10 {
		p.close(nil)
		window(second + 1)
	}
	if size() > maxTrail/4 {
		t.Errorf("long after the flood, %d bytes are kept, want at most %d", size(), maxTrail/4)
	}
}
