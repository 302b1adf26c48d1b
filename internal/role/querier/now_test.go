package querier

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/changes"
	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// server is a querier in a process, on a clock that the test sets. The process has a shard of tiles, the
// stores, the querier and the engine. Times are in Unix ms.
type server struct {
	t      *testing.T
	now    int64
	delay  int64 // ms from the end of a window until it is folded
	close  int64 // ms from the end of a tile until it is closed and stored
	window func(second int64) []batch.Increment

	config *tile.Config
	shard  *tile.Shard
	shards *tile.Shards // have the shard
	folded int64        // the end of the last window
	closed int64        // the last boundary
	stores *tsdb.Stores
	engine *promapi.Engine
	*Queryable
}

// started returns a server whose first window begins at `now`.
func started(t *testing.T, delay, closeAfter time.Duration, window func(second int64) []batch.Increment) *server {
	config := &tile.Config{
		CounterTTL: 5 * time.Minute, GaugeTTL: 5 * time.Minute, CheckTTL: time.Hour, OutOfOrder: 10 * time.Minute,
	}
	s := &server{t: t, now: now, delay: delay.Milliseconds(), close: closeAfter.Milliseconds(), window: window,
		config: config, shard: tile.New(config, now), folded: now, closed: now, shards: tile.NewShards(config)}
	s.shards.Begin(0, s.shard)
	clock := func() time.Time { return time.UnixMilli(s.now) }
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	var err error
	if s.stores, err = tsdb.Open(tsdb.DefaultConfig(), t.TempDir(), clock, prometheus.NewRegistry(), logger); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stores.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s.engine = promapi.NewEngine(promapi.DefaultConfig(), promapi.Memory{Bytes: 1 << 30, Of: "this test"}, logger,
		prometheus.NewRegistry())
	s.Queryable = New(s.stores, s, 5*time.Minute, clock)
	return s
}

func (s *server) Replayed(context.Context, string) error { return nil }
func (s *server) Current(context.Context, string) error  { return nil }

func (s *server) Changes(tenant string) *changes.Log { return s.shards.Changes(tenant) }
func (s *server) FinalBefore(tenant string) int64    { return s.shards.FinalBefore(tenant, s.folded) }

// Live answers like the aggregator's Live.
func (s *server) Live(name string, w tile.Width, mint, maxt int64, matchers []*labels.Matcher) ([]tile.Live, error) {
	open := openTiles{tenant: name, live: map[tile.Width][]tile.Live{
		w: s.shard.Live(name, w, s.folded, maxt, matchers),
	}}
	return open.Live(name, w, mint, maxt, matchers)
}

// until advances the clock to `ms`.
func (s *server) until(ms int64) {
	for ; s.now <= ms; s.now += 50 {
		for s.closed+10_000+s.close <= s.now {
			s.closeTile()
		}
		for s.folded+1000+s.delay <= s.now {
			s.fold()
		}
	}
	s.now = ms
}

func (s *server) fold() {
	h := batch.Header{
		Tenant: []byte(tenant.Default), Producer: 1, Incarnation: 1, Sequence: uint64(s.folded), Second: s.folded / 1000,
	}
	b := batch.Begin(nil, &h)
	increments := s.window((s.folded - now) / 1000)
	for i := range increments {
		b = increments[i].Append(b, h.Second)
	}
	batch.End(b, uint32(len(increments)))
	if _, _, err := s.shards.Fold(0, b); err != nil {
		s.t.Fatal(err)
	}
	s.folded += 1000
}

func (s *server) closeTile() {
	s.closed += 10_000
	for _, closed := range s.shards.CloseUpTo(0, 1, s.closed, s.config)[0].Waiting {
		for w, samples := range closed.Samples {
			if written, err := s.stores.WriteTiles(context.Background(), closed.Tenant, tile.Width(w), samples); err != nil ||
				written.Stored.Samples+written.Refused[tile.Duplicate].Samples != len(samples) {
				s.t.Fatalf("%+v, %v", written, err)
			}
		}
	}
	s.shard.AllStored()
}

