package querier

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/tile"
)

func TestResolution(t *testing.T) {
	const (
		day   = 24 * time.Hour
		never = time.Duration(math.MaxInt64)
	)
	usual := [tile.NumWidths]time.Duration{tile.Width10s: 2 * day, tile.Width1m: 40 * day}
	now := time.UnixMilli(1_700_000_000_000)
	for _, c := range []struct {
		why       string
		step, rng time.Duration // from the hints; step is 0 for an instant query, rng for an instant selector
		age       time.Duration // how long ago the query starts
		lookback  time.Duration
		retention [tile.NumWidths]time.Duration
		want      tile.Width
	}{
		{why: "an instant query reads the newest samples", age: time.Hour, want: tile.Width10s},
		{why: "an instant query over a long range does, too", rng: day, age: day, want: tile.Width10s},
		{why: "a range query whose steps are shorter than the coarse tiles", step: 15 * time.Second, age: time.Hour,
			want: tile.Width10s},
		{why: "steps that are shorter than all tiles", step: time.Second, age: time.Hour, want: tile.Width10s},
		{why: "a tile for each step", step: time.Minute, age: time.Hour, want: tile.Width1m},
		{why: "steps one millisecond too short", step: time.Minute - time.Millisecond, age: time.Hour, want: tile.Width10s},
		{why: "four tiles for each range", step: time.Minute, rng: 4 * time.Minute, age: time.Hour, want: tile.Width1m},
		{why: "almost four tiles for each range", step: time.Minute, rng: 4*time.Minute - time.Millisecond, age: time.Hour,
			want: tile.Width10s},
		{why: "long steps do not make a short range coarse", step: time.Hour, rng: time.Minute, age: day,
			want: tile.Width10s},
		{why: "the range of an instant selector is the look-back delta", step: time.Minute, lookback: 3 * time.Minute,
			age: time.Hour, want: tile.Width10s},

		{why: "at the very end of the retention", age: 2 * day, want: tile.Width10s},
		{why: "an instant query beyond the retention of 10s", age: 2*day + time.Millisecond, want: tile.Width1m},
		{why: "a range query beyond the retention of 10s", step: time.Second, age: 3 * day, want: tile.Width1m},
		{why: "beyond all retentions, the width that is kept longest", age: 41 * day, want: tile.Width1m},
		{why: "from the beginning of time, as for endpoints without a start", age: never, want: tile.Width1m},
		{why: "the future is within every retention", age: -time.Hour, want: tile.Width10s},
		{why: "a configuration that keeps the finer tiles for longer", step: time.Hour, age: 3 * day,
			retention: [tile.NumWidths]time.Duration{tile.Width10s: 40 * day, tile.Width1m: 2 * day}, want: tile.Width10s},
		{why: "beyond both retentions", step: time.Hour, age: 41 * day,
			retention: [tile.NumWidths]time.Duration{tile.Width10s: 40 * day, tile.Width1m: 2 * day}, want: tile.Width10s},
		{why: "the finest of the widths that are kept equally long", age: 41 * day,
			retention: [tile.NumWidths]time.Duration{tile.Width10s: 40 * day, tile.Width1m: 40 * day}, want: tile.Width10s},
	} {
		if c.retention == [tile.NumWidths]time.Duration{} {
			c.retention = usual
		}
		if c.lookback == 0 {
			c.lookback = 5 * time.Minute
		}
		hints := &storage.SelectHints{
			Step: c.step.Milliseconds(), Range: c.rng.Milliseconds(), Start: now.Add(-c.age).UnixMilli(),
		}
		if c.age == never {
			hints.Start = math.MinInt64
		}
		if got := resolution(hints, c.lookback, now, c.retention); got != c.want {
			t.Errorf("%s: %v; want %v", c.why, got, c.want)
		}
	}
}
