package tsdb

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// exemplars returns the exemplars of all series whose name has this prefix, in the notation of the
// method samples.
func (w *world) exemplars(name string) string {
	w.t.Helper()
	q, err := w.stores.ExemplarQuerier(context.Background(), tenant.Default)
	if err != nil {
		w.t.Fatal(err)
	}
	found, err := q.Select(math.MinInt64, math.MaxInt64,
		[]*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "__name__", name+".*")})
	if err != nil {
		w.t.Fatal(err)
	}
	var words []string
	for _, r := range found {
		for _, e := range r.Exemplars {
			words = append(words, fmt.Sprintf("%s#%s:%v@%v", r.SeriesLabels.Get("__name__"), e.Labels.Get("trace_id"), e.Value,
				float64(e.Ts-base)/1000))
			if e.Labels.Len() != 1 {
				w.t.Errorf("labels %v", e.Labels)
			}
		}
	}
	return strings.Join(words, " ")
}

func TestExemplarsOfTiles(t *testing.T) {
	for _, c := range []struct {
		why   string
		steps []string
		want  string
	}{
		{"an exemplar is stored with its sample", []string{"a@10=1#4bf92f3577b34da6a3ce929d0e0e4736:2.5@9.123 b@10=1",
			"stored 2, exemplars 1"}, "a#4bf92f3577b34da6a3ce929d0e0e4736:2.5@9.123"},
		{"an exemplar of a histogram", []string{"a@10=h1,2#ab:2@9", "stored 1, exemplars 1"}, "a#ab:2@9"},
		{"exemplars of tile after tile", []string{"a@10=1#ab:2@9", "stored 1, exemplars 1", "a@20=1#cd:3@19 b@20=1#ef:4@18",
			"stored 2, exemplars 2"}, "a#ab:2@9 a#cd:3@19 b#ef:4@18"},
		{"a repeated write changes nothing",
			[]string{"a@10=1#ab:2@9", "stored 1, exemplars 1", "a@10=1#ab:2@9", "repeated 1, exemplars 1", "a@20=1#cd:3@19",
				"stored 1, exemplars 1", "a@10=1#ab:2@9 a@20=1#cd:3@19", "repeated 2, exemplars 2"},
			"a#ab:2@9 a#cd:3@19"},
		{"exemplars survive a restart, and repeats change nothing",
			[]string{"a@10=1#ab:2@9", "stored 1, exemplars 1", "restart", "a@10=1#ab:2@9", "repeated 1, exemplars 1", "restart",
				"b@20=1", "stored 1"},
			"a#ab:2@9"},
		{"a repeat restores an exemplar that the disk has lost",
			[]string{"a@10=1", "stored 1", "a@10=1#ab:2@9", "repeated 1, exemplars 1"}, "a#ab:2@9"},
		{"a late tile's exemplar is stored between others",
			[]string{"a@30=1#cd:3@29", "stored 1, exemplars 1", "a@20=1#ab:2@19", "stored 1, exemplars 1"},
			"a#ab:2@19 a#cd:3@29"},
		{"an exemplar long before the newest one of its series is not kept, but its sample is",
			[]string{"a@14400=1#ab:2@14399", "stored 1, exemplars 1", "a@14410=1#cd:2@1799", "stored 1, exemplars not kept 1",
				"a@14420=1#cd:2@1800", "stored 1, exemplars 1"}, "a#cd:2@1800 a#ab:2@14399"},
		{"an exemplar ahead of the clock would outlast later ones and is not kept",
			[]string{"a@10=1#ab:2@87000.001 b@10=1#cd:3@87000", "stored 2, exemplars 1, exemplars not kept 1"}, "b#cd:3@87000"},
		{"a refused sample's exemplar is not stored", []string{"a@1800=1", "stored 1", "a@-10801=2#ab:2@0", "too_old 1"}, ""},
		{"nor is the exemplar of another value", []string{"a@10=1#ab:2@9", "stored 1, exemplars 1", "a@10=2#cd:2@9.5",
			"conflicts 1"}, "a#ab:2@9"},
	} {
		t.Run(c.why, func(t *testing.T) {
			w := newWorld(t)
			for i := 0; i < len(c.steps); i++ {
				if c.steps[i] == "restart" {
					w.close()
					w.open()
					continue
				}
				if got := w.write(c.steps[i]); got != c.steps[i+1] {
					t.Errorf("write %q: %s; want %s", c.steps[i], got, c.steps[i+1])
				}
				i++
			}
			if got := w.exemplars(""); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestExemplarsAreCounted(t *testing.T) {
	w := newWorld(t)
	w.write("a@10=1#ab:1@9 b@10=1#ab:1@9 c@10=1#ab:1@99999 d@10=1")
	m := w.stores.metrics
	if stored, not := testutil.ToFloat64(m.exemplars), testutil.ToFloat64(m.exemplarsNotKept); stored != 2 || not != 1 {
		t.Errorf("%v exemplars stored, %v not kept, want 2 and 1", stored, not)
	}
}

// room returns how many exemplars the open store of 10 s tiles has memory for, by tsdb's own
// metric.
func (w *world) room() (n float64) {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "prometheus_tsdb_exemplar_max_exemplars" {
			continue
		}
		for _, m := range f.GetMetric() {
			n += m.GetGauge().GetValue()
		}
	}
	return n
}

// The first exemplar allocates the memory for all exemplars. A database that has exemplars when it
// opens keeps this memory.
func TestRoomForExemplars(t *testing.T) {
	w := newWorld(t)
	w.cfg.Exemplars = 3
	restart := func() {
		w.close()
		w.open()
		w.stored(tenant.Default, "10s") // opens the store
	}
	expect := func(when string, want float64) {
		t.Helper()
		if got := w.room(); got != want {
			t.Errorf("%s: the store has room for %v exemplars, want %v", when, got, want)
		}
	}
	w.close()
	w.open()
	w.write("a@10=1")
	expect("without exemplars", 0)
	restart()
	expect("after a restart without exemplars", 0)
	if err := w.stores.SetRetention(w.cfg.Retention); err != nil {
		t.Fatal(err)
	}
	expect("after a reload", 0)
	w.write("a@20=1#ab:2@19")
	expect("after the first", 3)
	if err := w.stores.SetRetention(w.cfg.Retention); err != nil {
		t.Fatal(err)
	}
	expect("after another reload", 3)
	restart()
	expect("after a restart with exemplars", 3)
	w.write("a@30=1#cd:2@29 a@40=1#ef:2@39 a@50=1#01:2@49")
	if got, want := w.exemplars(""), "a#cd:2@29 a#ef:2@39 a#01:2@49"; got != want {
		t.Errorf("with four exemplars and room for three: %s, want %s", got, want)
	}
	w.cfg.Exemplars = 0
	restart()
	expect("with store.exemplars at 0", 0)
	if got := w.write("a@60=1#ab:2@59"); got != "stored 1, exemplars not kept 1" || w.exemplars("") != "" {
		t.Errorf("with store.exemplars at 0: fates %s, exemplars %q", got, w.exemplars(""))
	}
}

// A store of requests has no room for exemplars either until the first one comes, and loses none by it.
func TestRoomForExemplarsOfRequests(t *testing.T) {
	w := newWorld(t)
	w.cfg.Exemplars = 3
	w.close()
	w.open()
	w.writeRaw(&plain, "a@10=1")
	if got := w.room(); got != 0 {
		t.Errorf("without exemplars, the store has room for %v", got)
	}
	w.pushExemplar("a", "ab", base+20_000)
	if got, kept := w.room(), w.exemplars(""); got != 3 || kept != "a#ab:1@20" {
		t.Errorf("after the first exemplar, the store has room for %v, want 3, and has %q", got, kept)
	}
}

// The store of 10 s tiles has all exemplars, so room in the store of 1 min tiles would only waste
// memory.
func TestTilesOfAMinuteHaveNoRoomForExemplars(t *testing.T) {
	w := newWorld(t)
	if _, err := w.stores.WriteTiles(context.Background(), tenant.Default, tile.Width1m, w.samples("a@60=1")); err != nil {
		t.Fatal(err)
	}
	if w.cfg.options("1m").EnableExemplarStorage || w.room() != 0 {
		t.Errorf("the store of 1 min tiles has room for %v exemplars", w.room())
	}
}

// Exemplars of raw samples and of tiles are queried together, even if series of one name came both
// in requests and as tiles.
func TestExemplarsOfAllStores(t *testing.T) {
	w := newWorld(t)
	w.pushExemplar("a", "ab", base+5000)
	w.pushExemplar("c", "cd", base+6000)
	w.series["a"] = &tile.Series{Labels: labels.FromStrings("__name__", "a")}
	w.write("b@10=1#ef:2@9 a@10=1#01:3@4 a@20=1#02:3@14")
	if got, want := w.exemplars(""), "a#01:3@4 a#ab:1@5 a#02:3@14 b#ef:2@9 c#cd:1@6"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := w.exemplars("b"), "b#ef:2@9"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	q, err := w.stores.ExemplarQuerier(context.Background(), tenant.Default)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := q.Select(base+5000, base+6000, []*labels.Matcher{}); err != nil || len(found) != 2 ||
		len(found[0].Exemplars) != 1 {
		t.Errorf("exemplars from 5 s to 6 s: got %v, want 2 series with one each; error %v", found, err)
	}
}

// An exemplar must not be the first entry of an empty head, because a head begins at the time of its
// first entry. The sender chooses an exemplar's time: with a time in 1970, tsdb would write the blocks
// of half a century. Here the only block has out-of-order samples; any other block would itself decide
// where the head begins.
func TestAnExemplarDoesNotBeginAHead(t *testing.T) {
	w := newWorld(t)
	w.write("a@1800=1")
	w.write("a@10=2")
	if err := w.stores.tenants[tenant.Default]["10s"].db.CompactOOOHead(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.close()
	for _, dir := range []string{"wal", "wbl", "chunks_head"} {
		if err := os.RemoveAll(filepath.Join(w.dir, "tsdb", tenant.Default, "10s", dir)); err != nil {
			t.Fatal(err)
		}
	}
	w.open()
	if got := w.write("a@10=2#ab:2@-1700000000"); got != "repeated 1, exemplars not kept 1" {
		t.Errorf("a repeat of a sample in a block: got %s, want repeated 1, exemplars not kept 1", got)
	}
	if db := w.stores.tenants[tenant.Default]["10s"].db; db.Head().MinTime() != math.MaxInt64 {
		t.Errorf("the head begins at the exemplar's time: %v", time.UnixMilli(db.Head().MinTime()))
	}
}
