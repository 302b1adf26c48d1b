package querier

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// rate(x[1m]) over three days used to be empty without a reason: tiles of 10 s are kept for two days,
// and a range of a minute has only one tile of a minute.
func TestARangeWithTooFewTilesIsNoted(t *testing.T) {
	w := newWorld(t, "remote@-240=1 remote@-180=2 remote@-120=3")
	w.write(tenant.Default, tile.Width1m, "x@-300=1 x@-240=2 x@-180=3 x@-120=4")
	w.write(tenant.Default, tile.Width10s, "x@-130=3.8 x@-120=4")
	w.opened(tile.Width1m, "new@-10=1")
	engine := promapi.NewEngine(promapi.DefaultConfig(), promapi.Memory{Bytes: 1 << 30, Of: "this test"},
		slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	const note = "PromQL info: too few tiles in a range: the query reads tiles of 1m, because tiles of 10s are " +
		"kept only for 2d (store.retention.10s); " +
		"rate needs two tiles, but a range of 1m holds one; ask for a range of 4m or more, or for a later start"
	for _, c := range []struct {
		why, query string
		back       time.Duration
		want       string
	}{
		{"three days", "rate(x[1m])", 72 * time.Hour, note},
		{"inside of another expression", "sum(rate(x[1m])) * 2", 72 * time.Hour, note},
		{"nothing is stored yet", "rate(new[1m])", 72 * time.Hour, note},
		{"a range that has two tiles", "rate(x[2m])", 72 * time.Hour, ""},
		{"a function that needs one tile", "max_over_time(x[1m])", 72 * time.Hour, ""},
		{"tiles of 10 s are kept", "rate(x[1m])", time.Hour, ""},
		{"samples that are not from tiles", "rate(remote[1m])", 72 * time.Hour, ""},
		{"an anchored range also reads a tile before it", "increase(x[1m] anchored)", 72 * time.Hour, ""},
	} {
		end := time.UnixMilli(now)
		q, err := engine.NewRangeQuery(ctx, w.Queryable, nil, c.query, end.Add(-c.back), end, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		result := q.Exec(ctx)
		if result.Err != nil {
			t.Errorf("%s: %v", c.why, result.Err)
		}
		warnings, infos := result.Warnings.AsStrings(c.query, 0, 0)
		if got := strings.Join(infos, "\n"); len(warnings) > 0 || got != c.want {
			t.Errorf("%s: %q %q\nwant %q", c.why, warnings, got, c.want)
		}
		q.Close()
	}
}
