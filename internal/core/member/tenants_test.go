package member

import (
	"bytes"
	"fmt"
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
	"github.com/freshet-io/freshet/internal/core/remotewrite"
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
			t.Errorf("requests come first: %v; the second tenant's request: got %+v, want it refused", requestsFirst, o)
		}
		if err := stores.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got, _ := filepath.Glob(filepath.Join(dir, "tsdb", "*")); len(got) != 1 || filepath.Base(got[0]) != "first" {
			t.Errorf("requests come first: %v; got the stores %v, want only those of the tenant \"first\"",
				requestsFirst, got)
		}
	}
}

// Requests with metadata alone, or with deltas that were all refused, used to admit their tenant, so
// invented names took all places. Now such tenants leave nothing in the state that grows with their
// number, and after a restart the same entries admit the same tenants.
func TestAnEntryThatStoresNothingAdmitsNoTenant(t *testing.T) {
	requestOf := func(name string, samples ...remotewrite.Sample) entry.Request {
		var in write.Incoming
		var b remotewrite.Builder
		b.Begin(&in.Request, nil)
		for i, x := range samples {
			b.Series()
			b.Label("__name__", fmt.Sprint("s", i))
			b.Sample(x)
		}
		if len(samples) == 0 {
			b.Family("f", "help", "", remotewrite.CounterType)
			b.Family("g", "help", "", remotewrite.CounterType)
		}
		b.Finish()
		r := bodyOf(t, &in, name, base)
		r.MaxTenants, r.Pair = 1, entry.Pair{Cluster: "c", Replica: "1", Timeout: 1}
		return r
	}
	good, early := remotewrite.Sample{Time: base, Value: 1}, remotewrite.Sample{Time: base + 3_600_000, Value: 1}
	m := New(group, &config)
	digest := func(name string) uint64 {
		applied, _ := m.Digests(name)
		return applied.Index
	}
	for i := range 9 {
		name := fmt.Sprint("invented", i)
		done, _ := apply(t, m, entry.Entry{Kind: entry.KindRequest, Request: requestOf(name)})
		if o := *done.Outcome; done.Request != nil || o != (outcome.Outcome{Dropped: outcome.Counts{Series: 2}}) {
			t.Fatalf("metadata alone: %+v", o)
		}
		done, _ = apply(t, m, entry.Entry{Kind: entry.KindDeltas, Request: requestOf(name)})
		if done.Deltas != nil || *done.Outcome != (outcome.Outcome{}) {
			t.Fatalf("deltas without series: %+v", done.Outcome)
		}
		done, _ = apply(t, m, entry.Entry{Kind: entry.KindDeltas, Request: requestOf(name, early)})
		if done.Deltas != nil || done.Elected != nil || done.Outcome.Refused[outcome.TooFarAhead].Samples != 1 {
			t.Fatalf("deltas that are all refused: %+v", done.Outcome)
		}
		if digest(name) != 0 || digest(refusedTenants) != m.Index() {
			t.Fatalf("the tenant's digest is of entry %d, want 0; the digest of refused tenants is of %d, want %d",
				digest(name), digest(refusedTenants), m.Index())
		}
	}
	if n := len(m.AppendGroup(nil)); n > 60 {
		t.Errorf("the group's section has %d bytes, want at most 60", n)
	}
	restored, err := Restore(group, &config, m.AppendGroup(nil))
	if err != nil {
		t.Fatal(err)
	}
	restored.Restored(nil)
	for _, m := range []*Member{m, restored} {
		done, _ := apply(t, m, entry.Entry{Kind: entry.KindDeltas, Request: requestOf("first", early, good)})
		if o := done.Outcome; done.Deltas == nil || done.Elected == nil ||
			o.Written.Samples != 1 || o.Refused[outcome.TooFarAhead].Samples != 1 {
			t.Errorf("deltas with one good sample: outcome %+v, effect %+v", o, done)
		}
		done, _ = apply(t, m, entry.Entry{Kind: entry.KindRequest, Request: requestOf("first")})
		if done.Request == nil {
			t.Error("metadata of an admitted tenant is dropped")
		}
		for _, kind := range []entry.Kind{entry.KindRequest, entry.KindDeltas} {
			done, _ = apply(t, m, entry.Entry{Kind: kind, Request: requestOf("second", good, good)})
			if done.Outcome.Refused[outcome.TooManyTenants].Samples != 2 {
				t.Errorf("kind %d of a tenant beyond the limit: got %+v, want 2 refused samples", kind, done.Outcome)
			}
		}
	}
	if a, b := m.AppendGroup(nil), restored.AppendGroup(nil); !bytes.Equal(a, b) {
		t.Errorf("after a restart the state is\n%x, want\n%x", b, a)
	}
}

// take writes the work w to TSDBs.
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
		t.Errorf("the order of the work is %s, want %s (a + marks requests)", order, want)
	}
}
