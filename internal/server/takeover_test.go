package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/adapter/cataloguefile"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/rulesets"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/ruleset"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/role/aggregator"
	"github.com/freshet-io/freshet/internal/role/group"
	"github.com/freshet-io/freshet/internal/settings"
)

// machine is one machine whose data a cluster takes over.
type machine struct {
	*server
	t       *testing.T
	journal *memfs.FS   // journal of a killed process
	group   *memfs.FS   // founded, but without the data
	synced  atomic.Bool // a store of tiles is synced
}

// ownedName is a name whose owner the machine knows, and ruledName a group of rules that a tenant has set.
const ownedName, ruledName = "owned", "ruled"

// killedMachine returns a machine whose journal has windows of two tenants, in a checkpoint and behind it. Its
// stores have a request of a third tenant, and a sample in a store of tiles. Its catalogue has ownedName, and its
// rules have ruledName.
func killedMachine(t *testing.T) *machine {
	m := &machine{t: t, journal: memfs.New(), group: memfs.New()}
	m.server = &server{config: settings.Default(), logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	m.config.DataDir = t.TempDir()
	m.registry = prometheus.NewRegistry()
	var err error
	if m.stores, err = tsdb.Open(m.config.Store, m.config.DataDir, time.Now, m.registry, m.logger); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.stores.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if m.catalogueFile, err = cataloguefile.Open(m.path("names.db"), m.logger); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.catalogueFile.Close(); err != nil {
			t.Error(err)
		}
	})
	now := time.Now().UnixMilli()
	owned := catalogue.Metric{Tenant: "a", Name: ownedName, Base: ownedName, Raw: ownedName, Kind: series.Counter,
		First: now, LastSeen: now}
	if err := m.catalogueFile.Save([]catalogue.Metric{owned}); err != nil {
		t.Fatal(err)
	}
	if err := m.setsRules("a", ruledName); err != nil {
		t.Fatal(err)
	}
	m.stores.BeforeSync(func(path string) {
		if strings.Contains(path, "10s") {
			m.synced.Store(true)
		}
	})
	m.writesRequest("c")
	m.live("a", "b")()
	die := m.live("b")
	m.journal = m.journal.Crash()
	die()
	hits := tile.Sample{Series: &tile.Series{Labels: labels.FromStrings("__name__", "hits")}, T: time.Now().UnixMilli()}
	if _, err := m.stores.WriteTiles(t.Context(), "a", tile.Width10s, []tile.Sample{hits}); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.Found(memfs.New(), m.group, "a", identity.DataIndex); err != nil {
		t.Fatal(err)
	}
	return m
}

// live begins a life of the machine's aggregator, which counts a window of each tenant. The returned function ends
// the life in the regular way.
func (m *machine) live(tenants ...string) (end func()) {
	log, _, err := journal.Open(m.journal, journal.Options{Mark: 1, Boot: boot()})
	if err != nil {
		m.t.Fatal(err)
	}
	a, err := aggregator.New(aggregator.Options{
		Config: m.config.Aggregator, MaxPending: 1 << 20, Log: log, Writer: m.stores, Ledger: ledger.New(), Boot: boot(),
		Now: time.Now, Registry: prometheus.NewRegistry(), Logger: m.logger,
	})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(m.t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	for _, tenant := range tenants {
		key := series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "hits"))
		now := time.Now()
		var w batch.Writer
		w.Begin(batch.Header{Tenant: []byte(tenant), Producer: 1, Incarnation: uint64(now.UnixNano()), Sequence: 1,
			Second: now.Unix(), Birth: now.UnixNano()})
		w.Add(series.Shard(tenant, key), &batch.Increment{Key: key, Samples: 1, Value: 1})
		if err := a.Push(m.t.Context(), w.End()); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := log.Sync(); err != nil {
		m.t.Fatal(err)
	}
	return func() {
		stop()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
	}
}

// writesRequest writes a sample with the present time to a tenant's raw store.
func (m *machine) writesRequest(tenant string) {
	var r remotewrite.Request
	var b remotewrite.Builder
	b.Begin(&r, nil)
	b.Series()
	b.Label("__name__", "written")
	b.Sample(remotewrite.Sample{Time: time.Now().UnixMilli(), Value: 1})
	b.Finish()
	w := &write.Request{Request: &r, Tenant: tenant, Terms: &write.Terms{Generation: 1, Rules: labelrules.Rules{}},
		Arrival: time.Now().UnixMilli(), Window: time.Hour}
	if err := m.stores.WriteRequests(m.t.Context(), tenant, new(write.State), []*write.Request{w}); err != nil {
		m.t.Fatal(err)
	}
}

// setsRules sets a group of rules by the API.
func (m *machine) setsRules(tenant, name string) error {
	p := promapi.NewParser(m.config.Query, func() {})
	sets, err := rulesets.Open(m.path("rules"), p, m.logger)
	if err != nil {
		return err
	}
	g, err := ruleset.Parse([]byte("{name: "+name+", rules: [{record: r, expr: x}]}"), tenant, p)
	if err != nil {
		return err
	}
	return sets.Put(tenant, "n", g, ruleset.DefaultLimits())
}

