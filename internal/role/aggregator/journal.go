package aggregator

import "github.com/freshet-io/freshet/internal/core/journal"

// Journal is where the aggregator keeps what it must not lose. Each method promises what that
// of journal.Log does.
type Journal interface {
	Load(fn func(shard uint16, pos journal.Position, payload []byte) error) error
	Replay(fn func(pos journal.Position, r journal.Frame) error) error
	Append(frames []journal.Frame) (journal.Position, error)
	Sync() error
	Size() int64
	BeginCheckpoint() (Checkpoint, error)
	Close() error
}

// Checkpoint is the state of all shards while it is being written, as journal.Checkpoint.
type Checkpoint interface {
	Base() journal.Position
	Section(shard uint16, pos journal.Position, payload []byte) error
	Commit() error
	Abort()
}

// Local is the journal in a directory of this process.
type Local struct{ *journal.Log }

// BeginCheckpoint starts a new checkpoint.
func (l Local) BeginCheckpoint() (Checkpoint, error) { return l.Log.BeginCheckpoint() }
