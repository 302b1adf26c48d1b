package aggregator

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tenants"
	"github.com/freshet-io/freshet/internal/settings"
)

// windowOf returns a window of a tenant with one sample of a counter.
func windowOf(tenant string, second time.Time, sequence uint64) batch.Batch {
	inc := batch.Increment{
		Key: series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "c")), Samples: 1, Value: 1,
	}
	shard := series.Shard(tenant, inc.Key)
	h := batch.Header{Tenant: []byte(tenant), Shard: shard, Producer: 7, Incarnation: 1, Sequence: sequence,
		Second: second.Unix(), Birth: second.UnixNano()}
	b := batch.Begin(nil, &h)
	b = inc.Append(b, h.Second)
	batch.End(b, 1)
	return batch.Batch{Shard: shard, Samples: 1, Bytes: b}
}

// A tenant beyond the limit is refused before anything is journalled. It has no tiles. The books have
// its samples once, even if the window is pushed again because the journal could not be synced.
func TestATenantWithoutAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, err := files.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		disk, s := &unsyncable{FS: fs}, newStore(t)
		p := startOn(t, disk, s, time.Now, func(o *Options) {
			o.Config.Fsync, o.Tenants = settings.FsyncCommit, tenants.NewGate(1)
		})
		both := []batch.Batch{windowOf("first", p.now(), 1), windowOf("second", p.now(), 2)}
		disk.broken.Store(true)
		if err := p.Push(t.Context(), both); !errors.Is(err, batch.ErrUnsynced) {
			t.Errorf("while nothing can be synced, a push returned %v, want ErrUnsynced", err)
		}
		disk.broken.Store(false)
		time.Sleep(10 * time.Second) // a checkpoint replaces the doubtful frames
		if err := p.Push(t.Context(), both); err != nil {
			t.Error(err)
		}
		if n := p.books("second").Refused["too_many_tenants"]; n != 1 || p.TenantSeries("second") != 0 {
			t.Errorf("%v samples are refused, and the tenant has %d series, want 1, 0", n, p.TenantSeries("second"))
		}
		if b := p.books("first"); b.Tile != 1 || len(b.Refused) != 0 {
			t.Errorf("%+v", b)
		}
		time.Sleep(20 * time.Second)
		checkCounterOf(t, s, "first", "c", 1)
		if times, _ := s.valuesOf("second", "c"); len(times) > 0 {
			t.Error("refused samples were stored")
		}
		p.terminate()
	})
}

// A journalled batch was admitted, so after a restart its tenant has a place. That holds although its
// stores do not exist yet, the limit is lower than before, and another tenant has the last place.
func TestAJournalledTenantKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, s := t.TempDir(), newStore(t)
		p := startWith(t, dir, s, time.Now, func(o *Options) { o.Tenants = tenants.NewGate(2) })
		if err := p.Push(t.Context(), []batch.Batch{windowOf("first", p.now(), 1)}); err != nil {
			t.Fatal(err)
		}
		dir = p.kill(dir)
		gate := tenants.NewGate(1)
		gate.Restore("on-disk")
		p = startWith(t, dir, s, time.Now, func(o *Options) { o.Tenants = gate })
		if err := p.Push(t.Context(), []batch.Batch{windowOf("first", p.now(), 2)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		checkCounterOf(t, s, "first", "c", 2)
		p.terminate()
	})
}
