package journal

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Types of a checkpoint's frames. The payload of a piece begins with its number in the
// section, from 0. A program that does not know pieces takes none of them for a section.
const (
	sectionFrame   = 1
	endFrame       = 2
	pieceFrame     = 3
	lastPieceFrame = 4

	pieceBytes = 4 // of the number
)

// pieces gathers those of one section: they follow each other without a gap.
type pieces struct {
	shard  uint16
	pos    Position
	frames []span
	end    int64 // of the last frame
}

// add takes the next piece, behind the frame that ended at before. It reports false if the
// piece is not the first of its section and does not continue the one before, so that a
// section with a piece missing is missing as a whole.
func (p *pieces) add(f *segment.Frame, before int64) bool {
	if len(f.Payload) < pieceBytes {
		return false
	}
	number, shard := order.Uint32(f.Payload), shardOf(f.Tag)
	if number == 0 {
		*p = pieces{shard: shard, pos: f.Pos}
	}
	if int(number) != len(p.frames) || shard != p.shard || f.Pos != p.pos || number > 0 && (f.Offset != p.end || before != p.end) {
		p.frames = nil
		return false
	}
	at := spanOf(f)
	p.frames, p.end = append(p.frames, at), at.end()
	return true
}

const checkpointTemp = "checkpoint.tmp"

var errBusy = errors.New("begin checkpoint: another one is being written")

// Checkpoint is the state of all shards while it is being written. Its methods are not for
// concurrent use, but Appends may go on between and during them. It is an interface, since a log
// that other machines hold writes its own.
type Checkpoint interface {
	// Base is the last position that was appended before BeginCheckpoint: the least that a
	// section can have.
	Base() Position

	// Section writes the state of a shard as of pos: every frame of the shard up to pos is in it
	// and none behind. pos is at least Base, also for a shard without frames for long. The order
	// of the sections is free. A shard that had no state at BeginCheckpoint needs no section. The
	// payload can be used again when Section returns.
	Section(shard uint16, pos Position, payload []byte) error

	// Commit puts the checkpoint in place of the one before. Until it returns nil, or an error
	// that says that the checkpoint is in place, the one before counts.
	Commit() error

	// Abort ends a checkpoint that will not be committed. After Commit it does nothing.
	Abort()
}

// checkpoint is one in a file of this journal.
type checkpoint struct {
	log        *Log
	base       Position // the last frame before it was begun
	sinceBytes int64    // log's, then
	file       segment.Writer
	w          *bufio.Writer
	written    [series.Shards]bool
	count      uint32
}

// Base is a method of Checkpoint.
func (c *checkpoint) Base() Position { return c.base }

// BeginCheckpoint starts a new checkpoint and a new segment. One can be written
// at a time.
func (l *Log) BeginCheckpoint() (Checkpoint, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.checkpoint != nil {
		return nil, errBusy
	}
	f, err := l.fs.Create(checkpointTemp)
	if err != nil {
		return nil, fmt.Errorf("begin checkpoint: create %s: %w", checkpointTemp, err)
	}
	l.seal()
	c := &checkpoint{log: l, base: l.tail.Last, sinceBytes: l.sinceBytes.Load(), file: f, w: bufio.NewWriterSize(f, 256<<10)}
	// An error stays with the buffered writer and comes back from Section or Commit.
	_, _ = c.w.Write(segment.AppendHeader(nil, checkpointFormat.Magic, l.opts.Mark, c.base))
	l.checkpoint = c
	return c, nil
}

// Section is a method of Checkpoint. A section that is too long for one frame is cut.
func (c *checkpoint) Section(shard uint16, pos Position, payload []byte) error {
	c.log.mu.Lock()
	last := c.log.tail.Last
	c.log.mu.Unlock()
	if shard >= series.Shards || c.written[shard] || pos < c.base || pos > last {
		panic(fmt.Sprintf("BUG: checkpoint section of shard %d at position %d; repeated, or not a shard, or outside of %d to %d",
			shard, pos, c.base, last))
	}
	var err error
	if len(payload) <= c.log.opts.SectionBytes {
		err = c.put(tag(shard, sectionFrame), pos, payload)
	} else {
		err = c.putPieces(shard, pos, payload)
	}
	if err != nil {
		return fmt.Errorf("write checkpoint section of shard %d: %w", shard, err)
	}
	c.written[shard] = true
	c.count++
	return nil
}