// ask returns the single value of an expression. If `step` is not zero, ask sends a range query, and
// returns the value at the last step.
func (s *server) ask(expr string, at int64, step time.Duration) float64 {
	s.t.Helper()
	end := time.UnixMilli(at)
	q, err := s.engine.NewInstantQuery(ctx, s, nil, expr, end)
	if step > 0 {
		q, err = s.engine.NewRangeQuery(ctx, s, nil, expr, end.Add(-4*step), end, step)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer q.Close()
	result := q.Exec(ctx)
	if result.Err != nil {
		s.t.Fatalf("%s: %v", expr, result.Err)
	}
	switch v := result.Value.(type) {
	case promql.Vector:
		if len(v) == 1 && v[0].H == nil {
			return v[0].F
		}
	case promql.Matrix:
		if len(v) == 1 && len(v[0].Floats) > 0 && v[0].Floats[len(v[0].Floats)-1].T == at {
			return v[0].Floats[len(v[0].Floats)-1].F
		}
	}
	return math.NaN()
}

// constant sends the same samples each second, so that the quantiles stay the same: 100 requests, and
// 100 values of a timer, of which 99 are 1 and one is 8.
func constant(int64) []batch.Increment {
	key := func(k series.Kind, name string) []byte {
		return series.AppendKey(nil, k, labels.FromStrings("__name__", name))
	}
	native, classic := series.DefaultPolicy, series.DefaultPolicy
	classic.Bounds = []float64{1, 8}
	timer := new(histogram.Exponential)
	timer.Reset(native.Schema)
	timer.Observe(1, 99, int(native.MaxBuckets))
	timer.Observe(8, 1, int(native.MaxBuckets))
	return []batch.Increment{
		{Key: key(series.Counter, "requests_total"), Policy: series.AppendPolicy(nil, &native), Samples: 100, Value: 100},
		{Key: key(series.Timer, "native"), Policy: series.AppendPolicy(nil, &native), Samples: 100, Timer: timer},
		{Key: key(series.Timer, "classic"), Policy: series.AppendPolicy(nil, &classic), Samples: 100,
			Classic: []float64{99, 1, 0}, Sum: 107},
	}
}

// At any time of a query, rate returns the constant rate of a counter. Prometheus extrapolates by the
// mean distance between samples. A live sample, which may be anywhere in a tile, made this distance
// shorter: in the second after each tile's end, rate(x[20s]) was 69 instead of 100, and rate(x[40s]) was
// 87.
func TestRateOfAConstant(t *testing.T) {
	const tolerance = 0.01
	pause := int64(250)
	if testing.Short() {
		pause = 1750 // has all quarters of a second, too
	}
	for _, c := range []struct {
		why                       string
		delay, closeAfter, behind time.Duration
	}{
		{"windows are folded at once, tiles are closed early", 0, 2 * time.Second, 0},
		{"windows are folded late, tiles are closed late", 900 * time.Millisecond, 6 * time.Second, 0},
		{"a query for a time before now", 400 * time.Millisecond, 3 * time.Second, 1500 * time.Millisecond},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			s := started(t, c.delay, c.closeAfter, constant)
			for at := int64(now + 400_000); at < now+460_000; at += pause {
				s.until(at)
				for _, r := range []string{"20s", "30s", "40s", "1m", "2m", "3m", "5m"} {
					for _, law := range []struct {
						expr string
						want float64
					}{
						{"rate(requests_total[%s])", 100},
						{"delta(requests_total[%s])", 100 * seconds(r)},
						{"rate(classic_bucket{le='1'}[%s])", 99},
						{"histogram_sum(increase(native[%s]))", 107 * seconds(r)},
						{"histogram_quantile(0.5, rate(native[%s]))", math.Exp2(-0.5 / 8)},
					} {
						expr := fmt.Sprintf(law.expr, r)
						for _, step := range steps(r) {
							if got := s.ask(expr, at-c.behind.Milliseconds(), step); !(math.Abs(got-law.want) <= tolerance*law.want) {
								t.Errorf("%s with step %v, %.2f s into a minute, is %.3f; want %.3f",
									expr, step, float64(at%60_000)/1000, got, law.want)
							}
						}
					}
				}
				// The querier treats each step after the newest sample as a last step. So the smallest
				// and the largest rate over these steps must be right, too.
				for _, expr := range []string{"min_over_time(rate(requests_total[40s])[15s:250ms])",
					"max_over_time(rate(requests_total[40s])[15s:250ms])"} {
					if got := s.ask(expr, at-c.behind.Milliseconds(), 0); !(math.Abs(got-100) <= 1) {
						t.Errorf("%s, %.2f s into a minute, is %.3f; want 100", expr, float64(at%60_000)/1000, got)
					}
				}
			}
		})
	}
}

