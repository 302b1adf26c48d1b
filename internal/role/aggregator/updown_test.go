package aggregator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/notes"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
)

func upDownKey(name string) []byte {
	return series.AppendKey(nil, series.UpDown, labels.FromStrings("__name__", name))
}

// mustAdd adds n to an up/down counter.
func (p *process) mustAdd(name string, n float64) {
	p.t.Helper()
	b := p.batchOf(p.now(), batch.Increment{Key: upDownKey(name), Samples: 1, Value: n})
	if err := p.Push(p.t.Context(), []batch.Batch{b}); err != nil {
		p.t.Fatal(err)
	}
}

// last returns the newest sample of a series in the store of 10 s.
func (s *store) last(t *testing.T, name string) float64 {
	t.Helper()
	_, values := s.values(name)
	if len(values) == 0 {
		t.Fatalf("%s is not stored", name)
	}
	return values[len(values)-1]
}

// A total is the sum of the acknowledged increments, across kill -9, checkpoints, repeated pushes, and
// pauses that are longer than the life of a counter.
func TestUpDownTotalsSurvive(t *testing.T) {
	for seed := range uint64(2) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			s, dir := newStore(t), t.TempDir()
			p := start(t, dir, s, time.Now)
			var want [3]float64
			for round := range 60 {
				n, v := rng.IntN(len(want)), float64(rng.IntN(200)-100)/4
				name := fmt.Sprint("open", n)
				again := p.batchOf(p.now(), batch.Increment{Key: upDownKey(name), Samples: 1, Value: v})
				for range 1 + rng.IntN(2) { // a repeat, as after a lost acknowledgement
					if err := p.Push(t.Context(), []batch.Batch{again}); err != nil {
						t.Fatal(err)
					}
				}
				want[n] += v
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
				switch rng.IntN(8) {
				case 0:
					dir = p.kill(dir)
					p = start(t, dir, s, time.Now)
				case 1:
					p.terminate()
					p = start(t, dir, s, time.Now)
				}
				if round == 30 {
					time.Sleep(7 * time.Minute)
				}
			}
			time.Sleep(15 * time.Second)
			for n, v := range want {
				if got := s.last(t, fmt.Sprint("open", n)); got != v {
					t.Errorf("seed %d: open%d is %v, want %v", seed, n, got, v)
				}
			}
			p.terminate()
		})
	}
}

// A replay uses the time to live that was in force when the journal was written: the same journal
// gives the same samples under another configuration.
func TestReplayKeepsTheTimeToLiveOfUpDowns(t *testing.T) {
	for _, c := range []struct {
		was, is time.Duration
		ends    bool
	}{{time.Minute, time.Hour, true}, {time.Hour, time.Minute, false}} {
		t.Run(fmt.Sprintf("%v, then %v", c.was, c.is), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, dir := newStore(t), t.TempDir()
				p := startWith(t, dir, s, time.Now, func(o *Options) { o.Config.UpDownTTL = c.was })
				p.mustAdd("open", -3)
				time.Sleep(4 * time.Minute)
				p.mustAdd("open", -4)
				time.Sleep(12 * time.Second)
				dir = p.kill(dir)
				p = startWith(t, dir, s, time.Now, func(o *Options) { o.Config.UpDownTTL = c.is })
				time.Sleep(20 * time.Second)
				_, values := s.values("open")
				ended := false
				for _, v := range values {
					ended = ended || value.IsStaleNaN(v)
				}
				want := -7.0
				if c.ends {
					want = -4
				}
				if got := values[len(values)-1]; got != want || ended != c.ends {
					t.Errorf("the stored values are %v, want %v as the last one", values, want)
				}
				p.terminate()
			})
		})
	}
}

// A server that was down for a month has its totals at once. It used to make a tile for every ten
// seconds of that month before it accepted anything.
func TestALongSilenceIsNoWork(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("kill=%t", kill), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, dir := newStore(t), t.TempDir()
				p := start(t, dir, s, time.Now)
				for i := range 50 { // series in many shards
					p.mustAdd(fmt.Sprint("open", i), 3)
				}
				p.mustCount("a", 1)
				time.Sleep(4 * time.Second)
				if kill {
					dir = p.kill(dir) // while the counters' tile is open
				} else {
					p.terminate()
				}
				time.Sleep(30 * 24 * time.Hour)
				p = start(t, dir, s, time.Now)
				begun := time.Now()
				for i := range 50 {
					p.mustAdd(fmt.Sprint("open", i), -1)
				}
				if took := time.Since(begun); took > time.Minute {
					t.Errorf("windows waited too long: %v", took)
				}
				time.Sleep(15 * time.Second)
				dir = p.kill(dir) // replays leap, too
				p = start(t, dir, s, time.Now)
				time.Sleep(15 * time.Second)
				for i := range 50 {
					if got := s.last(t, fmt.Sprint("open", i)); got != 2 {
						t.Errorf("open%d is %v, want 2", i, got)
					}
				}
				checkCounterEnds(t, s, "a", 1)
				if _, values := s.values("open0"); len(values) > 60 {
					t.Errorf("for a month in which nothing ran, %d samples are stored, want at most 60", len(values))
				}
				p.terminate()
			})
		})
	}
}

