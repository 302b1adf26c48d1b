package tiling

import (
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// These reasons in the ledger say why samples are not stored. The store has further reasons.
// docs/ledger.md explains all of them.
const (
	reasonLateGauge = "late_gauge"       // its tile was already closed, so the value is of no use
	reasonTile      = "tile_refused"     // the sum would overflow, or the value does not fit the series
	reasonPolicy    = "policy_changed"   // lost from open tiles, since the buckets of the timer changed
	reasonRepeated  = "repeated"         // a sender's delta for a time that is already counted
	reasonTenant    = "too_many_tenants" // the tenant is not admitted
	reasonDuplicate = "duplicate"        // stamped by its sender with a time that already has another value
)

// NotAdmitted is the text of the log line when samples of a tenant are refused for reasonTenant.
const NotAdmitted = "samples of a tenant are refused, since as many tenants are admitted as " +
	"store.max_tenants allows; " +
	"raise the setting, or find what creates so many tenants"

// Ledger keeps the books of samples.
type Ledger interface {
	Post(tenant string, transfers ...ledger.Transfer)
	Note(tenant string, which ledger.OfWhich, samples uint64)
}

// Books posts to the ledger what became of samples in tiles.
type Books struct {
	Ledger  Ledger
	Metrics *Metrics

	// Collected says that the windows come from the log of a group, where the collectors of several processes
	// handed them over.
	Collected bool
}

// Folded posts what became of a window's samples, by tenant. A repeated batch has no counts here, so
// nothing is posted twice.
func (b Books) Folded(folded map[string]*tile.Folded) {
	from := ledger.Window
	if b.Collected {
		from = ledger.Collected
	}
	for tenant, f := range folded {
		b.Metrics.Count(f)
		if b.Collected {
			all := f.Samples + f.LateGauge + f.Refused + f.Repeated + f.NoTenant
			b.Ledger.Post(tenant, ledger.Transfer{From: ledger.Outside, To: ledger.Collected, Samples: all})
		}
		b.Ledger.Post(tenant,
			ledger.Transfer{From: from, To: ledger.Tile, Samples: f.Samples},
			ledger.Transfer{From: from, To: ledger.Late, Reason: reasonLateGauge, Samples: f.LateGauge},
			ledger.Transfer{From: from, To: ledger.Refused, Reason: reasonTile, Samples: f.Refused},
			ledger.Transfer{From: from, To: ledger.Refused, Reason: reasonRepeated, Samples: f.Repeated},
			ledger.Transfer{From: from, To: ledger.Refused, Reason: reasonTenant, Samples: f.NoTenant},
			ledger.Transfer{From: ledger.Tile, To: ledger.Refused, Reason: reasonPolicy, Samples: f.Unfit})
		b.Ledger.Note(tenant, ledger.LateKept, f.Late)
		b.Ledger.Note(tenant, ledger.Ahead, f.Ahead)
	}
}

// Duplicates posts duplicate gauge samples: if their sender stamped them with a time that already has
// another value, they leave the ledger's state Tile.
func (b Books) Duplicates(byTenant map[string]uint64) {
	for tenant, n := range byTenant {
		b.Metrics.Duplicates.Add(float64(n))
		b.Ledger.Post(tenant, ledger.Transfer{From: ledger.Tile, To: ledger.Refused, Reason: reasonDuplicate, Samples: n})
	}
}

// Written moves stored samples out of the ledger's state Tile. Call it only after the whole write is
// stored: if the process restarts before that, all samples of the write are in tiles again.
func (b Books) Written(tenant string, w *tile.Written) {
	transfers := []ledger.Transfer{{From: ledger.Tile, To: ledger.Stored, Samples: w.Stored.Raw + w.Repeated.Raw}}
	for reason, n := range w.Refused {
		transfers = append(transfers,
			ledger.Transfer{From: ledger.Tile, To: ledger.Refused, Reason: tile.Reason(reason).String(), Samples: n.Raw})
	}
	b.Ledger.Post(tenant, transfers...)
}

// Restored opens the books after a restart with the samples that are in tiles. The other samples of
// the replay were posted by the process that wrote the journal.
func (b Books) Restored(shards *tile.Shards) {
	for tenant, n := range shards.Raw() {
		b.Ledger.Post(tenant,
			ledger.Transfer{From: ledger.Outside, To: ledger.Restored, Samples: n},
			ledger.Transfer{From: ledger.Restored, To: ledger.Tile, Samples: n})
	}
}
