package aggregator

import (
	"sync"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// shard is a shard of tiles and its last journal frame.
type shard struct {
	mu       sync.Mutex // held by Run to change the tiles, and by readers
	tiles    *tile.Shard
	position journal.Position
}

const tileMillis = 10_000

// foldOne counts one batch. Errors are bugs or damage, since the collector wrote it: they are
// counted, and cost only the unreadable part.
func (a *Aggregator) foldOne(s *shard, b []byte) (h batch.Header, f tile.Folded) {
	f, err := s.tiles.Fold(b)
	if err != nil {
		a.metrics.damaged.Inc()
		a.logger.Error("a batch is damaged; its readable part is counted", "error", err)
	}
	h, _ = batch.ParseHeader(b)
	return h, f
}
