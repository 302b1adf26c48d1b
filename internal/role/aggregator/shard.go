package aggregator

import (
	"sync"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// shard is a shard of tiles and the last journal frame that is in it.
type shard struct {
	mu       sync.Mutex // held by Run while it changes the tiles, and by those who look
	tiles    *tile.Shard
	position journal.Position
}

const tileMillis = 10_000

// foldOne counts one batch. Errors are bugs or damage, since the collector wrote it:
// they are counted, and cost only what could not be read.
func (a *Aggregator) foldOne(s *shard, b []byte) (h batch.Header, f tile.Folded) {
	f, err := s.tiles.Fold(b)
	if err != nil {
		a.metrics.damaged.Inc()
		a.logger.Error("a batch is damaged; what could be read of it is counted", "error", err)
	}
	h, _ = batch.ParseHeader(b)
	return h, f
}
