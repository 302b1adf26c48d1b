package aggregator

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/settings"
)

// A process whose clock is an hour ahead folds the frames of another process, several frames of a shard
// at once. The clock must not decide where the first tile of an empty shard begins, as it used to do. A
// closed tile must also name the frame that closed it. It used to name the last frame of its shard in
// the same append, so a note of what is stored could name a frame that is too new.
func TestFramesDecideAlone(t *testing.T) {
	log, _, err := journal.Open(memfs.New(), journal.Options{Mark: 1})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Unix(1_800_000_000, 0)
	a, err := New(Options{
		Config: settings.DefaultAggregator(), MaxPending: 1 << 20, Log: log, Writer: newStore(t), Ledger: ledger.New(),
		Boot: "boot", Now: func() time.Time { return begun.Add(time.Hour) }, Registry: prometheus.NewRegistry(),
		Logger: discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t}
	counts := []batch.Batch{p.batch(begun, "a", 1), p.batch(begun.Add(10*time.Second), "a", 2)}
	shard := counts[0].Shard
	frames := []journal.Frame{
		a.boundaryFrame(shard, begun.UnixMilli(), nil),
		{Shard: shard, Type: frameBatch, Payload: counts[0].Bytes},
		a.boundaryFrame(shard, begun.UnixMilli()+tileMillis, nil),
		{Shard: shard, Type: frameBatch, Payload: counts[1].Bytes},
	}
	if err := a.append(frames); err != nil {
		t.Fatal(err)
	}
	a.fold(frames)
	tiles := a.backlogOf("default").tiles
	if len(tiles) != 1 || tiles[0].Index != 3 || tiles[0].Samples[tile.Width10s][1].V != 1 {
		t.Errorf("the waiting tiles are %+v, want one with the value 1, closed by frame 3", tiles)
	}
}