// A range with one tile has no rate at any step. At the last step, it used to have a rate of 40 to 97 in
// place of 100, which came from the tile's end and the live sample.
func TestNoRateOfOneTile(t *testing.T) {
	s := started(t, 400*time.Millisecond, 2*time.Second, constant)
	for at := int64(now + 400_000); at < now+460_000; at += 250 {
		s.until(at)
		for _, expr := range []string{"rate(requests_total[1m])",
			"increase(classic_bucket{le='1'}[1m])", "histogram_sum(rate(native[1m]))", "irate(requests_total[1m])"} {
			if got := s.ask(expr, at, 13*time.Hour); !math.IsNaN(got) {
				t.Errorf("%s, %.2f s into a minute, is %g; want no value", expr, float64(at%60_000)/1000, got)
			}
		}
		if got, want := s.ask("max_over_time(requests_total[1m])", at, 13*time.Hour),
			float64((s.folded-now)/10); got != want {
			t.Errorf("the newest value, %.2f s into a minute, is %g; want %g", float64(at%60_000)/1000, got, want)
		}
	}
}

// bursts sends a counter, a timer, a gauge and two users. The values show in which seconds they were
// sent.
func bursts(second int64) []batch.Increment {
	key := func(k series.Kind, name string) []byte {
		return series.AppendKey(nil, k, labels.FromStrings("__name__", name))
	}
	policy := series.AppendPolicy(nil, &series.DefaultPolicy)
	timer := new(histogram.Exponential)
	timer.Reset(series.DefaultPolicy.Schema)
	timer.Observe(float64(second*second), 1, int(series.DefaultPolicy.MaxBuckets))
	users := new(distinct.Set)
	users.Add(distinct.Hash([]byte(fmt.Sprint(second))))
	users.Add(distinct.Hash([]byte("root")))
	return []batch.Increment{
		{Key: key(series.Counter, "bytes_total"), Policy: policy, Samples: 1, Value: float64(second * second)},
		{Key: key(series.Timer, "sizes"), Policy: policy, Samples: 1, Timer: timer},
		{Key: key(series.Gauge, "size"), Policy: policy, Samples: 1, Value: float64(second * second),
			At: now*1e6 + second*1e9},
		{Key: key(series.Set, "users"), Policy: policy, Samples: 2, Set: users},
	}
}

