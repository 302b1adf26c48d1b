package aggregator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/settings"
)

// If the journal cannot be synced, the samples of a window are in tiles anyway. However often the
// collector pushes the window again, its samples are posted once.
func TestAWindowThatCannotBeSyncedIsPostedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, err := files.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		disk := &unsyncable{FS: fs}
		p := startOn(t, disk, newStore(t), time.Now, func(o *Options) { o.Config.Fsync = settings.FsyncCommit })
		b := p.batch(p.now(), "a", 1)
		p.Aggregator.books.Ledger.Post("default", ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: 1},
			ledger.Transfer{From: ledger.Received, To: ledger.Window, Samples: 1})
		disk.broken.Store(true)
		for range 3 {
			if err := p.Push(t.Context(), []batch.Batch{b}); !errors.Is(err, batch.ErrUnsynced) {
				t.Errorf("while nothing can be synced, a push returned %v, want ErrUnsynced", err)
			}
		}
		disk.broken.Store(false)
		time.Sleep(10 * time.Second) // a checkpoint replaces the doubtful frames
		if err := p.Push(t.Context(), []batch.Batch{b}); err != nil {
			t.Error(err)
		}
		if s := p.books("default"); s.Tile != 1 || s.Window != 0 || s.Difference != 0 {
			t.Errorf("%+v", s)
		}
		p.terminate()
	})
}

// unsyncable is a disk that cannot sync while it is broken.
type unsyncable struct {
	segment.FS
	broken atomic.Bool
}

func (u *unsyncable) Create(name string) (segment.Writer, error) {
	w, err := u.FS.Create(name)
	return &unsyncableFile{w, u}, err
}

type unsyncableFile struct {
	segment.Writer
	disk *unsyncable
}

func (f *unsyncableFile) Sync() error {
	if f.disk.broken.Load() {
		return errors.New("input/output error")
	}
	return f.Writer.Sync()
}

// choosy is a store that refuses the series named "old".
type choosy struct{ *store }

func (c choosy) WriteTiles(ctx context.Context, tenant string, w tile.Width,
	samples []tile.Sample) (tile.Written, error) {
	var taken []tile.Sample
	var refused tile.Count
	for _, s := range samples {
		if s.Series.Labels.Get("__name__") == "old" {
			refused.Add(&s)
		} else {
			taken = append(taken, s)
		}
	}
	written, err := c.store.WriteTiles(ctx, tenant, w, taken)
	written.Refused[tile.TooOld] = refused
	return written, err
}

// books returns the books of a tenant.
func (p *process) books(tenant string) ledger.Samples {
	return p.Aggregator.books.Ledger.(*ledger.Ledger).Books().Tenants[tenant].Samples
}

// pushAs posts an increment as the collector does, and pushes it.
func (p *process) pushAs(tenant string, second int64, inc batch.Increment) batch.Batch {
	p.t.Helper()
	shard := series.Shard(tenant, inc.Key)
	sequence++
	h := batch.Header{
		Tenant: []byte(tenant), Shard: shard, Producer: 1, Incarnation: 1, Sequence: sequence, Second: second,
		Birth: second * 1e9,
	}
	bytes := inc.Append(batch.Begin(nil, &h), second)
	batch.End(bytes, 1)
	n := uint64(inc.Samples)
	p.Aggregator.books.Ledger.Post(tenant, ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: n},
		ledger.Transfer{From: ledger.Received, To: ledger.Window, Samples: n})
	b := batch.Batch{Shard: shard, Bytes: bytes}
	if err := p.Push(p.t.Context(), []batch.Batch{b}); err != nil {
		p.t.Fatal(err)
	}
	return b
}

