// Package journal keeps what an aggregator must not lose when its process dies: a log of opaque
// frames, each of one shard, and checkpoints of the shards' state, which make older frames
// unnecessary.
//
// Logically each shard has its own journal: its frames never refer to another shard's, and are
// replayed on top of the shard's own checkpoint section. On disk the shards of an instance share
// one sequence of segment files, so that one window of all shards costs one write and one
// descriptor (docs/decisions/journal.md).
//
// The aggregator defines the content of frames and sections, and core/segment defines segments
// and frames. Layout and the laws of recovery: docs/format/journal.md.
package journal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/freshet-io/freshet/internal/core/notes"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/series"
)

const (
	// MaxPayload limits the payload of a segment's frame, and MaxSection the payload of a
	// checkpoint's frame, in bytes. A reader takes a greater length for damage, so the limits bound
	// its memory. Longer sections are cut into pieces.
	MaxPayload = 16 << 20
	MaxSection = 256 << 20

	// segmentBytes is the size of a full segment. Smaller segments are removed sooner after a
	// checkpoint; larger ones are fewer.
	segmentBytes = 64 << 20
)

// ErrTooLarge means that a frame exceeds MaxPayload: it can never be appended.
var ErrTooLarge = errors.New("frame too large")

// Position is the ordinal of a frame in the journal: the first is 1.
type Position = segment.Position

// Frame is a payload in one shard's journal.
type Frame struct {
	Shard   uint16 // below series.Shards
	Type    uint8  // chosen by the caller
	Payload []byte // at most MaxPayload bytes; may be nil
}

// Options of a journal.
type Options struct {
	// Mark begins every frame that this process writes, and lets a reader find the next frame
	// after damage. It must be a random number that senders cannot know, or they could forge
	// frames inside their payload.
	Mark uint32

	SegmentBytes int64 // 0 means 64 MiB

	// Boot names the present boot of the machine: see CommitUnsynced. If Boot is empty, each start
	// counts as a start after a power loss.
	Boot string

	// SectionBytes is the largest section that is written as one frame; longer sections are cut
	// into pieces. 0 means MaxSection, which is also the maximum.
	SectionBytes int
}

// Log is an open journal. Different goroutines may call Append, Sync, Size and the methods of a
// Checkpoint: a slow Sync or Commit does not hold up an Append.
type Log struct {
	fs   segment.FS
	opts Options
	plan plan // what Open found, for Load and Replay

	syncing sync.Mutex // held while a sealed segment is closed; taken before mu

	mu         sync.Mutex
	tail       segment.Appender
	found      []found      // segments found by Open, which may not be synced
	sealed     []sealed     // segments that ended since Open and are not synced
	newNames   bool         // a segment may have been created since the last SyncDir
	sinceBytes atomic.Int64 // bytes of frames since the last checkpoint; changed under mu
	base       Position     // position of the newest whole checkpoint
	synced     Position     // position of the newest checkpoint that all stores were synced for
	behind     int64        // bytes of frames between these two checkpoints
	marked     bool         // a file in the directory says that stores are not synced
	checkpoint *checkpoint
	doubtful   *doubtful // what failed syncs may have lost; nil if no sync failed since the last checkpoint

	notes.File // see Notes
}

// found is a segment of an earlier process.
type found struct {
	segment.File
	size int64 // in bytes, without a torn tail
}

// sealed is a segment that is complete but not synced. Its descriptor stays open, since the kernel
// reports a failed write-back only to descriptors that were open when it failed.
type sealed struct {
	segment.Writer
	first Position
}

// doubtful says that a sync failed, and that frames up to a position may not survive a power loss,
// whatever later syncs return. A checkpoint at that position or a later one replaces these frames, since
// the checkpoint is in a new file.
type doubtful struct {
	upTo  Position
	cause error // of the last failure
}

func (d *doubtful) err() error {
	if d == nil {
		return nil
	}
	return fmt.Errorf("frames up to %d of the journal may not survive a power loss until the next checkpoint is "+
		"in place; it is begun at once, and tried again if it fails: %w", d.upTo, d.cause)
}

