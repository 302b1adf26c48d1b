package eventlog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet-io/freshet/internal/core/event"
)

// clock is the time of a test, in Unix milliseconds.
type clock struct{ ms int64 }

func (c *clock) now() time.Time { return time.UnixMilli(c.ms) }

func open(t *testing.T, cfg Config, path string, c *clock) *Log {
	t.Helper()
	l, err := Open(cfg, path, c.now, nil, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// start opens a new log. Its clock begins near 1970, so that events with small times have not expired.
func start(t *testing.T, cfg Config) (*Log, *clock) {
	t.Helper()
	c := &clock{ms: 1_000_000}
	return open(t, cfg, filepath.Join(t.TempDir(), "events.db"), c), c
}

func add(t *testing.T, l *Log, events ...event.Event) {
	t.Helper()
	if err := l.Append(t.Context(), events); err != nil {
		t.Fatal(err)
	}
}

// titles queries the log and returns each event found as "time title", in order.
func titles(t *testing.T, l *Log, f Filter) (out []string) {
	t.Helper()
	found, err := l.Query(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		out = append(out, fmt.Sprint(found[i].Time, " ", found[i].Title))
	}
	return out
}

func all(tenant string) Filter {
	return Filter{Tenant: tenant, Start: math.MinInt64, End: math.MaxInt64}
}

func TestQuery(t *testing.T) {
	l, _ := start(t, DefaultConfig())
	add(t, l,
		event.Event{Tenant: "a", Time: 2000, Title: "Deploy", Text: "of WEB", Tags: []string{"env:prod", "web"}},
		event.Event{Tenant: "a", Time: 1000, Title: "first"},
		event.Event{Tenant: "b", Time: 1500, Title: "another's"},
		event.Event{Tenant: "a", Time: 3000, Title: "third", Text: "größe ÄNDERT", Tags: []string{"env:prod"}})
	add(t, l, event.Event{Tenant: "a", Time: 2000, Title: "later at the same time"})

	for _, c := range []struct {
		why  string
		f    Filter
		want []string
	}{
		{"newest first; events of one time by arrival; never another tenant's", all("a"),
			[]string{"3000 third", "2000 later at the same time", "2000 Deploy", "1000 first"}},
		{"a tenant without events", all("c"), nil},
		{"both ends belong to the range", Filter{Tenant: "a", Start: 1000, End: 2000},
			[]string{"2000 later at the same time", "2000 Deploy", "1000 first"}},
		{"a range between two events", Filter{Tenant: "a", Start: 2001, End: 2999}, nil},
		{"a range before all", Filter{Tenant: "a", Start: 0, End: 999}, nil},
		{"the newest, if there are too many", Filter{Tenant: "a", End: 5000, Limit: 2},
			[]string{"3000 third", "2000 later at the same time"}},
		{"a tag", Filter{Tenant: "a", End: 5000, Tags: []string{"env:prod"}}, []string{"3000 third", "2000 Deploy"}},
		{"an event must have all tags, not only one of them",
			Filter{Tenant: "a", End: 5000, Tags: []string{"web", "env:prod"}},
			[]string{"2000 Deploy"}},
		{"a tag's key alone is another tag", Filter{Tenant: "a", End: 5000, Tags: []string{"env"}}, nil},
		{"text in the title, whatever its case", Filter{Tenant: "a", End: 5000, Text: "dEPLOY"}, []string{"2000 Deploy"}},
		{"a search in the text folds case beyond ASCII", Filter{Tenant: "a", End: 5000, Text: "GRÖSSE änd"}, nil},
		{"case beyond ASCII", Filter{Tenant: "a", End: 5000, Text: "GRÖßE änd"}, []string{"3000 third"}},
		{"the limit counts what is found, not what is read",
			Filter{Tenant: "a", End: 5000, Text: "first", Limit: 1}, []string{"1000 first"}},
	} {
		if got := titles(t, l, c.f); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.why, got, c.want)
		}
	}
}

