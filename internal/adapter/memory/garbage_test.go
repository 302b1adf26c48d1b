//go:build linux

package memory

import "testing"

func TestGarbage(t *testing.T) {
	g := Garbage{Percent: 25, Most: 16 << 20}
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
		if got := g.percent(c.live << 20); got != c.want {
			t.Errorf("with %d MiB live: got %d %%, want %d %%", c.live, got, c.want)
		}
	}
}