// Dashboards round the time of a query down, to at most 2 s before now. Then the sample of the open tile
// was newer than the query's time, so queries used to return the end of the last tile, up to 9 s old.
func TestEachSecondThatWasCompleteIsSeen(t *testing.T) {
	const delay, closeAfter = 300 * time.Millisecond, 2 * time.Second
	pause := int64(250)
	if testing.Short() {
		pause = 1750
	}
	s := started(t, delay, closeAfter, bursts)
	for at := int64(now + 100_000); at < now+160_000; at += pause {
		s.until(at)
		for behind := int64(0); behind <= 2000; behind += 250 {
			// second is the last second that was complete at the time of the query and is already
			// folded.
			second := min(at-behind, at-delay.Milliseconds())/1000 - now/1000 - 1
			n := second + 1
			sum := float64(second*n*(2*second+1)) / 6
			// users is the number of users in this tile: one for each second since the tile's start, and
			// the user root.
			users := float64(second%10 + 2)
			for expr, want := range map[string]float64{
				"bytes_total":                         sum,
				"histogram_sum(sizes)":                sum,
				"histogram_count(sizes)":              float64(n),
				"size":                                float64(second * second),
				"users":                               users,
				"time() - timestamp(size)":            float64((at-behind)%1000)/1000 + float64((at-behind)/1000-now/1000-n),
				"last_over_time(bytes_total[1m])":     sum,
				"increase(bytes_total[90s] anchored)": sum - sumUntil((at-behind-90_000-now)/10_000*10),
			} {
				for _, step := range []time.Duration{0, 15 * time.Second} {
					if got := s.ask(expr, at-behind, step); !(math.Abs(got-want) < 1e-6) {
						t.Fatalf("%s with step %v, asked %.2f s after the start for a time %.2f s earlier, is %g; "+
							"want %g",
							expr, step, float64(at-now)/1000, float64(behind)/1000, got, want)
					}
				}
			}
		}
	}
}

// A table in docs/tiles.md shows which time is covered by the increase over an anchored range of 5 min.
// This test checks the table.
func TestAnchoredIncreaseIsOver(t *testing.T) {
	const start = 2*60 + 30
	s := started(t, 300*time.Millisecond, 2*time.Second, constant)
	for _, c := range []struct {
		asked, at float64 // s after the start
		until     int64
	}{
		{453.6, 453.6, 453},
		{453.6, 450, 450},
		{900, 453.6, 450},
		{900, 450, 450},
	} {
		s.until(now + int64(c.asked*1000))
		for _, step := range []time.Duration{0, 10 * time.Second} {
			if got, want := s.ask("increase(requests_total[5m] anchored)", now+int64(c.at*1000), step),
				float64(100*(c.until-start)); got != want {
				t.Errorf("a query, asked at %g s for the time %g s with step %v, returns %g; want %g",
					c.asked, c.at, step, got, want)
			}
		}
	}
}

// sumUntil returns the total that the counter of `bursts` has before the given second.
func sumUntil(second int64) float64 { return float64((second-1)*second*(2*second-1)) / 6 }

// steps returns the steps with which the tests query a range. The step 0 stands for an instant query.
// With a step of 13 h, the query begins more than two days ago, where tiles of a minute answer. There,
// only a range with two such tiles has a rate.
func steps(r string) []time.Duration {
	if seconds(r) < 120 {
		return []time.Duration{0, 3 * time.Second, time.Minute}
	}
	return []time.Duration{0, time.Minute, 13 * time.Hour}
}

func seconds(r string) float64 {
	d, err := time.ParseDuration(r)
	if err != nil {
		panic(err)
	}
	return d.Seconds()
}

// A window may be counted while a query runs. Series that are not in chunks, as histograms, are then selected again,
// with later live samples.
func TestRateWhileAWindowIsCounted(t *testing.T) {
	for second := range int64(10) {
		s := started(t, 300*time.Millisecond, 3*time.Second, constant)
		s.until(now + 600_000 + 1000*second)
		counting := *s.Queryable
		counting.open = &countsOnce{server: s}
		q, err := s.engine.NewInstantQuery(ctx, &counting, nil, "rate(native[20s])", time.UnixMilli(s.now+1000))
		if err != nil {
			t.Fatal(err)
		}
		result := q.Exec(ctx)
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		for _, of := range result.Value.(promql.Vector) {
			if of.H == nil || math.Abs(of.H.Count-100) > 0.01 {
				t.Errorf("%d s after the beginning of a tile, the rate is %v, want 100", second, of)
			}
		}
		q.Close()
	}
}

// countsOnce counts a window after its tiles were read for the first time.
type countsOnce struct {
	*server
	read bool
}

func (c *countsOnce) Live(name string, w tile.Width, mint, maxt int64, matchers []*labels.Matcher) (
	[]tile.Live, error,
) {
	live, err := c.server.Live(name, w, mint, maxt, matchers)
	if !c.read {
		c.read = true
		c.fold()
	}
	return live, err
}
