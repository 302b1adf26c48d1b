package aggregator

import (
	"sync"

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
