package journal

import (
	"bufio"
	"errors"
	"fmt"
	"slices"

	stores "github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Types of a checkpoint's frames. The payload of a piece begins with the number of the piece within the
// section, from 0. Pieces have a type of their own, so that an older program does not mistake them for
// sections.
const (
	sectionFrame   = 1
	endFrame       = 2
	pieceFrame     = 3
	lastPieceFrame = 4

	pieceBytes = 4 // the size of a piece's number
)

// pieces gathers the pieces of one section, which are consecutive frames.
type pieces struct {
	shard  uint16
	pos    Position
	frames []span
	end    int64 // the offset in the file at which the last frame ends
}

// add takes the next piece. `before` is the end of the frame before the piece. add returns false if
// the piece neither is the first of its section nor continues the previous piece. So a section with
// a missing piece is missing as a whole.
func (p *pieces) add(f *segment.Frame, before int64) bool {
	if len(f.Payload) < pieceBytes {
		return false
	}
	number, shard := order.Uint32(f.Payload), shardOf(f.Tag)
	if number == 0 {
		*p = pieces{shard: shard, pos: f.Pos}
	}
	if int(number) != len(p.frames) || shard != p.shard || f.Pos != p.pos ||
		number > 0 && (f.Offset != p.end || before != p.end) {
		p.frames = nil
		return false
	}
	at := spanOf(f)
	p.frames, p.end = append(p.frames, at), at.end()
	return true
}

const checkpointTemp = "checkpoint.tmp"

var errBusy = errors.New("begin checkpoint: another checkpoint is being written")

// Checkpoint is the state of all shards while it is being written. Its methods are not safe for
// concurrent use, but Append may be called between and during them. Checkpoint is an interface
// because a replicated log writes checkpoints of its own.
type Checkpoint interface {
	// Base is the last position that was appended before BeginCheckpoint. No section has a lower
	// position.
	Base() Position

	// Section writes the state of a shard as of pos: the state includes every frame of the shard up
	// to pos and none after it. pos is at least Base, even for a shard that has had no frames for
	// long. Sections may come in any order. A shard that had no state at BeginCheckpoint needs no
	// section. The payload can be reused when Section returns.
	Section(shard uint16, pos Position, payload []byte) error

	// Commit puts the checkpoint in the place of the previous one. The previous one counts until Commit
	// returns nil, or returns an error that says that the new one is in place.
	Commit() error

	// CommitUnsynced commits a checkpoint while some stores are not synced. A power loss may then take
	// samples that only these stores have. The checkpoint counts as long as the machine runs. After a power
	// loss, a start uses the last checkpoint that Commit committed. The journal keeps that checkpoint and all
	// later frames. CommitUnsynced first syncs these frames.
	CommitUnsynced() error

	// Abort ends a checkpoint that will not be committed. It does nothing after Commit.
	Abort()
}

// checkpoint is a Checkpoint in a file of this journal.
type checkpoint struct {
	log        *Log
	base       Position // the position of the last frame before the checkpoint began
	sinceBytes int64    // the log's sinceBytes when the checkpoint began
	file       segment.Writer
	w          *bufio.Writer
	written    [series.Shards]bool
	count      uint32
}

// Base implements Checkpoint.
func (c *checkpoint) Base() Position { return c.base }

// BeginCheckpoint starts a new checkpoint and a new segment. Only one checkpoint can be written
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
	c := &checkpoint{
		log: l, base: l.tail.Last, sinceBytes: l.sinceBytes.Load(), file: f, w: bufio.NewWriterSize(f, 256<<10),
	}
	// The buffered writer keeps the error of a failed write, and Section or Commit returns it.
	_, _ = c.w.Write(segment.AppendHeader(nil, checkpointFormat.Magic, l.opts.Mark, c.base))
	l.checkpoint = c
	return c, nil
}

