package querier

import (
	"github.com/freshet-io/freshet/internal/core/changes"
	"github.com/freshet-io/freshet/internal/core/stepcache"
)

// State is part of stepcache.Source.
func (q *Queryable) State(tenant string) stepcache.State {
	return stepcache.State{
		Stores: q.store.Changes(tenant).Mark(), Tiles: q.open.Changes(tenant).Mark(), // before the tiles are looked at
		Files: q.store.Files(tenant), FinalBefore: q.open.FinalBefore(tenant),
	}
}

// Same is part of stepcache.Source. Other blocks on disk mostly have the same samples, but the oldest may be gone.
func (q *Queryable) Same(tenant string, s stepcache.State) int64 {
	if q.store.Files(tenant) != s.Files {
		return changes.All
	}
	return min(s.FinalBefore, q.store.Changes(tenant).Since(s.Stores), q.open.Changes(tenant).Since(s.Tiles))
}
