package aggregator

import "github.com/freshet-io/freshet/internal/core/journal"

// Journal is where the aggregator keeps what it must not lose. Each method promises what the one
// of journal.Log does.
type Journal interface {
	Load(fn func(shard uint16, pos journal.Position, payload []byte) error) error
	Replay(fn func(pos journal.Position, r journal.Frame) error) error
	Append(frames []journal.Frame) (journal.Position, error)
	Sync() error
	Size() int64
	BeginCheckpoint() (journal.Checkpoint, error)
	Close() error
}
