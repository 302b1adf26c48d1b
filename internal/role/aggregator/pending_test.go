package aggregator

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/tiling"
)

// partly is a store that is broken for one tenant: writes of some widths fail, or hang until the store
// is repaired.
type partly struct {
	*store
	tenant string
	widths []tile.Width

	mu     sync.Mutex
	mended chan struct{} // closed when the store works again; nil while it works
	hangs  bool
	takes  int // number of writes that succeed although the store fails

	atSync atomic.Pointer[func()] // called by the next sync
}

func (p *partly) Sync(ctx context.Context) error {
	if call := p.atSync.Swap(nil); call != nil {
		(*call)()
	}
	return p.store.Sync(ctx)
}

func (p *partly) breakIt(hangs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mended, p.hangs = make(chan struct{}), hangs
}

// take lets the given number of writes succeed, and waits until they have ended.
func (p *partly) take(writes int) {
	p.mu.Lock()
	p.takes = writes
	p.mu.Unlock()
	for taken := false; !taken; {
		time.Sleep(retryPause)
		p.mu.Lock()
		taken = p.takes == 0
		p.mu.Unlock()
	}
}

func (p *partly) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.mended)
	p.mended = nil
}

func (p *partly) WriteTiles(ctx context.Context, tenant string, w tile.Width,
	samples []tile.Sample) (tile.Written, error) {
	p.mu.Lock()
	mended, hangs := p.mended, p.hangs
	broken := mended != nil && tenant == p.tenant && slices.Contains(p.widths, w)
	if broken && p.takes > 0 {
		broken = false
		p.takes--
	}
	p.mu.Unlock()
	if broken {
		if !hangs {
			return tile.Written{}, errors.New("open tsdb/b/10s: not a directory")
		}
		<-mended // even after ctx is done
	}
	return p.store.WriteTiles(ctx, tenant, w, samples)
}

var bothWidths = []tile.Width{tile.Width10s, tile.Width1m}

// countOf adds n to counter a of each tenant, in one push, for the window of this second.
func (p *process) countOf(n float64, tenants ...string) error {
	return p.Push(p.t.Context(), p.countsOf(n, tenants...))
}

func (p *process) countsOf(n float64, tenants ...string) []batch.Batch {
	var batches []batch.Batch
	for _, tenant := range tenants {
		key := series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "a"))
		inc := batch.Increment{Key: key, Samples: 1, Value: n}
		sequence++
		h := batch.Header{Tenant: []byte(tenant), Shard: series.Shard(tenant, key), Producer: 1, Incarnation: 1,
			Sequence: sequence,
			Second:   p.now().Unix(), Birth: p.now().UnixNano()}
		b := inc.Append(batch.Begin(nil, &h), h.Second)
		batch.End(b, 1)
		batches = append(batches, batch.Batch{Shard: h.Shard, Bytes: b, Samples: 1})
		p.Aggregator.books.Ledger.Post(tenant, ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: 1},
			ledger.Transfer{From: ledger.Received, To: ledger.Window, Samples: 1})
	}
	return batches
}

