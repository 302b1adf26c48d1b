package tsdb

import (
	"sync"

	prom "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/tsdb"
)

// exemplarRoom is how many exemplars an open database has memory for. tsdb allocates the memory for
// all of them at once: 0.7 MB for 10,000, more than the rest of a small database. So a database
// has no room until its first exemplar comes. While the database opens, though, it has full room,
// because its WAL may have exemplars. If the WAL has none, the database then frees the memory.
type exemplarRoom struct {
	mu         sync.Mutex
	most       int64 // store.exemplars
	now        int64
	outOfOrder int64 // tsdb's present window, in milliseconds
}

// grow makes room for exemplars if there is none yet.
func (r *exemplarRoom) grow(db *tsdb.DB) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now < r.most {
		r.resize(db, r.most)
	}
}

// resize changes the room. The caller holds r.mu, or has a database that is not yet shared. resize
// passes all settings, because ApplyConfig turns off each setting that is missing.
func (r *exemplarRoom) resize(db *tsdb.DB, room int64) {
	db.Head().ApplyConfig(&prom.Config{StorageConfig: prom.StorageConfig{
		TSDBConfig:      &prom.TSDBConfig{OutOfOrderTimeWindow: r.outOfOrder},
		ExemplarsConfig: &prom.ExemplarsConfig{MaxExemplars: room},
	}}, nil)
	r.now = room
}