// randomIncrement returns an increment that may have any fate: stored, refused by the store, too late,
// too large, replaced by a tile, or dropped with its buckets.
func randomIncrement(rng *rand.Rand, second int64) batch.Increment {
	inc := batch.Increment{Samples: 1 + rng.Uint32N(5), At: second * 1e9}
	kind, name, policy := series.Counter, "a", series.DefaultPolicy
	switch rng.IntN(6) {
	case 0:
		name, inc.Value = "old", 1
	case 1:
		kind, name, inc.Value = series.Gauge, "g", 5
		if rng.IntN(2) == 0 { // at the end of a tile, where the tile itself may have a sample
			inc.Time = second/10*10 + 10
		}
	case 2:
		kind, name, inc.Value = series.Gauge, "late", 5
		inc.Time = second - 3600
	case 3:
		name, inc.Value = "huge", 1e308
	case 4:
		kind, name = series.Timer, "t"
		policy.Bounds = []float64{1, 2 + float64(rng.IntN(2))}
		inc.Classic, inc.Sum = []float64{1, 0, 0}, 0.5
	default:
		inc.Value = 1
	}
	inc.Key = series.AppendKey(nil, kind, labels.FromStrings("__name__", name))
	inc.Policy = series.AppendPolicy(nil, &policy)
	return inc
}

// However a process ends, and whatever the store does, the books lose no sample. The next process opens
// its books with the samples that the last process had in tiles.
func TestBooksCloseThroughRestarts(t *testing.T) {
	for _, how := range []string{"terminate", "kill"} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint(how, " ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { playLives(t, how == "kill", seed) })
			})
		}
	}
}

func playLives(t *testing.T, kill bool, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	tenants := []string{"default", "other"}
	disk := choosy{newStore(t)}
	dir := t.TempDir()
	ended := map[string]uint64{} // samples of all processes by fate: stored, or the reason of a refusal
	sent := uint64(0)
	p := start(t, dir, disk, time.Now)
	check := func() {
		t.Helper()
		for _, tenant := range tenants {
			if s := p.books(tenant); s.Difference != 0 || s.Window != 0 {
				t.Fatalf("the books of %s do not close: %+v", tenant, s)
			}
		}
	}
	account := func() {
		for _, tenant := range tenants {
			s := p.books(tenant)
			ended["stored"] += s.Stored
			for reason, n := range s.Refused {
				ended[reason] += n
			}
			for reason, n := range s.Late {
				ended[reason] += n
			}
		}
	}
	for i := range 120 {
		disk.setBroken(i%50 > 35)
		inc := randomIncrement(rng, p.now().Unix())
		tenant := tenants[rng.IntN(2)]
		b := p.pushAs(tenant, p.now().Unix(), inc)
		sent += uint64(inc.Samples)
		if i%7 == 0 { // the answer is lost, and the collector pushes again
			if err := p.Push(t.Context(), []batch.Batch{b}); err != nil {
				t.Fatal(err)
			}
		}
		check()
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		if rng.IntN(12) > 0 {
			continue
		}
		if !kill {
			p.terminate()
		}
		synctest.Wait()
		account()
		held := map[string]uint64{}
		for _, tenant := range tenants {
			held[tenant] = p.books(tenant).Tile
		}
		if kill {
			dir = p.kill(dir)
		}
		p = start(t, dir, disk, time.Now)
		for _, tenant := range tenants {
			if s := p.books(tenant); s.Restored != held[tenant] {
				t.Fatalf("the books of %s open with %+v, want %d restored samples, as many as were in tiles",
					tenant, s, held[tenant])
			}
		}
	}
	disk.setBroken(false)
	time.Sleep(90 * time.Second)
	p.terminate()
	check()
	account()
	var sum uint64
	for _, n := range ended {
		sum += n
	}
	for _, tenant := range tenants {
		if left := p.books(tenant).Tile; left != 0 {
			t.Errorf("%d samples of %s are still in tiles, want 0", left, tenant)
		}
	}
	if sum != sent {
		t.Errorf("the books of all processes have %d samples, want %d as sent: %v", sum, sent, ended)
	}
	for _, fate := range strings.Fields("stored too_old late_gauge tile_refused policy_changed duplicate") {
		if ended[fate] == 0 {
			t.Errorf("no sample has the fate %s: %v", fate, ended)
		}
	}
}