// The store of one tenant fails, hangs, or takes only one width. Meanwhile another tenant's tiles are
// stored in time, and windows do not wait. After the repair nothing is missing.
func TestABrokenStoreDelaysOnlyItsOwn(t *testing.T) {
	for _, how := range []struct {
		name   string
		hangs  bool
		widths []tile.Width
	}{{"fails", false, bothWidths}, {"hangs", true, bothWidths}, {"one width fails", false, bothWidths[1:]}} {
		t.Run(how.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &partly{store: newStore(t), tenant: "b", widths: how.widths}
				var log bytes.Buffer
				p := startWith(t, t.TempDir(), s, time.Now, func(o *Options) {
					o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				})
				total, began := 0.0, time.Now()
				for second := range 900 {
					if second == 15 {
						s.breakIt(how.hangs)
					}
					begun := time.Now()
					if err := p.countOf(1, "default", "b"); err != nil || time.Since(begun) > time.Second {
						t.Fatalf("second %d: a push returned %v after %v, want no error within 1 s", second, err, time.Since(begun))
					}
					total++
					time.Sleep(time.Second)
					p.Through(time.Now().UnixMilli())
					times, _ := s.values("a")
					late := int64(0)
					if len(times) > 0 {
						late = time.Now().UnixMilli() - times[len(times)-1] - tileMillis
					}
					if most := int64(6500); late > most {
						t.Fatalf("second %d: the healthy tenant's tile is %d ms late, want at most %d", second, late, most)
					}
					if live, err := p.Live("b", tile.Width10s, 0, 1<<60, nil); err != nil || second > 20 && len(live) != 1 {
						t.Fatalf("second %d: queries do not return the waiting tiles: %v, %v", second, live, err)
					}
				}
				// The waiting samples are old, but in no store yet, so Live must return them.
				if live, err := p.Live("b", tile.Width1m, 0, began.Add(time.Minute).UnixMilli(), nil); err != nil ||
					len(live) != 1 {
					t.Errorf("a query of the first minute returns %v, %v, want the waiting tile", live, err)
				}
				s.mend()
				time.Sleep(30 * time.Second)
				checkCounterOf(t, s.store, "default", "a", total)
				checkCounterOf(t, s.store, "b", "a", total)
				for _, tenant := range []string{"default", "b"} {
					if books := p.books(tenant); books.Difference != 0 || books.Tile != 0 || books.Stored != uint64(total) {
						t.Errorf("%s: %+v", tenant, books)
					}
				}
				if len(p.Pending()) > 0 {
					t.Errorf("samples still wait after the repair: %v", p.Pending())
				}
				p.terminate()
				// A try fails each second for 15 minutes, and the log reports it each minute.
				said, again := strings.Count(log.String(), "samples wait until the store takes them"),
					strings.Count(log.String(), "the store takes samples again")
				if !how.hangs && (said < 10 || said > 16 || again != 1) {
					t.Errorf("got %d log lines that samples wait, want 10 to 16, and %d log lines that the store "+
						"takes samples again, want 1: %s",
						said, again, log.String())
				}
			})
		})
	}
}

// At the limit of waiting samples, the tenant's new windows are refused, with the tenant's name in the
// error. Windows of other tenants in the same push count. A repeat is accepted, because it is already
// counted. Nothing that was acknowledged is lost.
func TestAtItsBoundATenantIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &partly{store: newStore(t), tenant: "b", widths: bothWidths}
		p := startWith(t, t.TempDir(), s, time.Now, func(o *Options) { o.MaxPending = 2000 }) // some 30 samples
		s.breakIt(false)
		acknowledged, refused, began := 0, 0, time.Now()
		var first []batch.Batch
		for range 600 {
			batches := p.countsOf(1, "default", "b")
			if first == nil {
				first = batches
			}
			err := p.Push(t.Context(), batches)
			var full *batch.FullError
			switch {
			case err == nil:
				acknowledged++
			case errors.As(err, &full) && len(full.Samples) == 1 && full.Samples["b"] == 1 && full.Cause != nil:
				refused++
				p.Aggregator.books.Ledger.Post("b", ledger.Transfer{
					From: ledger.Window, To: ledger.Refused, Reason: "store_pending", Samples: 1})
			default:
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			p.Through(time.Now().UnixMilli())
		}
		// The tenant's answers are only complete up to the last counted window.
		if through, want := p.FoldedThrough("b"),
			began.Add(time.Duration(acknowledged)*time.Second).UnixMilli(); through != want {
			t.Errorf("the broken tenant's answers are complete up to %d ms after the last counted window, want 0",
				through-want)
		}
		if through := p.FoldedThrough("default"); through != time.Now().UnixMilli() {
			t.Errorf("the other tenant's answers are %d ms old, want 0", time.Now().UnixMilli()-through)
		}
		if acknowledged < 60 || refused < 60 || !p.Pending()["b"].Refused || p.Pending()["b"].Err == nil {
			t.Fatalf("%d windows were acknowledged, %d refused, want at least 60 of each: %+v",
				acknowledged, refused, p.Pending())
		}
		// The tenant's first window is already counted, so a repeated push of it loses nothing and
		// must succeed.
		if err := p.Push(t.Context(), first); err != nil {
			t.Errorf("a window that was already counted was refused: %v", err)
		}
		s.mend()
		time.Sleep(5 * time.Second)
		if err := p.countOf(1, "default", "b"); err != nil {
			t.Errorf("a window after the repair was refused: %v", err)
		}
		if through := p.FoldedThrough("b"); through < time.Now().Add(-6*time.Second).UnixMilli() {
			t.Error("the tenant's answers are still old after the repair")
		}
		time.Sleep(30 * time.Second)
		checkCounterOf(t, s.store, "default", "a", 601)
		if books := p.books("b"); books.Difference != 0 || books.Stored != uint64(acknowledged)+1 ||
			books.Refused["store_pending"] != uint64(refused) {
			t.Errorf("%+v", books)
		}
		p.terminate()
	})
}

