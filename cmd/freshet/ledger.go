package main

import (
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/role/aggregator"
)

// Reasons in the ledger why a store did not take samples, beside its own.
const (
	reasonConflict = "conflict"         // another value is stored at that time: a bug of ours
	reasonTenants  = "too_many_tenants" // store.max_tenants
)

// written is what a store made of samples, in the words of the ledger.
func written(stats *tsdb.WriteStats) aggregator.Written {
	w := aggregator.Written{Stored: stats.RawStored, Refused: map[string]uint64{reasonConflict: stats.RawConflicts}}
	for reason, r := range stats.Refused {
		w.Refused[tsdb.Reason(reason).String()] = r.Raw
	}
	return w
}

// refusedAll says that no sample has a store to go to.
func refusedAll(samples []tile.Sample) aggregator.Written {
	var raw uint64
	for _, s := range samples {
		raw += s.Raw
	}
	return aggregator.Written{Refused: map[string]uint64{reasonTenants: raw}}
}
