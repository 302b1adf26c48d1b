package member

import (
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// tenant has what waits for a tenant's stores, and what decides about its requests.
type tenant struct {
	name string

	tiles        []Tile
	tilesBytes   int64
	tilesSamples uint64 // values on the wire
	tilesWork    *Work  // under way, or nil

	requests     []*Request
	requestsWork *Work        // likewise
	state        *write.State // after the last request that left the queue
	written      uint64       // index of that request
	queued       []uint64     // indexes of entries that Requeue still has to put back
}

// Tile is a closed tile of a tenant in a shard.
type Tile struct {
	Index uint64 // of the entry that closed it
	Shard uint16
	*tile.Waiting
}

// first returns the lowest index of what waits.
func (t *tenant) first() uint64 {
	first := never
	if len(t.tiles) > 0 {
		first = t.tiles[0].Index
	}
	if len(t.requests) > 0 {
		first = min(first, t.requests[0].Index)
	}
	if len(t.queued) > 0 {
		first = min(first, t.queued[0])
	}
	return first
}

func (t *tenant) addTile(x Tile) {
	t.tiles = append(t.tiles, x)
	t.tilesBytes += x.Bytes
	t.tilesSamples += x.Raw
}

// Waiting says what waits for the stores of a tenant.
type Waiting struct {
	Tiles    int
	Bytes    int64  // of tiles, about
	Samples  uint64 // values on the wire in tiles
	Since    int64  // Unix ms, the end of the oldest tile; 0 for none
	Requests int
}

// Waiting returns what waits for the stores of a tenant.
func (m *Member) Waiting(tenant string) (w Waiting) {
	t := m.tenants[tenant]
	if t == nil {
		return w
	}
	w = Waiting{Tiles: len(t.tiles), Bytes: t.tilesBytes, Samples: t.tilesSamples, Requests: len(t.requests)}
	if len(t.tiles) > 0 {
		w.Since = t.tiles[0].Boundary
	}
	return w
}