// A full backlog does not grow, even if the tenant's counters live for a day. A replay gives the same
// backlog. After the repair, the counters are repeated again.
func TestWhatWaitsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := &partly{store: newStore(t), tenant: "b", widths: bothWidths}, t.TempDir()
		change := func(o *Options) { o.MaxPending, o.Config.CounterTTL = 2000, 24*time.Hour }
		p := startWith(t, dir, s, time.Now, change)
		s.breakIt(false)
		if err := p.countOf(7, "default", "b"); err != nil {
			t.Fatal(err)
		}
		waits := func() int64 {
			t.Helper()
			bytes := p.Pending()["b"].Bytes
			if bytes < 2000 || bytes > 2200 { // over the limit by at most the samples of one tile
				t.Fatalf("%d bytes wait, want 2000 to 2200", bytes)
			}
			return bytes
		}
		time.Sleep(10 * time.Minute)
		full := waits()
		time.Sleep(time.Hour)
		if grown := waits(); grown != full {
			t.Fatalf("after an hour without a sample, %d bytes wait, want %d as before", grown, full)
		}
		dir = p.kill(dir)
		p = startWith(t, dir, s, time.Now, change)
		time.Sleep(time.Minute)
		if again := waits(); again != full {
			t.Errorf("%d bytes wait after a restart, want %d as before", again, full)
		}
		s.mend()
		time.Sleep(time.Minute)
		times, values := s.valuesOf("b", "a")
		if len(times) == 0 || times[len(times)-1] < time.Now().Add(-20*time.Second).UnixMilli() ||
			values[len(values)-1] != 7 {
			t.Errorf("after the repair the counter has the values %v at %v, want 7 to be repeated", values, times)
		}
		p.terminate()
	})
}

// The process ends several times, regularly or by kill -9, while a tenant's store is broken. After the
// repair, each acknowledged increment is stored once. Checkpoints succeed while the store is broken,
// so the journal does not grow for ever.
func TestWhatWaitsSurvives(t *testing.T) {
	for _, how := range []string{"terminate", "kill", "kill after a checkpoint"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, dir := &partly{store: newStore(t), tenant: "b", widths: bothWidths}, t.TempDir()
				p := start(t, dir, s, time.Now)
				s.breakIt(false)
				total := 0.0
				for life := range 4 {
					for range 50 {
						if err := p.countOf(1, "default", "b"); err != nil {
							t.Fatal(err)
						}
						total++
						time.Sleep(time.Second)
					}
					switch how {
					case "terminate":
						begun := time.Now()
						p.terminate()
						if took := time.Since(begun); took > time.Second {
							t.Errorf("the stop took %v", took)
						}
					case "kill after a checkpoint":
						grown := p.log.Size()
						time.Sleep(checkpointInterval + 10*time.Second)
						if p.log.Size() > grown/2 {
							t.Fatalf("process %d: with a broken store, the journal has %d bytes, want a checkpoint to cut it",
								life, p.log.Size())
						}
						fallthrough
					default:
						dir = p.kill(dir)
					}
					p = start(t, dir, s, time.Now)
					if books := p.books("b"); books.Restored != uint64(total) || books.Tile != uint64(total) {
						t.Fatalf("the books open with %+v, want all %g acknowledged samples restored and in tiles",
							books, total)
					}
				}
				s.mend()
				time.Sleep(30 * time.Second)
				if books := p.books("b"); books.Stored != uint64(total) || books.Tile != 0 {
					t.Errorf("the books are %+v, want all %g acknowledged samples stored, and none in tiles",
						books, total)
				}
				checkSum(t, s.store, "b", total)
				checkSum(t, s.store, "default", total)
				p.terminate()
			})
		})
	}
}

// checkSum checks the total increase of counter a, across its resets.
func checkSum(t *testing.T, s *store, tenant string, want float64) {
	t.Helper()
	sum, last := 0.0, 0.0
	_, values := s.valuesOf(tenant, "a")
	for _, v := range values {
		switch {
		case v != v: // a stale marker
			continue
		case v < last:
			sum += v
		default:
			sum += v - last
		}
		last = v
	}
	if sum != want {
		t.Errorf("tenant %s: the stored total is %g, want %g as counted: %v", tenant, sum, want, values)
	}
}