// Section implements Checkpoint. A section that is too long for one frame is cut into pieces.
func (c *checkpoint) Section(shard uint16, pos Position, payload []byte) error {
	c.log.mu.Lock()
	last := c.log.tail.Last
	c.log.mu.Unlock()
	if shard >= series.Shards || c.written[shard] || pos < c.base || pos > last {
		panic(fmt.Sprintf("BUG: checkpoint section of shard %d at position %d; repeated, not a shard, or outside of %d to %d",
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

// Commit implements Checkpoint. It keeps the previous checkpoint, and the segments that a start
// from the previous checkpoint needs, in case the new one is damaged. It removes all older files.
func (c *checkpoint) Commit() error {
	defer c.Abort()
	err := c.finish()
	if err == nil && c.log.marked {
		err = stores.EndUnsynced(c.log.fs)
	}
	if err != nil {
		return fmt.Errorf("write checkpoint at position %d: %w", c.base, err)
	}
	return c.replace(c.log.committed(c, true))
}

// CommitUnsynced implements Checkpoint.
func (c *checkpoint) CommitUnsynced() error {
	defer c.Abort()
	synced := c.log.synced // only Open and commits change it
	err := c.log.Sync()
	if err == nil {
		c.log.marked = true
		err = (&stores.Unsynced{Base: uint64(synced), Boot: c.log.opts.Boot}).Write(c.log.fs)
	}
	if err == nil {
		err = c.finish()
	}
	if err != nil {
		return fmt.Errorf("write checkpoint at position %d, without all stores: %w", c.base, err)
	}
	return c.replace(c.log.committed(c, false), synced)
}

// replace removes the files that a start no longer needs. It keeps the new checkpoint, the checkpoints
// at the positions `keep`, and the segments after the lowest of these positions.
func (c *checkpoint) replace(keep ...Position) error {
	if err := removeBelow(c.log.fs, c.base, keep...); err != nil {
		return fmt.Errorf("checkpoint at position %d is in place, but the files that it replaces could not be "+
			"removed: %w", c.base, err)
	}
	return nil
}

// finish writes the end frame and renames the file. Each step is safe on disk before the next
// begins.
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

// Abort implements Checkpoint.
func (c *checkpoint) Abort() {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.checkpoint != c {
		return
	}
	l.checkpoint = nil
	_ = c.file.Close()
	_ = l.fs.Remove(checkpointTemp) // no error matters: the file is already renamed, or the next checkpoint replaces it
}

// committed is called when c is in place. It makes c the newest checkpoint, and returns the base of
// the older checkpoint, which is kept. If `synced`, all stores were synced for c.
func (l *Log) committed(c *checkpoint, synced bool) (keep Position) {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkpoint = nil
	_ = c.file.Close()
	l.sinceBytes.Add(-c.sinceBytes)
	keep, l.base = l.base, c.base
	if !synced {
		l.behind += c.sinceBytes
		return keep
	}
	l.synced, l.behind, l.marked = c.base, 0, false
	if l.doubtful != nil && l.doubtful.upTo <= c.base {
		l.doubtful = nil
	}

	// The checkpoint and the stores are synced, so the segments before it need no sync.
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

// removeBelow removes the checkpoints and segments that neither the checkpoint at `newest` nor those at
// `keep` need. If `keep` contains `newest`, nothing was appended between the two checkpoints: the newer
// has replaced the older, and removeBelow removes nothing.
func removeBelow(fs segment.FS, newest Position, keep ...Position) error {
	if slices.Contains(keep, newest) {
		return nil
	}
	lowest := slices.Min(keep)
	names, err := fs.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		base, isCheckpoint := checkpointFormat.ParseName(name)
		first, isSegment := segmentFormat.ParseName(name)
		if (isCheckpoint && base != newest && !slices.Contains(keep, base)) || (isSegment && first <= lowest) {
			if err := fs.Remove(name); err != nil {
				errs = append(errs, fmt.Errorf("remove %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}
