package tile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/freshet-io/freshet/internal/core/batch"
)

// producers is how many processes make batches in canonicalSeconds.
const producers = 3

// canonicalSeconds returns the increments of three tenants for each second, by producer. Their
// order of arrival does not matter: sums are whole numbers, and each gauge and exemplar has its own
// time. Some increments come late, and some are ahead.
func canonicalSeconds(seed uint64, seconds int) (all [][producers][]string) {
	rng := rand.New(rand.NewPCG(seed, 11))
	for second := range seconds {
		var of [producers][]string
		for from := range of {
			for n := range 12 {
				if rng.IntN(3) == 0 || second > 130 && second < 480 && rng.IntN(60) > 0 {
					continue
				}
				at := second*1000 + from*100 + n // all different
				of[from] = append(of[from], []string{
					fmt.Sprintf("counter same%d %d", n, rng.IntN(100)),
					fmt.Sprintf("gauge same%d %d at=%dms", n, rng.IntN(100), at),
					fmt.Sprintf("counter c%d %d T=%ds", n, rng.IntN(100), second-rng.IntN(40)),
					fmt.Sprintf("updown o%d %d,%d", n, rng.IntN(100)-50, rng.IntN(100)-50),
					fmt.Sprintf("gauge m%d %d source=%d merge=sum at=%dms", n, rng.IntN(100), from+1, at),
					fmt.Sprintf("gauge stamped%d-%d %d T=%ds", n, from, rng.IntN(100), second),
					fmt.Sprintf("timer t%d %d,%d x=%x:1@%dms", n, rng.IntN(1000), rng.IntN(10), n+1, at),
					fmt.Sprintf("timer b%d %d bounds=10,50 x=%x:%d@%dms", n, rng.IntN(100), n+1, rng.IntN(100), at),
					fmt.Sprintf("set s%d v%d,v%d", n, rng.IntN(50), rng.IntN(50)),
					fmt.Sprintf("set large %s", values(rng, 60)),
					fmt.Sprintf("check k%d %d at=%dms", n, rng.IntN(4), at),
				}[rng.IntN(11)])
			}
		}
		all = append(all, of)
	}
	return all
}

// values returns n values of a set. They are most likely distinct.
func values(rng *rand.Rand, n int) string {
	list := fmt.Sprintf("v%d", rng.IntN(100_000))
	for range n - 1 {
		list += fmt.Sprintf(",v%d", rng.IntN(100_000))
	}
	return list
}

// canonicalRun feeds a shard, and returns its state and output after each tile. rng chooses the order of
// batches, their grouping, and restarts. Without rng, everything keeps its order, and nothing restarts.
func canonicalRun(t *testing.T, all [][producers][]string, rng *rand.Rand) (states [][]byte, out []string) {
	tenants := []string{"a", "default", "z"}
	p := &player{t: t, config: testConfig()}
	p.shard = New(p.config, base)
	var pending [][]byte
	for second, of := range all {
		for from, lines := range of {
			lines = slices.Clone(lines)
			parts := 1
			if rng != nil {
				rng.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
				parts += rng.IntN(3)
			}
			for n, tenant := range tenants {
				for part := range parts {
					// The last part always has the same sequence number, however many parts there are.
					h := batch.Header{Tenant: []byte(tenant), Producer: uint64(10*n + from + 1), Incarnation: 7,
						Sequence: uint64(second*10 + 9 - (parts - 1 - part)), Second: base/1000 + int64(second), UpDown: true}
					b := batch.Begin(nil, &h)
					mine := lines[len(lines)*part/parts : len(lines)*(part+1)/parts]
					for _, line := range mine {
						b = p.increment(line, h.Second).Append(b, h.Second)
					}
					batch.End(b, uint32(len(mine)))
					pending = append(pending, b)
				}
			}
		}
		closes := (second+1)%10 == 4
		if rng != nil && rng.IntN(3) == 0 && !closes { // these batches come with the batches of the next second
			continue
		}
		pending = p.foldAll(t, pending, rng)
		if !closes {
			continue
		}
		for p.shard.Closed()+12_000 <= base+int64(second+1)*1000 {
			closed := p.shard.Close(p.shard.Closed()+finest.Millis(), p.config)
			for _, waiting := range closed.Waiting {
				for w, samples := range waiting.Samples {
					for _, s := range samples {
						what := describe(s.Series.Labels, Point{s.T, s.V, s.H})
						out = append(out, fmt.Sprint(waiting.Tenant, Width(w), what, s.Raw, s.Timed, s.Exemplar))
					}
				}
			}
			if p.shard.Closed()%30_000 == 0 { // the stores of one tenant are slow
				p.shard.AllStored()
			} else {
				p.shard.Stored("default", p.shard.Closed())
			}
			states = append(states, p.shard.AppendState(nil))
			if rng != nil && rng.IntN(4) == 0 {
				p.run("restart")
			}
		}
	}
	return states, out
}

// foldAll folds batches. With rng, it first mixes batches of different producers.
func (p *player) foldAll(t *testing.T, pending [][]byte, rng *rand.Rand) (none [][]byte) {
	t.Helper()
	if rng != nil {
		slices.SortStableFunc(pending, func(a, b []byte) int { return int(b[3]) - int(a[3]) }) // by process
		for range 100 {
			if i := rng.IntN(len(pending)); i > 0 && pending[i][3] != pending[i-1][3] {
				pending[i], pending[i-1] = pending[i-1], pending[i]
			}
		}
	}
	for _, b := range pending {
		if f, err := p.shard.Fold(b); err != nil || f.Again > 0 {
			t.Fatal(f, err)
		}
	}
	return nil
}

// Two machines with the same input have the same bytes, and hand out the same samples in the same
// order. This does not depend on the order of batches within a tile, the grouping of increments
// into batches, restarts, or the seeds of maps.
func TestSameInputGivesSameBytes(t *testing.T) {
	for seed := range seeds(3) {
		all := canonicalSeconds(seed, 560)
		want, wantOut := canonicalRun(t, all, nil)
		waiting := 0
		for range 3 {
			got, out := canonicalRun(t, all, nil)
			compareStates(t, seed, "the same again", want, got)
			if !slices.Equal(out, wantOut) {
				t.Fatalf("seed %d, the same input again: the samples or their order differ", seed)
			}
		}
		for other := range uint64(3) {
			got, out := canonicalRun(t, all, rand.New(rand.NewPCG(seed, 12+other)))
			compareStates(t, seed, "another order", want, got)
			if !slices.Equal(out, wantOut) {
				t.Fatalf("seed %d, another order: the samples or their order differ", seed)
			}
		}
		for i, state := range want {
			shard, err := ParseState(testConfig(), state)
			if err != nil {
				t.Fatal(err)
			}
			waiting += len(shard.Waiting())
			if again := shard.AppendState(nil); !bytes.Equal(again, state) {
				t.Fatalf("seed %d: state %d has other bytes after it was read and written again", seed, i)
			}
		}
		if len(want) < 50 || waiting < 50 {
			t.Fatalf("seed %d: %d states, in which %d tiles wait, want at least 50 of each", seed, len(want), waiting)
		}
	}
}

func compareStates(t *testing.T, seed uint64, how string, want, got [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("seed %d, %s: the run has %d states, want %d", seed, how, len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("seed %d, %s: state %d has %d bytes and differs from the wanted one, which has %d",
				seed, how, i, len(got[i]), len(want[i]))
		}
	}
}
