package aggregator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// slowly is a store in which each commit takes 100 ms.
type slowly struct{ *store }

func (s slowly) WriteTiles(ctx context.Context, tenant string, w tile.Width, all []tile.Sample) (tile.Written, error) {
	time.Sleep(100 * time.Millisecond)
	return s.store.WriteTiles(ctx, tenant, w, all)
}

// Whenever a process stops normally, its stores get all closed tiles. So older programs can read its
// state: they do not know state 7, which only a shard with waiting tiles has.
func TestAStopStoresAllTiles(t *testing.T) {
	// `after` is the time from the end of a tile to the stop.
	for after := time.Duration(0); after < 10*time.Second; after += 500 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			dir, s := t.TempDir(), slowly{newStore(t)}
			p := start(t, dir, s, time.Now)
			for range 40 {
				for i := range 20 {
					p.mustCount(fmt.Sprint("c", i), 1)
				}
				time.Sleep(time.Second)
			}
			time.Sleep(p.now().Truncate(10 * time.Second).Add(10*time.Second + after).Sub(p.now()))
			p.terminate()
			fs, err := files.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			log, _, err := journal.Open(fs, journal.Options{Mark: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			if err := log.Load(func(shard uint16, _ journal.Position, state []byte) error {
				if state[0] > 6 {
					t.Errorf("stopped %v after the end of a tile: shard %d has state %d, want at most 6", after, shard, state[0])
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
