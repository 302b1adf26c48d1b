package querier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/core/partial"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// TestABrokenStoreCostsAWarning checks that the tenant's other stores answer, and that a warning names
// the missing samples. If no store is left, the query fails, because an empty answer would end alerts.
func TestABrokenStoreCostsAWarning(t *testing.T) {
	const lacks10s = "store 10s of tenant default cannot be opened, so tiles of 1m answer instead: "
	for _, c := range []struct {
		why      string
		broken   []string
		raw      string // samples of the store, if it is not broken
		ten, min string
		open     string // tiles of 10 s
		openMin  string
		want     string
		warnings []string // the first words of each warning
		err      string
	}{
		{"raw is broken: tiles answer", []string{"raw"}, "", "a@-30=1", "", "", "", "a@-30=1",
			[]string{"store raw of tenant default cannot be opened, so samples from remote write and OTLP are missing: "},
			""},
		{"10s is broken: 1m answers, with its open tiles", []string{"10s"}, "b@-10=2", "", "a@-60=1", "a@-20=7", "a@0=2",
			"a@-60=1 a@0=2 b@-10=2", []string{lacks10s}, ""},
		{"10s is broken, and 1m has only open tiles", []string{"10s"}, "b@-10=2", "", "", "a@-20=7", "a@0=2", "a@0=2 b@-10=2",
			[]string{lacks10s}, ""},
		{"10s is broken, and 1m has no tiles: open tiles answer", []string{"10s"}, "", "", "", "a@-20=7", "", "a@-20=7",
			[]string{"store 10s of tenant default cannot be opened, so only open tiles answer: "}, ""},
		{"both widths are broken: raw answers", []string{"10s", "1m"}, "b@-10=2", "", "", "", "", "b@-10=2",
			[]string{"store 10s of tenant default cannot be opened, so only open tiles answer: "}, ""},
		{"the query does not read the broken width", []string{"1m"}, "", "a@-30=1", "", "", "", "a@-30=1", nil, ""},
		{"raw is broken, and the tenant has no other store", []string{"raw"}, "", "", "", "", "", "", nil,
			"no store is left to answer the query: read the stores of tenant default: open "},
		{"all", []string{"raw", "10s", "1m"}, "", "", "", "", "", "", nil,
			"no store is left to answer the query: read the stores of tenant default: open "},
	} {
		t.Run(c.why, func(t *testing.T) {
			dir := t.TempDir()
			for _, store := range c.broken {
				path := filepath.Join(dir, "tsdb", tenant.Default, store)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			w := newWorldIn(t, dir, c.raw)
			w.write(tenant.Default, tile.Width10s, c.ten)
			w.write(tenant.Default, tile.Width1m, c.min)
			w.opened(tile.Width10s, c.open)
			w.opened(tile.Width1m, c.openMin)

			check := func(what, got string, warnings annotations.Annotations, err error, want string) {
				t.Helper()
				if got != want {
					t.Errorf("%s: %s, want %s", what, got, want)
				}
				if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)) {
					t.Errorf("%s: %v, want %q", what, err, c.err)
				}
				said := warnings.AsErrors()
				if len(said) != len(c.warnings) {
					t.Errorf("%s: warnings %v, want %v", what, said, c.warnings)
				}
				for i := range min(len(said), len(c.warnings)) {
					if !strings.HasPrefix(said[i].Error(), c.warnings[i]) {
						t.Errorf("%s: warning %v, want %s...", what, said[i], c.warnings[i])
					}
				}
			}
			q, err := w.Querier(now-hour, now)
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			set := q.Select(ctx, false, nil, everything)
			got := words(t, set)
			check("select", got, set.Warnings(), set.Err(), c.want)
			names := map[string]bool{}
			var want []string
			for _, word := range strings.Fields(c.want) {
				if name, _, _ := strings.Cut(word, "@"); !names[name] {
					names[name] = true
					want = append(want, name)
				}
			}
			values, warnings, err := q.LabelValues(ctx, "of", nil)
			check("label values", strings.Join(values, " "), warnings, err, strings.Join(want, " "))

			if _, err := w.selectedChunks(ctx, nil, everything); (c.warnings != nil || c.err != "") != (err != nil) {
				t.Errorf("a read of chunks, whose answer has no warnings, returns %v, want an error instead of a warning", err)
			}
		})
	}
}