// putPieces writes a section that is too long for one frame.
func (c *checkpoint) putPieces(shard uint16, pos Position, payload []byte) error {
	for number, typ := uint32(0), uint8(pieceFrame); typ == pieceFrame; number++ {
		n := min(c.log.opts.SectionBytes-pieceBytes, len(payload))
		if n == len(payload) {
			typ = lastPieceFrame
		}
		if err := c.put(tag(shard, typ), pos, order.AppendUint32(nil, number), payload[:n]); err != nil {
			return err
		}
		payload = payload[n:]
	}
	return nil
}

func (c *checkpoint) put(tag uint32, pos Position, payload ...[]byte) error {
	return checkpointFormat.WriteFrame(c.w, c.log.opts.Mark, &segment.Frame{Pos: pos, Tag: tag}, payload...)
}

// Commit is a method of Checkpoint. The checkpoint before is kept together with the segments that
// it needs, in case this one is ever damaged; what is older is removed.
func (c *checkpoint) Commit() error {
	defer c.Abort()
	if err := c.finish(); err != nil {
		return fmt.Errorf("write checkpoint at position %d: %w", c.base, err)
	}
	keep := c.log.committed(c)
	if err := removeBelow(c.log.fs, keep, c.base); err != nil {
		return fmt.Errorf("checkpoint at position %d is in place, but what it replaces is not removed: %w", c.base, err)
	}
	return nil
}

// finish writes the end and gives the file its name, each step safe on disk
// before the next.
func (c *checkpoint) finish() error {
	if err := c.put(tag(0, endFrame), c.base, order.AppendUint32(nil, c.count)); err != nil {
		return err
	}
	if err := c.w.Flush(); err != nil {
		return err
	}
	if err := c.file.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	name := checkpointFormat.Name(c.base)
	if err := c.log.fs.Rename(checkpointTemp, name); err != nil {
		return fmt.Errorf("rename %s to %s: %w", checkpointTemp, name, err)
	}
	if err := c.log.fs.SyncDir(); err != nil {
		return fmt.Errorf("sync journal directory: %w", err)
	}
	return nil
}

// Abort is a method of Checkpoint.
func (c *checkpoint) Abort() {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.checkpoint != c {
		return
	}
	l.checkpoint = nil
	_ = c.file.Close()
	_ = l.fs.Remove(checkpointTemp) // gone already if it was renamed; replaced by the next one if it stays
}

// committed makes c the newest checkpoint and returns the base of the one to
// keep besides it.
func (l *Log) committed(c *checkpoint) (keep Position) {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkpoint = nil
	_ = c.file.Close()
	l.sinceBytes.Add(-c.sinceBytes)
	keep, l.base = l.base, c.base

	// The checkpoint is synced, so the segments before it need not be.
	l.found = nil
	rest := l.sealed[:0]
	for _, s := range l.sealed {
		if s.first <= c.base {
			_ = s.Close()
		} else {
			rest = append(rest, s)
		}
	}
	clear(l.sealed[len(rest):])
	l.sealed = rest
	return keep
}

// removeBelow removes the checkpoints and segments that neither the checkpoint at
// newest nor the one at keep needs. Nothing was appended between two at the same
// position; then the older one has been replaced, and what lies behind it stays.
func removeBelow(fs segment.FS, keep, newest Position) error {
	if keep == newest {
		return nil
	}
	names, err := fs.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		base, isCheckpoint := checkpointFormat.ParseName(name)
		first, isSegment := segmentFormat.ParseName(name)
		if (isCheckpoint && base != keep && base != newest) || (isSegment && first <= keep) {
			if err := fs.Remove(name); err != nil {
				errs = append(errs, fmt.Errorf("remove %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}
