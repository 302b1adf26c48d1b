package aggregator

import (
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// Reasons in the ledger why samples are not stored; the store has reasons of its
// own. docs/ledger.md explains them.
const (
	reasonLateGauge = "late_gauge"     // of a closed tile: it has nothing to say any more
	reasonTile      = "tile_refused"   // the sum would be beyond what a float holds, or does not fit the series
	reasonPolicy    = "policy_changed" // in open tiles of a timer that has other buckets now
	reasonRepeated  = "repeated"       // a sender's own delta of a time that was counted already
	reasonDuplicate = "duplicate"      // stamped by its sender with a time that has another value
)

// postFolded says what became of the samples of a window, by tenant. A batch that
// came before has counted nothing, so that nothing is posted twice.
func (a *Aggregator) postFolded(folded map[string]*tile.Folded) {
	for tenant, f := range folded {
		a.metrics.countFolded(f)
		a.ledger.Post(tenant,
			ledger.Transfer{From: ledger.Window, To: ledger.Tile, Samples: f.Samples},
			ledger.Transfer{From: ledger.Window, To: ledger.Late, Reason: reasonLateGauge, Samples: f.LateGauge},
			ledger.Transfer{From: ledger.Window, To: ledger.Refused, Reason: reasonTile, Samples: f.Refused},
			ledger.Transfer{From: ledger.Window, To: ledger.Refused, Reason: reasonRepeated, Samples: f.Repeated},
			ledger.Transfer{From: ledger.Tile, To: ledger.Refused, Reason: reasonPolicy, Samples: f.Dropped})
		a.ledger.Note(tenant, ledger.LateKept, f.Late)
		a.ledger.Note(tenant, ledger.Ahead, f.Ahead)
	}
}

// postDuplicates takes stamped gauges that gave way to a tile out of the tiles.
func (a *Aggregator) postDuplicates(byTenant map[string]uint64) {
	for tenant, n := range byTenant {
		a.metrics.duplicates.Add(float64(n))
		a.ledger.Post(tenant, ledger.Transfer{From: ledger.Tile, To: ledger.Refused, Reason: reasonDuplicate, Samples: n})
	}
}

// postWritten takes what was stored out of the tiles: not before all of a write is,
// since after a restart all of it is in them again.
func (a *Aggregator) postWritten(tenant string, w *tile.Written) {
	transfers := []ledger.Transfer{{From: ledger.Tile, To: ledger.Stored, Samples: w.Stored.Raw + w.Repeated.Raw}}
	for reason, n := range w.Refused {
		transfers = append(transfers, ledger.Transfer{From: ledger.Tile, To: ledger.Refused, Reason: tile.Reason(reason).String(), Samples: n.Raw})
	}
	a.ledger.Post(tenant, transfers...)
}

// postRestored opens the books with what is in tiles after a restart. What the
// journal repeated on the way there was posted by the process that wrote it.
func (a *Aggregator) postRestored() {
	held := map[string]uint64{}
	for i := range a.shards {
		for tenant, n := range a.shards[i].tiles.Raw() {
			held[tenant] += n
		}
	}
	for tenant, n := range held {
		a.ledger.Post(tenant,
			ledger.Transfer{From: ledger.Outside, To: ledger.Restored, Samples: n},
			ledger.Transfer{From: ledger.Restored, To: ledger.Tile, Samples: n})
	}
}
