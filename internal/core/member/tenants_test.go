package member

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// Two tenants come, one with windows and one with a request, and there is a place for one. The stores used
// to decide: the first tenant whose work they took had the place. The queues of tenants are independent,
// so members decided differently. Now the order of the log decides.
func TestTheLogAdmitsTenants(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	windows := entry.Entry{Kind: entry.KindWindows, Group: group, Shape: 1}
	windows.Windows.Clock, windows.Windows.MaxTenants = base, 1
	windows.Windows.Pushes = entry.List{}.Append(pushOf(base, "first", 9, 1, 3))
	boundary := entry.Entry{Kind: entry.KindBoundary, Group: group, Shape: 1}
	boundary.Boundary = entry.Boundary{End: base + 10_000, CounterTTL: 60_000, GaugeTTL: 60_000, CheckTTL: 60_000,
		UpDownTTL: 60_000}
	for shard := range uint16(series.Shards) {
		boundary.Boundary.Shards.Add(shard)
	}
	request := entry.Entry{Kind: entry.KindRequest, Group: group, Shape: 1, Request: requestOf(t, rnd, "second", base)}
	request.Request.MaxTenants = 1
	log := [][]byte{windows.Append(nil), boundary.Append(nil), request.Append(nil)}

	for _, requestsFirst := range []bool{false, true} {
		config := tsdb.DefaultConfig()
		config.MaxTenants = 1
		clock := func() time.Time { return time.UnixMilli(base + 20_000) }
		dir := t.TempDir()
		stores, err := tsdb.Open(config, dir, clock, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err != nil {
			t.Fatal(err)
		}
		m := New(group, &tile.Config{CounterTTL: time.Minute})
		var o *outcome.Outcome
		for i, data := range log {
			done, err := m.Apply(uint64(i)+2, data)
			if err != nil {
				t.Fatal(err)
			}
			o = done.Outcome
			if done.Request != nil {
				o = &done.Request.Write.Outcome
			}
		}
		all := m.Work()
		slices.SortFunc(all, func(a, b *Work) int {
			if requestsFirst {
				a, b = b, a
			}
			return len(a.Requests) - len(b.Requests)
		})
		for _, w := range all {
			take(t, stores, w)
			m.Done(w)
		}
		if o.Refused[outcome.TooManyTenants].Samples == 0 || o.Written.Samples > 0 {
			t.Errorf("requests first: %v: the second tenant's request: %+v", requestsFirst, o)
		}
		if err := stores.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got, _ := filepath.Glob(filepath.Join(dir, "tsdb", "*")); len(got) != 1 || filepath.Base(got[0]) != "first" {
			t.Errorf("requests first: %v: there are stores of %v", requestsFirst, got)
		}
	}
}

// take gives work to TSDBs.
func take(t *testing.T, stores *tsdb.Stores, w *Work) {
	t.Helper()
	for width := range tile.Width(tile.NumWidths) {
		if samples := w.Samples(width); len(samples) > 0 {
			if _, err := stores.WriteTiles(t.Context(), w.Tenant, width, samples); err != nil {
				t.Fatal(err)
			}
		}
	}
	var requests []*write.Request
	for _, r := range w.Requests {
		if err := r.Decode(); err != nil {
			t.Fatal(err)
		}
		requests = append(requests, &r.Write)
	}
	if len(requests) == 0 {
		return
	}
	if err := stores.WriteRequests(t.Context(), w.Tenant, w.State, requests); err != nil {
		t.Fatal(err)
	}
}

// The work of many tenants comes in the same order in each run.
func TestWorkIsInTheOrderOfTenants(t *testing.T) {
	m := New(group, &tile.Config{CounterTTL: time.Minute})
	rnd := rand.New(rand.NewPCG(1, 1))
	add := func(e entry.Entry) {
		e.Group, e.Shape = group, shape
		if _, err := m.Apply(m.Index()+1, e.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	for i, tenant := range []string{"f", "c", "h", "a", "e", "b", "g", "d"} {
		windows := entry.Windows{Clock: base, Pushes: entry.List{}.Append(pushOf(base, tenant, uint64(i+1), 1, 1))}
		add(entry.Entry{Kind: entry.KindWindows, Windows: windows})
		add(entry.Entry{Kind: entry.KindRequest, Request: requestOf(t, rnd, tenant, base)})
	}
	add(boundary(base + 10_000))
	var order string
	for _, w := range m.Work() {
		order += w.Tenant
		if len(w.Requests) > 0 {
			order += "+"
		}
	}
	if want := "aa+bb+cc+dd+ee+ff+gg+hh+"; order != want {
		t.Errorf("the work is of tenants %s, want %s (requests have a +)", order, want)
	}
}
