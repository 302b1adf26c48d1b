package aggregator

import (
	"context"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/settings"
)

// Journal keeps what the aggregator must not lose. Each method promises the same as the method of
// journal.Log with the same name.
type Journal interface {
	Load(fn func(shard uint16, pos journal.Position, payload []byte) error) error
	Replay(fn func(pos journal.Position, f journal.Frame) error) error
	Append(frames []journal.Frame) (journal.Position, error)
	Sync() error
	Doubtful() (upTo journal.Position, failed bool)
	Size() int64
	Unsynced() (frames uint64, sizeBytes int64)
	BeginCheckpoint() (journal.Checkpoint, error)
	Notes() ([][]byte, error)
	BeginNotes(all [][]byte) error
	Note(note []byte) error
	Close() error
}

// append journals frames and notes their positions.
func (a *Aggregator) append(frames []journal.Frame) error {
	last, err := a.log.Append(frames)
	if err != nil {
		a.metrics.JournalErrors.Inc()
		return fmt.Errorf("journal %d frames: %w", len(frames), err)
	}
	a.last = last
	a.applied.Store(uint64(last))
	first := last - journal.Position(len(frames)) + 1
	for i, f := range frames {
		a.positions[f.Shard] = first + journal.Position(i)
	}
	return nil
}

// syncLoop syncs the journal to the disk once a second.
func (a *Aggregator) syncLoop(ctx context.Context) {
	if a.config.Fsync != settings.FsyncInterval {
		return
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := a.log.Sync(); err != nil {
				a.metrics.JournalErrors.Inc()
				a.logger.Error("the journal could not be synced: a power loss would lose more than the last second", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}