func TestEverythingIsKeptOverARestart(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "events.db"), &clock{ms: 1_000_000}
	l := open(t, DefaultConfig(), path, c)
	want := event.Event{
		Tenant: "a", Time: 999_999, Title: "t", Text: "line\nline", Tags: []string{"k:v", "ü"}, Host: "h",
		Key: "k", Priority: "low", Source: "s", Alert: "error",
	}
	add(t, l, want)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := open(t, DefaultConfig(), path, c).Query(t.Context(), all("a"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || !reflect.DeepEqual(found[0], Event{1, want}) {
		t.Errorf("got %+v, want %+v", found, want)
	}
}

// Bounds change while the log is open, as at a reload: the maximum age applies at once, the maximum
// number at the next append.
func TestConfigure(t *testing.T) {
	l, c := start(t, DefaultConfig())
	c.ms = 7_200_000
	for ms := int64(1_800_000); ms <= 7_200_000; ms += 1_800_000 {
		add(t, l, event.Event{Tenant: "a", Time: ms, Title: "t"})
	}
	cfg := DefaultConfig()
	cfg.Retention = time.Hour
	l.Configure(cfg)
	if got, want := titles(t, l, all("a")), []string{"7200000 t", "5400000 t", "3600000 t"}; !slices.Equal(got, want) {
		t.Errorf("events of the last hour: got %q, want %q", got, want)
	}
	cfg = DefaultConfig()
	cfg.MaxEvents = 2
	l.Configure(cfg)
	add(t, l, event.Event{Tenant: "a", Time: 7_200_000, Title: "last"})
	if got, want := titles(t, l, all("a")), []string{"7200000 last", "7200000 t"}; !slices.Equal(got, want) {
		t.Errorf("with a limit of two events: got %q, want %q", got, want)
	}
}

func TestOldestGoBeyondTheBound(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxEvents = 3
	path, c := filepath.Join(t.TempDir(), "events.db"), &clock{ms: 1_000_000}
	l := open(t, cfg, path, c)
	add(t, l, event.Event{Tenant: "quiet", Time: 1, Title: "stays"})
	for i := range 5 {
		add(t, l, event.Event{Tenant: "a", Time: int64(10 - i), Title: "e"})
	}
	want := []string{"10 e", "9 e", "8 e"} // the events with the smallest times are removed, not the first to arrive
	if got := titles(t, l, all("a")); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := testutil.ToFloat64(l.metrics.removed.WithLabelValues("bound")); got != 2 {
		t.Errorf("%v events are counted as removed, want 2", got)
	}
	l.Close()

	l = open(t, cfg, path, c) // the bound still holds after a restart
	add(t, l, event.Event{Tenant: "a", Time: 11, Title: "e"}, event.Event{Tenant: "a", Time: 12, Title: "e"})
	if got, want := titles(t, l, all("a")), []string{"12 e", "11 e", "10 e"}; !slices.Equal(got, want) {
		t.Errorf("after a restart: got %q, want %q", got, want)
	}
	if got := titles(t, l, all("quiet")); len(got) != 1 {
		t.Errorf("beside a busy tenant, the quiet tenant has the events %q, want exactly one event", got)
	}
}

func TestOldGoByAge(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Retention = time.Hour
	l, c := start(t, cfg)
	add(t, l, event.Event{Tenant: "a", Time: c.ms, Title: "old"}, event.Event{Tenant: "b", Time: c.ms, Title: "old"})
	c.ms += time.Hour.Milliseconds()
	if got := titles(t, l, all("a")); len(got) != 1 {
		t.Errorf("just before an event expires, the log has %q, want the event", got)
	}
	c.ms++
	if got := titles(t, l, all("a")); got != nil {
		t.Errorf("still answered: %q", got)
	}
	add(t, l, event.Event{Tenant: "a", Time: c.ms, Title: "new"}) // removes the old events of a and b
	if got := testutil.ToFloat64(l.metrics.removed.WithLabelValues("age")); got != 2 {
		t.Errorf("%v events are counted as removed, want 2", got)
	}
	if l.counts["a"] != 1 || l.counts["b"] != 0 {
		t.Errorf("counts %v", l.counts)
	}
}

func TestDamagedFileDoesNotKeepFromStarting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.db")
	if err := os.WriteFile(path, []byte("not a database"), 0o666); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	l, err := Open(DefaultConfig(), path, time.Now, nil, prometheus.NewRegistry(), logger)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	add(t, l, event.Event{Tenant: "a", Time: time.Now().UnixMilli(), Title: "t"})
	if !strings.Contains(log.String(), path+".damaged") {
		t.Errorf("the log does not name %s.damaged: %s", path, &log)
	}
}