// The end of a process does not wait for a write that hangs. The samples of that write are in the
// checkpoint.
func TestAStopDoesNotWaitForAWriteThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := &partly{store: newStore(t), tenant: "b", widths: bothWidths}, t.TempDir()
		p := start(t, dir, s, time.Now)
		s.breakIt(true)
		for range 20 {
			if err := p.countOf(1, "default", "b"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		begun := time.Now()
		p.terminate()
		if took := time.Since(begun); took > stalled+time.Second {
			t.Errorf("the stop took %v", took)
		}
		s.mend()
		p = start(t, dir, s, time.Now)
		time.Sleep(30 * time.Second)
		checkSum(t, s.store, "b", 20)
		checkSum(t, s.store, "default", 20)
		p.terminate()
	})
}

// A store is too slow to catch up, though each of its writes succeeds. The tiles of a downtime must not
// wait for this store. Otherwise new samples for the store would come meanwhile, and the tiles of every
// tenant would wait for ever.
func TestASlowStoreHoldsUpNoTiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Aggregator{backlogs: map[string]*backlog{}, metrics: tiling.NewMetrics(prometheus.NewRegistry())}
		b := a.backlogOf("b")
		for second := range 20 {
			if second%2 == 0 { // the next portion
				b.onItsWay, b.begun = true, time.Now()
			}
			if want := time.Duration(second)*time.Second < stalled; a.storing() != want {
				t.Errorf("after %d s, storing() is %v, want %v", second, !want, want)
			}
			time.Sleep(time.Second)
		}
	})
}

// The oldest programs wrote frameStored without a tenant's name. Such a frame means that all tenants'
// stores have the samples of all closed tiles of the shard.
func TestJournalsOfOlderProgramsAreReplayed(t *testing.T) {
	for _, stored := range []bool{true, false} {
		t.Run(fmt.Sprint("stored=", stored), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { replayOld(t, stored) })
		})
	}
}

func replayOld(t *testing.T, stored bool) {
	dir := t.TempDir()
	fs, err := files.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, _, err := journal.Open(fs, journal.Options{Mark: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Aggregator: &Aggregator{now: time.Now}, t: t}
	b := p.batch(time.Now(), "a", 3)
	boundary := time.Now().UnixMilli()
	boundary -= boundary % tileMillis
	frame := func(boundary int64) journal.Frame {
		payload := binary.AppendVarint(nil, boundary)
		for _, ttl := range []int64{300_000, 300_000, 3_600_000} {
			payload = binary.AppendVarint(payload, ttl)
		}
		return journal.Frame{Shard: b.Shard, Type: frameOldBoundary, Payload: payload}
	}
	frames := []journal.Frame{
		frame(boundary), {Shard: b.Shard, Type: frameBatch, Payload: b.Bytes}, frame(boundary + tileMillis),
	}
	if stored {
		frames = append(frames, journal.Frame{Shard: b.Shard, Type: frameStored})
	}
	if _, err := log.Append(frames); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	s := newStore(t)
	p = start(t, dir, s, time.Now)
	time.Sleep(time.Second)
	times, values := s.values("a")
	if want := []float64{0, 3}; stored && len(times) > 0 || !stored && !slices.Equal(values, want) {
		t.Errorf("the new process stored the values %v at %v, want 0 and 3, or no values if they were stored before",
			values, times)
	}
	p.terminate()
}

// Two tenants have series in one shard. A stored tile of one tenant says nothing about the other
// tenant's tiles, not even after a replay.
func TestStoredIsOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := &partly{store: newStore(t), tenant: "b", widths: bothWidths}, t.TempDir()
		name, key := "", []byte(nil)
		for i := 0; name == ""; i++ {
			try := fmt.Sprint("n", i)
			key = series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", try))
			if series.Shard("default", key) == series.Shard("b", key) {
				name = try
			}
		}
		p := start(t, dir, s, time.Now)
		s.breakIt(false)
		for _, tenant := range []string{"default", "b"} {
			p.pushAs(tenant, p.now().Unix(), batch.Increment{Key: key, Samples: 1, Value: 5})
		}
		time.Sleep(20 * time.Second) // now the healthy tenant's tile is stored
		checkCounterOf(t, s.store, "default", name, 5)
		dir = p.kill(dir)
		s.mend()
		p = start(t, dir, s, time.Now)
		time.Sleep(20 * time.Second)
		checkCounterOf(t, s.store, "default", name, 5)
		checkCounterOf(t, s.store, "b", name, 5)
		p.terminate()
	})
}
