package group

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/settings"
)

// machineConfig is the configuration by which the machine of these tests closed its tiles.
var machineConfig = tile.Config{CounterTTL: settings.DefaultAggregator().CounterTTL}

// machine returns the shards of one machine. Its tenant a has 60 increments of a counter, of which ten are in a
// tile that waits for a store, and the others in an open tile.
func machine(t *testing.T, now time.Time) *tile.Shards {
	shards := tile.NewShards(&machineConfig)
	begin := now.Truncate(10 * time.Second)
	for i, n := range []float64{10, 50} {
		b := window("a", "hits", begin.Add(time.Duration(i)*10*time.Second), n)
		if _, _, err := shards.Fold(b.Shard, b.Bytes); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			shards.CloseUpTo(b.Shard, 900, begin.UnixMilli()+10_000, &machineConfig)
		}
	}
	return shards
}

// founded returns the directory of a new group. The data of its founder have yet to be copied there.
func founded(t *testing.T) *memfs.FS {
	dir := memfs.New()
	if _, err := identity.Found(memfs.New(), dir, "a", identity.DataIndex); err != nil {
		t.Fatal(err)
	}
	return dir
}

// asFounder returns an option that makes a Group the member that founded the group in fs.
func asFounder(t *testing.T, fs *memfs.FS) func(*Options) {
	log, err := entrylog.Open(fs, entrylog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	_, members, err := log.InitialState()
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Node, o.Member, o.Voters = "a", members.GetVoters()[0], nil }
}

// A kill or a power loss may interrupt Found at any call. Then the group either lacks the data, and
// Found can be repeated, or it has all of them, and its counters go on.
func TestFoundIsInterrupted(t *testing.T) {
	for _, powerLoss := range []bool{false, true} {
		whole := false
		for calls := 0; !whole && !t.Failed(); calls++ {
			t.Run(fmt.Sprint(powerLoss, " ", calls), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { whole = foundInterrupted(t, calls, powerLoss) })
			})
		}
	}
}

func foundInterrupted(t *testing.T, calls int, powerLoss bool) (whole bool) {
	dir := founded(t)
	begin := time.Now()
	found := func() error {
		return Found(dir, 7, member.Found(3, identity.DataIndex, &machineConfig, machine(t, begin),
			map[string]*write.State{"a": {Newest: 5}}, []catalogue.Metric{
				{Tenant: "a", Name: "c", Base: "c", Kind: series.Counter},
				{Tenant: "a", Name: "c_gauge", Base: "c", Kind: series.Gauge},
			}))
	}
	if lacks, err := LacksData(dir); err != nil || !lacks {
		t.Fatalf("before Found, LacksData returned %v, %v, want true", lacks, err)
	}
	type end struct{}
	dir.Fail = func(string, string) error {
		if calls--; calls < 0 {
			panic(end{})
		}
		return nil
	}
	func() {
		defer func() { whole = recover() == nil }()
		if err := found(); err != nil {
			t.Error(err)
		}
	}()
	if dir.Fail = nil; powerLoss {
		dir = dir.PowerLoss(rand.New(rand.NewPCG(uint64(calls), 1)))
	} else {
		dir = dir.Crash()
	}
	lacks, err := LacksData(dir)
	if err != nil || whole && lacks {
		t.Fatalf("after a whole Found, LacksData returned %v, %v, want false", lacks, err)
	}
	if lacks {
		if err := found(); err != nil {
			t.Fatal(err)
		}
	}
	s := newStores(t)
	p := start(t, dir, s, asFounder(t, dir))
	time.Sleep(10 * time.Second)
	p.mustCount("a", "hits", 7)
	p = start(t, p.kill(crash), s, asFounder(t, dir))
	time.Sleep(30 * time.Second)
	p.terminate()
	if lacks, err := LacksData(p.fs); err != nil || lacks {
		t.Errorf("after a start, LacksData returned %v, %v, want false", lacks, err)
	}
	s.check("a", "hits", 67)
	if times, values := s.values("a", "hits"); len(times) < 2 || values[1] != 10 {
		t.Errorf("the counter has the values %v at %v, want 10 from the tile that waited", values, times)
	}
	return whole
}

// A group that has had entries does not lack its founder's data. If the checkpoint with them is gone or
// damaged, the start fails: otherwise queries would get answers without them.
func TestALostFoundation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := founded(t)
		state := member.Found(3, identity.DataIndex, &machineConfig, machine(t, time.Now()), nil, nil)
		if err := Found(dir, 7, state); err != nil {
			t.Fatal(err)
		}
		names, _ := dir.List()
		name := checkpoint.Files(names)[0].Name
		damaged := dir.Crash()
		damaged.Files[name].Data[200]++
		s := newStores(t)
		fs := start(t, dir, s, asFounder(t, dir)).kill(crash)
		delete(fs.Files, name)
		for what, fs := range map[string]*memfs.FS{"gone": fs, "damaged": damaged} {
			if lacks, err := LacksData(fs); err != nil || lacks {
				t.Errorf("the checkpoint is %s: LacksData returned %v, %v, want false", what, lacks, err)
			}
			o := optionsOf(fs, s)
			asFounder(t, fs)(&o)
			if _, err := New(o); !errors.Is(err, entrylog.ErrDamaged) {
				t.Errorf("the checkpoint is %s: the start returns %v, want ErrDamaged", what, err)
			}
		}
	})
}