func TestAQueryNobodyWaitsForEnds(t *testing.T) {
	l, _ := start(t, DefaultConfig())
	events := make([]event.Event, 2*checkEvery)
	for i := range events {
		events[i] = event.Event{Tenant: "a", Time: 1, Title: "t"}
	}
	add(t, l, events...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Query(ctx, Filter{Tenant: "a", End: 2, Text: "none"}); err == nil {
		t.Error("Query succeeded although its context had ended")
	}
	if err := l.Append(ctx, events); err == nil {
		t.Error("Append succeeded although its context had ended")
	}
}

// Query agrees with a naive model: keep all, sort, filter, cut.
func TestQueryModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	l, _ := start(t, DefaultConfig())
	var kept []event.Event
	for range 40 {
		var batch []event.Event
		for range rnd.IntN(4) {
			e := event.Event{Tenant: string(rune('a' + rnd.IntN(2))), Time: rnd.Int64N(20) - 5, Title: fmt.Sprint(rnd.IntN(3))}
			if rnd.IntN(2) == 0 {
				e.Tags = []string{"x"}
			}
			batch = append(batch, e)
		}
		add(t, l, batch...)
		kept = append(kept, batch...)
	}
	for range 500 {
		f := Filter{Tenant: string(rune('a' + rnd.IntN(2))), Start: rnd.Int64N(24) - 7, Limit: 1 + rnd.IntN(30)}
		f.End = f.Start + rnd.Int64N(10)
		if rnd.IntN(2) == 0 {
			f.Tags = []string{"x"}
		}
		if rnd.IntN(2) == 0 {
			f.Text = fmt.Sprint(rnd.IntN(3))
		}
		var want []string
		ordered := slices.Clone(kept)
		slices.SortStableFunc(ordered, func(a, b event.Event) int { return int(a.Time - b.Time) })
		for _, e := range slices.Backward(ordered) {
			if e.Tenant == f.Tenant && f.Start <= e.Time && e.Time <= f.End && len(want) < f.Limit &&
				(f.Tags == nil || e.Tags != nil) && strings.Contains(e.Title, f.Text) {
				want = append(want, fmt.Sprint(e.Time, " ", e.Title))
			}
		}
		if got := titles(t, l, f); !slices.Equal(got, want) {
			t.Fatalf("%+v: got %q, want %q", f, got, want)
		}
	}
}

// A damaged disk may return any bytes. An event that decode accepts must be the same after
// event.Append and decode.
func FuzzDecode(f *testing.F) {
	f.Add(key(5, 7), (&event.Event{Title: "t", Text: "text", Tags: []string{"a", ""}}).Append(nil))
	f.Add([]byte("short"), []byte{1})
	f.Add(key(-1, 0), []byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, k, v []byte) {
		r, err := decode("a", k, v)
		if err != nil {
			return
		}
		again, err := decode("a", key(r.Time, r.ID), r.Append(nil))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v was read back as %+v, error %v", r, again, err)
		}
	})
}

// Bound: 200 ms on one core of the CI machine for 100,000 events of 500 bytes, none of which matches.
// That is the slowest query with the default settings. Opening such a log takes this time, too, because
// Open reads all events.
func BenchmarkQueryAll(b *testing.B) {
	c := &clock{ms: 1_000_000}
	l, err := Open(DefaultConfig(), filepath.Join(b.TempDir(), "events.db"), c.now, nil, prometheus.NewRegistry(),
		slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	events := make([]event.Event, 100_000)
	for i := range events {
		events[i] = event.Event{
			Tenant: "a", Time: int64(i), Title: "deploy of web", Text: strings.Repeat("word ", 80),
			Tags: []string{"env:prod", "team:web"},
		}
	}
	if err := l.Append(b.Context(), events); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := l.Query(b.Context(), Filter{Tenant: "a", End: math.MaxInt64, Text: "none"}); err != nil {
			b.Fatal(err)
		}
	}
}
