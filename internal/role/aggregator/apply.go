package aggregator

import (
	"errors"
	"fmt"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// fold applies frames that were just appended, and posts them in the ledger.
func (a *Aggregator) fold(frames []journal.Frame) {
	folded := map[string]*tile.Folded{}
	first := a.last - journal.Position(len(frames)) + 1
	for i, f := range frames {
		applied, err := a.apply(first+journal.Position(i), f)
		if err != nil {
			a.logger.Error("BUG: an appended frame cannot be applied", "error", err)
			continue
		}
		a.handOver(f.Shard, applied.closed)
		if f.Type != frameBatch {
			continue
		}
		sum := folded[string(applied.header.Tenant)]
		if sum == nil {
			sum = new(tile.Folded)
			folded[string(applied.header.Tenant)] = sum
		}
		sum.Add(applied.folded)
	}
	a.books.Folded(folded)
}

// handOver takes the samples of tiles that were just closed, appends them to the backlogs of their
// tenants, and posts them in the ledger.
func (a *Aggregator) handOver(shard uint16, all []tile.Closed) {
	for _, closed := range all {
		a.metrics.Tiled.Add(float64(closed.Samples))
		a.books.Duplicates(closed.Duplicates)
		for _, w := range closed.Waiting {
			a.backlogOf(w.Tenant).add(closedTile{shard, w})
		}
	}
}

// applied is the effect of one frame on its shard.
type applied struct {
	header batch.Header  // of a batch
	folded tile.Folded   // of a batch
	closed []tile.Closed // closed by a boundary, in order
}

// apply changes a shard as a frame of the journal says. `at` is the frame's position. Either this
// process or an earlier one appended the frame. apply reads no clock and no store. It uses the
// configuration only for values that frames of older programs lack. So the same frames always give the
// same tiles. It fails only for a frame of a newer program.
func (a *Aggregator) apply(at journal.Position, f journal.Frame) (done applied, err error) {
	switch f.Type {
	case frameBatch:
		done.header, done.folded, err = a.shards.Fold(f.Shard, f.Payload)
		if err != nil && !errors.Is(err, batch.ErrNewer) {
			a.metrics.Damaged.Inc()
			a.logger.Error("a batch is damaged; its readable part is counted", "error", err)
			err = nil
		}
	case frameBoundary, frameOldBoundary:
		boundary, config, ok := a.parseBoundary(f)
		if !ok {
			a.logger.Error("a boundary of the journal is damaged", "payload", f.Payload)
			return done, nil
		}
		done.closed = a.shards.CloseUpTo(f.Shard, uint64(at), boundary, &config)
	default:
		err = fmt.Errorf("frame of unknown type %d: it was written by a newer version", f.Type)
	}
	return done, err
}