// takesOver takes the data over from a journal into a group.
func (m *machine) takesOver(from, to *memfs.FS) error {
	m.registry = prometheus.NewRegistry()
	return m.takeOverFrom(from, to)
}

// content returns what the group's checkpoint has.
func (m *machine) content(group *memfs.FS) string {
	file, damage, err := checkpoint.Newest(group, math.MaxUint64)
	if err != nil || len(damage) > 0 || file == nil {
		m.t.Fatal("the group's checkpoint: ", file, damage, err)
	}
	var all strings.Builder
	err = file.Read(func(s *checkpoint.Section) error {
		_, err := fmt.Fprintf(&all, "%d %d %s %d %x\n", s.Kind, s.Shard, s.Tenant, s.Index, s.Payload)
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return all.String()
}

// A kill or a power loss may interrupt the takeover at any operation on the files of the journal or the
// group. The next start then takes over the same data, exactly once.
func TestATakeoverIsInterrupted(t *testing.T) {
	m := killedMachine(t)
	whole := m.group.Crash()
	if err := m.takesOver(m.journal.Crash(), whole); err != nil {
		t.Fatal(err)
	}
	want := m.content(whole)
	for _, section := range []string{"3 0 a 2", "3 0 b 2", "3 0 c 2", "2 "} {
		if !strings.Contains(want, "\n"+section) {
			t.Errorf("the checkpoint has no section %q:\n%s", section, want)
		}
	}
	for _, name := range []string{ownedName, ruledName} {
		if !strings.Contains(want, fmt.Sprintf("%x", name)) {
			t.Errorf("the checkpoint lacks %s:\n%s", name, want)
		}
	}
	for _, powerLoss := range []bool{false, true} {
		interrupted := true
		for calls := 0; interrupted; calls++ {
			from, to := m.journal.Crash(), m.group.Crash()
			interrupted = m.interrupted(from, to, calls)
			if from, to = from.Crash(), to.Crash(); powerLoss {
				random := rand.New(rand.NewPCG(uint64(calls), 1))
				from, to = from.PowerLoss(random), to.PowerLoss(random)
			}
			lacks, err := group.LacksData(to)
			if err == nil && lacks {
				err = m.takesOver(from, to)
			}
			if err != nil {
				t.Fatalf("interrupted at call %d: %v", calls, err)
			}
			if got := m.content(to); got != want {
				t.Fatalf("after an interruption at call %d, the group has\n%s\nwant, as without an interruption,\n%s",
					calls, got, want)
			}
		}
	}
}

// interrupted begins to take the data over, but stops after a number of calls. It reports whether more
// calls would have followed.
func (m *machine) interrupted(from, to *memfs.FS, calls int) (more bool) {
	type end struct{}
	fail := func(string, string) error {
		if calls--; calls < 0 {
			panic(end{})
		}
		return nil
	}
	from.Fail, to.Fail = fail, fail
	defer func() {
		more = recover() != nil
		from.Fail, to.Fail = nil, nil
	}()
	if err := m.takesOver(from, to); err != nil {
		m.t.Error(err)
	}
	return false
}

// The journal is removed once the group has a checkpoint. So the stores are synced before that: samples that
// neither the journal nor the checkpoint has must survive a power loss.
func TestATakeoverSyncsTheStoresFirst(t *testing.T) {
	m := killedMachine(t)
	m.synced.Store(false)
	m.group.Fail = func(op, name string) error {
		if op == "rename" && !m.synced.Load() {
			t.Errorf("%s is put into place before the stores are synced", name)
		}
		return nil
	}
	if err := m.takesOver(m.journal.Crash(), m.group); err != nil {
		t.Fatal(err)
	}
}

// If a store cannot be read, the takeover fails: the group would decide without the samples of the store. Nothing is
// lost, and the next start tries again.
func TestATakeoverOfABrokenStore(t *testing.T) {
	m := killedMachine(t)
	if err := m.stores.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	raw := filepath.Join(m.config.DataDir, "tsdb", "c", "raw")
	err := errors.Join(os.RemoveAll(raw), os.WriteFile(raw, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	m.registry = prometheus.NewRegistry()
	if m.stores, err = tsdb.Open(m.config.Store, m.config.DataDir, time.Now, m.registry, m.logger); err != nil {
		t.Fatal(err)
	}
	if err := m.takesOver(m.journal, m.group); err == nil || !strings.Contains(err.Error(), `tenant "c"`) {
		t.Errorf("the takeover with a broken store returned %v, want an error that names tenant c", err)
	}
	if lacks, err := group.LacksData(m.group); err != nil || !lacks {
		t.Errorf("after the failure, LacksData returned %v, error %v, want true", lacks, err)
	}
}