// While the raw store lacks samples that were acknowledged before the start, answers have a warning.
// If no other store can answer, the query fails.
func TestAStoreThatLacksSamplesCostsAWarning(t *testing.T) {
	const warning = "samples from remote write and OTLP that were acknowledged before the start are missing, since " +
		"store raw of tenant default does not take them: no space"
	for raw, want := range map[string]string{"b@-10=2": "b@-10=2", "": ""} {
		w := newWorld(t, raw)
		w.open.lacks = errors.New("no space")
		q, err := w.Querier(now-hour, now)
		if err != nil {
			t.Fatal(err)
		}
		set := q.Select(ctx, false, nil, everything)
		if got := words(t, set); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if failed := set.Err(); (failed != nil) != (raw == "") || failed == nil && fmt.Sprint(set.Warnings().AsErrors()) !=
			"["+warning+"]" {
			t.Errorf("raw %q: %v, %v", raw, failed, set.Warnings())
		}
		if _, warnings, err := q.LabelValues(ctx, "of", nil); (err != nil) != (raw == "") ||
			err == nil && len(warnings) != 1 {
			t.Errorf("label values: %v, %v", err, warnings)
		}
		if _, err := w.selectedChunks(ctx, nil, everything); err == nil || !strings.Contains(err.Error(), warning) {
			t.Errorf("a read of chunks, whose answer has no warnings, returns %v, want %q", err, warning)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A node that lags, or knows no leader, answers only queries that accept a partial answer. A query
// waits only once, however many selectors it has.
func TestAStaleNodeAnswersOnlyInPart(t *testing.T) {
	w := newWorld(t, "b@-10=2")
	if _, err := w.selected(ctx, nil, everything); err != nil || w.open.waited != 1 {
		t.Errorf("a query of a current node returns %v after %d waits, want no error after 1", err, w.open.waited)
	}
	w.open.stale = errors.New("samples after noon may be missing")
	accepts := partial.NewContext(ctx)
	if _, err := w.selected(ctx, nil, everything); !errors.Is(err, w.open.stale) {
		t.Errorf("a query of a stale node returns %v, want its error", err)
	}
	for _, c := range []context.Context{ctx, accepts} {
		if _, err := w.selectedChunks(c, nil, everything); !errors.Is(err, w.open.stale) {
			t.Errorf("a read of chunks, whose answer has no warnings, returns %v, want the stale node's error", err)
		}
	}
	w.open.waited = 0
	q, err := w.Querier(now-hour, now)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		set := q.Select(accepts, false, nil, everything)
		if got := words(t, set); got != "b@-10=2" || set.Err() != nil || len(set.Warnings()) != 1 {
			t.Errorf("a query that accepts a partial answer returns %q, %v, %v, want the sample and one warning",
				got, set.Err(), set.Warnings())
		}
	}
	if _, _, err := q.LabelValues(ctx, "of", nil); !errors.Is(err, w.open.stale) {
		t.Errorf("a query of label values returns %v, want the stale node's error", err)
	}
	if _, warnings, err := q.LabelValues(accepts, "of", nil); err != nil || len(warnings) != 1 {
		t.Errorf("a query of label values that accepts a partial answer returns %v, %v, want one warning", warnings, err)
	}
	if err := q.Close(); err != nil || w.open.waited != 1 {
		t.Errorf("Close of the query returns %v, after %d waits, want no error after 1", err, w.open.waited)
	}
}

// Queries of exemplars wait like queries of samples. If the store lacks some exemplars, a query fails
// unless it accepts a partial answer, because the answer has no field for a warning.
func TestExemplarsWait(t *testing.T) {
	w := newWorld(t, "b@-10=2")
	for _, lacks := range []*error{&w.open.stale, &w.open.lacks} {
		*lacks = errors.New("not yet")
		if _, err := w.ExemplarQuerier(ctx); !errors.Is(err, *lacks) {
			t.Errorf("exemplars may be missing, but a query returns %v, want the reason", err)
		}
		if _, err := w.ExemplarQuerier(partial.NewContext(ctx)); err != nil {
			t.Errorf("a query that accepts a partial answer returns %v", err)
		}
		*lacks = nil
	}
	if _, err := w.ExemplarQuerier(ctx); err != nil {
		t.Error(err)
	}
}

func words(t *testing.T, set storage.SeriesSet) string {
	t.Helper()
	var all []string
	for set.Next() {
		all = append(all, text(t, set.At().Labels(), set.At().Iterator(nil))...)
	}
	return strings.Join(all, " ")
}