// checkCounterEnds checks that a counter was stored up to its total, and then ended.
func checkCounterEnds(t *testing.T, s *store, name string, total float64) {
	t.Helper()
	_, values := s.values(name)
	n := len(values)
	if n < 3 || values[0] != 0 || values[n-2] != total || !value.IsStaleNaN(values[n-1]) {
		t.Errorf("%s: %v", name, values)
	}
}

// A batch of a newer version is refused permanently. The error names the unknown part, and the
// collector counts the batch as refused. Nothing of it is journalled.
func TestABatchOfANewerVersionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newStore(t), t.TempDir()
		p := start(t, dir, s, time.Now)
		b := p.batch(p.now(), "a", 1)
		b.Bytes[0] |= 0x80
		err := p.Push(t.Context(), []batch.Batch{b})
		if !errors.Is(err, batch.ErrRefused) || !strings.Contains(err.Error(), "flag 0x80") {
			t.Errorf("pushed: %v", err)
		}
		p.mustCount("a", 2)
		time.Sleep(15 * time.Second)
		checkCounter(t, s, "a", 2)
		p.terminate()
	})
}

// A journal of a newer version stops the start. A start without that journal would lose its contents.
func TestAJournalOfANewerVersionStopsTheStart(t *testing.T) {
	var a Aggregator
	b := (&process{}).batch(time.Unix(1_800_000_000, 0), "a", 1)
	b.Bytes[0] |= 0x80
	err := a.replay(1, journal.Frame{Shard: b.Shard, Type: frameBatch, Payload: b.Bytes})
	if !errors.Is(err, batch.ErrNewer) || !strings.Contains(err.Error(), "flag 0x80") {
		t.Errorf("replayed: %v", err)
	}
}

// A boundary names all times to live that are in force. Older programs left out the time to live of
// up/down counters if a shard had no such counters.
func TestBoundariesHaveAllTimes(t *testing.T) {
	was := tile.Config{CounterTTL: time.Minute, GaugeTTL: 2 * time.Minute, CheckTTL: 3 * time.Minute,
		UpDownTTL: 4 * time.Minute, OutOfOrder: 5 * time.Minute}
	f := (&Aggregator{tiles: was}).boundaryFrame(3, 10_000, []string{"full"})
	is := Aggregator{tiles: tile.Config{UpDownTTL: time.Hour}}
	was.Full = []string{"full"}
	boundary, config, ok := is.parseBoundary(f)
	if f.Type != frameBoundary || !ok || boundary != 10_000 || !reflect.DeepEqual(config, was) {
		t.Errorf("read as type %d, boundary %d, %+v, %t", f.Type, boundary, config, ok)
	}

	var old []byte
	for _, ms := range []int64{10_000, 60_000, 120_000, 180_000, 300_000} {
		old = binary.AppendVarint(old, ms)
	}
	old = append(old, "\x04full"...)
	was.UpDownTTL = time.Hour
	boundary, config, ok = is.parseBoundary(journal.Frame{Shard: 3, Type: frameOldBoundary, Payload: old})
	if !ok || boundary != 10_000 || !reflect.DeepEqual(config, was) {
		t.Errorf("the boundary of an older program is read as %d, %+v, %t, want 10000, %+v", boundary, config, ok, was)
	}
}

// A replay leaps where the process did: for the whole downtime it makes one tile.
func TestAReplayLeaps(t *testing.T) {
	a := Aggregator{stored: &notes.Stored{}, tiles: tile.Config{UpDownTTL: 40 * 24 * time.Hour}}
	key := upDownKey("open")
	a.shards = tile.NewShards(&a.tiles)
	s := tile.New(&a.tiles, 0)
	a.shards.Begin(series.Shard("default", key), s)
	b := (&process{}).batchOf(time.Unix(1, 0), batch.Increment{Key: key, Samples: 1, Value: -3})
	if f, err := s.Fold(b.Bytes); err != nil || f.Samples != 1 {
		t.Fatal(f, err)
	}
	const month = 30 * 24 * 3_600_000
	for i, boundary := range []int64{60_000, month} {
		if _, err := a.apply(journal.Position(i+2), a.boundaryFrame(b.Shard, boundary, nil)); err != nil {
			t.Fatal(err)
		}
		if boundary == 60_000 {
			s.AllStored()
		}
	}
	if n := len(s.Waiting()); n != 1 || s.Closed() != month {
		t.Errorf("a month became %d tiles, closed up to %d, want 1 tile, up to %d", n, s.Closed(), int64(month))
	}
}
