package member

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/recentseries"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// A group goes on with the data of one machine: with its totals, with its waiting tiles in the order of
// their time, and with the state that decides about requests. The positions of the machine's journal
// mean nothing in the group.
func TestFound(t *testing.T) {
	const index = 2
	shards := tile.NewShards(&config)
	var w batch.Writer
	var numbers []uint16
	for i := range 20 {
		name := fmt.Sprint("one", i)
		if i == 0 {
			name = "two" // of a tenant without requests
		}
		key := series.AppendKey(nil, series.Counter, labelsOf(name))
		w.Begin(batch.Header{
			Tenant: []byte(name[:3]), Producer: 1, Incarnation: 1, Sequence: uint64(i + 1), Second: base / 1000})
		w.Add(series.Shard(name[:3], key), &batch.Increment{Key: key, Samples: 1, Value: 1})
		for _, b := range w.End() {
			if _, _, err := shards.Fold(b.Shard, b.Bytes); err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, b.Shard)
		}
	}
	for tiles := range int64(3) {
		for i, number := range numbers {
			shards.CloseUpTo(number, uint64(1000*tiles)+uint64(i)+1, base+10_000*(tiles+1), &config)
		}
	}
	state := &write.State{Newest: base + 7}
	state.Recent.Note(recentseries.Hash(1 << 63))
	state.Recent.Keep()
	m := again(t, Found(group, index, &config, shards, map[string]*write.State{"one": state, "two": {}},
		[]catalogue.Metric{{Tenant: "one", Name: "c", Base: "c", Kind: series.Counter, LastSeen: base}}))
	if name, _, known := m.Names().Of("one").Find([]byte("c"), series.Counter, ""); name != "c" || !known {
		t.Errorf("the counter c has the name %q, known: %v", name, known)
	}

	if m.Index() != index || m.Reaches() != index || m.Shards().Len() != 20 {
		t.Errorf("the state is of entry %d, needs entries up to %d and has %d series; want %d, %[4]d and 20",
			m.Index(), m.Reaches(), m.Shards().Len(), index)
	}
	if !m.has.Has("one") || !m.has.Has("two") || m.has.Admit("three", 2) {
		t.Error("the admitted tenants are not exactly the two with data")
	}
	one := m.tenants["one"]
	if one.state.Newest != base+7 || one.state.Requests != 0 || !one.state.Recent.Has(recentseries.Hash(1<<63)) {
		t.Errorf("the tenant named one: the state has %d requests, the newest sample at %d, and %d series",
			one.state.Requests, one.state.Newest, one.state.Recent.Len())
	}
	var ends []int64
	for _, x := range one.tiles {
		if ends = append(ends, x.Boundary); x.Index != index {
			t.Errorf("a tile that waits has index %d, want %d", x.Index, index)
		}
	}
	if want := []int64{base + 10_000, base + 20_000, base + 30_000}; !slices.Equal(slices.Compact(ends), want) {
		t.Errorf("tiles wait in the order of the ends %v, want %v", ends, want)
	}
	if v := m.Visible("one"); v != index-1 {
		t.Errorf("tiles wait, and entries up to %d are visible, want %d", v, index-1)
	}
	for all := m.Work(); len(all) > 0; all = m.Work() {
		for _, w := range all {
			m.Done(w)
		}
	}
	if v := m.Visible("one"); v != index {
		t.Errorf("no tile waits, but entries up to %d are visible, want %d", v, index)
	}
}

// again(t, m) saves the member m and returns the restored one.
func again(t *testing.T, m *Member) *Member {
	restored, err := Restore(group, &config, m.AppendGroup(nil))
	if err != nil {
		t.Fatal(err)
	}
	for number := range uint16(series.Shards) {
		if b, index, has := m.AppendShard(nil, number); has {
			if err := restored.RestoreShard(number, index, b); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range m.Tenants() {
		if err := restored.RestoreTenant(name, m.AppendTenant(nil, name, m.Index())); err != nil {
			t.Fatal(err)
		}
	}
	if err := restored.RestoreDecisions(m.AppendDecisions(nil, m.Index())); err != nil {
		t.Fatal(err)
	}
	restored.Restored(nil)
	return restored
}

func labelsOf(name string) labels.Labels { return labels.FromStrings("__name__", name) }