// Append writes frames after all earlier ones, in one write, and returns the position of the last.
// The positions of the others precede it without a gap. Once Append has returned nil, the frames
// survive the death of the process.
//
// On an error none of the frames counts, and the next Append continues as if this one had not
// happened: the segment is cut back or, if that fails, abandoned for a new one. Replay may return
// the first few of the failed frames only if the process dies before the next Append succeeds, or
// the machine dies before the next Sync. A payload beyond MaxPayload is refused before anything is
// written.
func (l *Log) Append(frames []Frame) (Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(frames) == 0 {
		return l.tail.Last, nil
	}
	l.tail.Begin()
	for i := range frames {
		f := &frames[i]
		if f.Shard >= series.Shards {
			panic(fmt.Sprintf("BUG: journal frame for shard %d", f.Shard))
		}
		if len(f.Payload) > MaxPayload {
			return 0,
				fmt.Errorf("append to the journal of shard %d: %w: %d bytes exceed %d",
					f.Shard, ErrTooLarge, len(f.Payload), MaxPayload)
		}
		l.tail.Add(&segment.Frame{Tag: tag(f.Shard, f.Type), Payload: f.Payload})
	}
	if l.tail.Full() {
		l.seal()
	}
	began, err := l.tail.Write()
	l.newNames = l.newNames || began
	if err != nil {
		if !l.tail.CutBack() {
			l.seal()
		}
		return 0, fmt.Errorf("append %d frames to the journal: %w", len(frames), err)
	}
	l.sinceBytes.Add(l.tail.Added())
	return l.tail.Last, nil
}

// seal ends the active segment, if any.
func (l *Log) seal() {
	if f, first := l.tail.Active(); f != nil {
		l.sealed = append(l.sealed, sealed{l.tail.Seal(), first})
	}
}

// Sync makes all earlier frames survive a power loss, including those of an earlier process. The
// kernel reports a failed sync only once, and later syncs succeed without saving the bytes. So after an
// error, Sync keeps failing until a checkpoint with all frames up to the failure is committed: see
// Doubtful. Meanwhile the journal continues in a new segment, which Sync does sync.
func (l *Log) Sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	err := l.syncFiles()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.doubtful = &doubtful{l.tail.Last, err}
	}
	return l.doubtful.err()
}

// Doubtful reports whether a sync has failed, and the position up to which frames may not survive a
// power loss. Each Sync then fails until a checkpoint whose base is at least that position is committed.
func (l *Log) Doubtful() (upTo Position, failed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.doubtful == nil {
		return 0, false
	}
	return l.doubtful.upTo, true
}

// syncFiles syncs all files that need it, once each. It is called with the mutex syncing held.
func (l *Log) syncFiles() error {
	l.mu.Lock()
	found, done, newNames := l.found, l.sealed, l.newNames
	active, first := l.tail.Active()
	l.found, l.sealed, l.newNames = nil, nil, false
	l.mu.Unlock()

	var errs []error
	check := func(first Position, err error) bool {
		if err != nil {
			errs = append(errs, fmt.Errorf("sync journal segment %s: %w", segmentFormat.Name(first), err))
		}
		return err == nil
	}
	for _, s := range found {
		// Syncing these segments is not enough: a sync by the process that wrote them may have failed.
		check(s.First, segment.Rewrite(l.fs, s.Name, s.size))
	}
	for _, s := range done {
		check(s.first, s.Sync())
		_ = s.Close() // every error was reported by Sync
	}
	if active != nil && !check(first, active.Sync()) {
		l.giveUp(active)
	}
	if newNames {
		if err := l.fs.SyncDir(); err != nil {
			errs = append(errs, fmt.Errorf("sync journal directory: %w", err))
			l.mu.Lock()
			l.newNames = true
			l.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// giveUp closes a segment whose Sync failed while it was active, so that no later Sync declares
// its frames safe. An Append may have sealed it meanwhile.
func (l *Log) giveUp(w segment.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if active, _ := l.tail.Active(); active == w {
		l.tail.Seal()
	}
	l.sealed = slices.DeleteFunc(l.sealed, func(s sealed) bool { return s.Writer == w })
	_ = w.Close()
}

// Size returns the bytes of frames since the last checkpoint began, which a restart would replay.
// It does not wait for the disk, because it is a metric of the process, and metrics must be
// available when a disk hangs.
func (l *Log) Size() int64 {
	return l.sinceBytes.Load()
}

// Unsynced returns how many frames lie between the last checkpoint for which all stores were synced and
// the newest checkpoint. It also returns the size of all frames since the former checkpoint, which the
// journal keeps.
func (l *Log) Unsynced() (frames uint64, sizeBytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(l.base - l.synced), l.behind + l.sinceBytes.Load()
}

// Close syncs the journal and closes its files. No checkpoint may be under way.
func (l *Log) Close() error {
	err := l.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.tail.Seal(); f != nil {
		err = errors.Join(err, f.Close())
	}
	l.File.Close()
	return err
}
