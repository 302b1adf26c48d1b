//go:build go1.25

package client

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestModel runs random sequences of calls, mixed with faults of the server and the network. In the end
// the server has every value once, and the client's counts agree. A failure prints its seed.
// FRESHET_SOAK=1 runs more sequences.
func TestModel(t *testing.T) {
	seeds := uint64(40)
	if os.Getenv("FRESHET_SOAK") != "" {
		seeds = 10_000
	}
	for seed := range seeds {
		for _, network := range []string{udp, unixgram, unix} {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, seed))
				w := &wire{network: network}
				w.accepts = func(n int) int { return n }
				c := startOn(t, w, Options{MaxSeries: 30, PacketBytes: minPacket, MaxValues: 1 << 20, MaxBytes: 1 << 30})
				sums, gauges, members := map[string]float64{}, map[string]float64{}, map[string]map[string]bool{}
				calls := 0
				for range 300 {
					tag := fmt.Sprint("n:", rnd.IntN(6)) // six series of each of four kinds; MaxSeries has room for them
					switch rnd.IntN(12) {
					case 0, 1, 2:
						n := float64(rnd.IntN(5))
						c.Count("c", n, tag)
						sums["c c "+tag] += n
						calls++
					case 3:
						v := rnd.NormFloat64()
						c.Gauge("g", v, tag)
						gauges["g g "+tag] = v
						calls++
					case 4, 5:
						n := rnd.IntN(1 << rnd.IntN(9))
						for i := range n {
							c.Histogram("h", float64(i), tag)
							sums["h h "+tag] += float64(i)
						}
						calls += n
					case 6:
						m := fmt.Sprint(rnd.IntN(100))
						c.Set("s", m, tag)
						if members["s s "+tag] == nil {
							members["s s "+tag] = map[string]bool{}
						}
						members["s s "+tag][m] = true
						calls++
					case 7:
						w.set(func(w *wire) { w.down = !w.down })
					case 8:
						w.set(func(w *wire) { w.blocked = !w.blocked })
					case 9: // the stream accepts some bytes at a time, or none
						most := rnd.IntN(600)
						w.set(func(w *wire) { w.accepts = func(n int) int { return min(n, most) } })
					default:
						time.Sleep(time.Duration(rnd.Int64N(int64(3 * time.Second))))
					}
				}
				w.set(func(w *wire) { w.down, w.blocked, w.accepts = false, false, nil })
				// Another flush may be in progress, and some values may have come after it began. So flush twice.
				flush(t, c)
				flush(t, c)
				got := parse(t, w.take())
				for key, want := range sums {
					if sum := got.sum(key); sum != want {
						t.Errorf("%s: got %v, want %v", key, sum, want)
					}
				}
				for key, want := range gauges {
					if got[key] == nil || got[key].gauge != want {
						t.Errorf("%s: got %+v, want %v", key, got[key], want)
					}
				}
				for key, want := range members {
					if got[key] == nil || !maps.Equal(want, setOf(got[key].members)) {
						t.Errorf("%s: got %+v, want %v", key, got[key], slices.Sorted(maps.Keys(want)))
					}
				}
				if s := checkStats(t, c, calls); s.Sent != s.Calls || s.Held != 0 {
					t.Errorf("unexpected counts: %+v", s)
				}
				if t.Failed() {
					t.Fatalf("%s: failed with the seed %d", network, seed)
				}
			})
		}
	}
}

func setOf(members []string) map[string]bool {
	set := map[string]bool{}
	for _, m := range members {
		set[m] = true
	}
	return set
}
