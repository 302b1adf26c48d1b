package aggregator

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// grown is a journal that counts the bytes that were appended to it.
type grown struct {
	*journal.Log
	bytes atomic.Int64
}

func (g *grown) Append(frames []journal.Frame) (journal.Position, error) {
	before := g.Size()
	position, err := g.Log.Append(frames)
	g.bytes.Add(g.Size() - before)
	return position, err
}

// With many series, a checkpoint is larger than aggregator.checkpoint. The journal grows to twice the checkpoint
// before the next one, or most of what is written would be checkpoints.
func TestCheckpointsAreSizedByTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, _, err := journal.Open(memfs.New(), journal.Options{Mark: 1, Boot: "boot"})
		if err != nil {
			t.Fatal(err)
		}
		g := &grown{Log: log}
		p := startFrom(t, g, newStore(t), time.Now, func(o *Options) { o.Config.Checkpoint = 2000 })
		for i := range 500 {
			p.mustCount(fmt.Sprintf("series_%d", i), 1)
		}
		time.Sleep(20 * time.Second) // until a checkpoint has all series
		synctest.Wait()
		checkpoints, bytes := testutil.ToFloat64(p.metrics.Checkpoints), g.bytes.Load()
		time.Sleep(2 * time.Minute) // each tile has a frame of each shard
		synctest.Wait()
		made, size := testutil.ToFloat64(p.metrics.Checkpoints)-checkpoints, p.savedSize
		if size <= 2000 {
			t.Fatalf("a checkpoint has %d bytes, want more than aggregator.checkpoint", size)
		}
		grew := g.bytes.Load() - bytes
		if most := 1 + float64(grew)/float64(2*size); made < 1 || made > most {
			t.Errorf("%v checkpoints of %d bytes, while the journal grew by %d; want 1 to %.1f", made, size, grew, most)
		}
		p.terminate()
	})
}
