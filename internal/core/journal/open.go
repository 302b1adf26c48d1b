package journal

import (
	"cmp"
	"fmt"
	"slices"

	stores "github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/notes"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/series"
)

// plan says what a start reads: the place of each section, and the segments after the sections.
type plan struct {
	sections [series.Shards]section
	segments []segmentFile
}

// section is one shard's state in a checkpoint.
type section struct {
	file   string // "" if the shard has no section
	pos    Position
	frames []span // the section as one frame, or its pieces in order
}

// span is the place of a frame.
type span struct {
	offset int64
	length int // of the payload, in bytes
}

func spanOf(f *segment.Frame) span { return span{f.Offset, len(f.Payload)} }

func (s span) end() int64 { return s.offset + segment.FrameBytes + int64(s.length) }

// segmentFile is a segment, with the number of its frames that count and are whole.
type segmentFile struct {
	segment.File
	frames int
}

// Open finds the journal in fs, cuts off the torn frame that the death of the last process left at
// the end, and reports what it found, including losses. Open reads each file once. Damage is not an
// error. Open returns an error if the directory cannot be listed, if a file cannot be opened, or if
// a file has a newer version.
//
// The caller then restores its state with Load and Replay, before the first Append.
func Open(fs segment.FS, opts Options) (*Log, Report, error) {
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = segmentBytes
	}
	if opts.SectionBytes == 0 {
		opts.SectionBytes = MaxSection
	}
	l := &Log{
		fs: fs, opts: opts, File: notes.In(fs, notes.OfTiles),
		tail: segment.Appender{FS: fs, Format: &segmentFormat, Mark: opts.Mark, MaxBytes: opts.SegmentBytes},
	}
	var report Report
	names, err := fs.List()
	if err != nil {
		return nil, report, fmt.Errorf("list the journal: %w", err)
	}
	l.newNames = len(names) > 0 // the last process may not have synced them
	checkpoints, err := l.counting(checkpointFormat.Files(names), &report)
	if err != nil {
		return nil, report, err
	}
	known, err := l.findSections(checkpoints, &report)
	if err != nil {
		return nil, report, err
	}
	l.synced = min(l.synced, l.base)
	segments := segmentFormat.Files(names)
	if err := l.findFrames(segment.After(segments, l.base), &report); err != nil {
		return nil, report, err
	}
	if err := l.measureBehind(segment.After(segments, l.synced)); err != nil {
		return nil, report, err
	}
	if last := l.tail.Last; known > last {
		// The checkpoint's state may include these frames, but not for every shard.
		report.add(segment.Damage{Frames: uint64(known - last),
			Reason: fmt.Sprintf("the checkpoint knows frames up to %d, the segments end at %d", known, last)})
		l.tail.Last = known
	}
	report.Last = l.tail.Last
	return l, report, nil
}

// counting returns the checkpoints that a start may use. After a power loss, a checkpoint does not count
// if some stores were not synced for it. The method removes such checkpoints, so that no later start
// prefers them to the next checkpoint.
func (l *Log) counting(checkpoints []segment.File, report *Report) ([]segment.File, error) {
	l.synced = segment.NoLimit
	unsynced, err := stores.ReadUnsynced(l.fs)
	if err != nil || unsynced == nil {
		return checkpoints, err
	}
	l.synced, l.marked = Position(unsynced.Base), true
	if !unsynced.LostPower(l.opts.Boot) {
		return checkpoints, nil
	}
	count := len(checkpoints) - len(segment.After(checkpoints, l.synced))
	if l.synced > 0 {
		whole, err := l.isWhole(checkpoints[:count], l.synced)
		if err != nil {
			return nil, err
		}
		if !whole {
			// The newer checkpoints lack only the samples that some stores lost. Older checkpoints lack
			// more.
			return checkpoints, nil
		}
	}
	report.Unsynced = count < len(checkpoints)
	for _, c := range checkpoints[count:] {
		if err := l.fs.Remove(c.Name); err != nil {
			return nil, fmt.Errorf("remove a checkpoint that does not count after a power loss: %w", err)
		}
	}
	return checkpoints[:count], nil
}

// isWhole reports whether the last of the checkpoints is whole and has the position `at`.
func (l *Log) isWhole(checkpoints []segment.File, at Position) (bool, error) {
	n := len(checkpoints)
	if n == 0 || checkpoints[n-1].First != at {
		return false, nil
	}
	var ignored Report // of damage, which findSections has reported
	return readCheckpoint(l.fs, checkpoints[n-1], &ignored, func(uint16, section) {})
}

// measureBehind adds up the sizes of the frames between the last checkpoint for which all stores were
// synced and the newest checkpoint.
func (l *Log) measureBehind(segments []segment.File) error {
	for _, s := range segments {
		if s.First > l.base {
			break
		}
		f, size, err := l.fs.Open(s.Name)
		if err != nil {
			return fmt.Errorf("open segment %s: %w", s.Name, err)
		}
		_ = f.Close()
		l.behind += max(0, size-segment.HeaderBytes)
	}
	return nil
}

// findSections plans which sections to load, and returns the highest position that a checkpoint
// mentions. Good sections of a damaged checkpoint are used; the next older checkpoint provides
// the others.
func (l *Log) findSections(checkpoints []segment.File, report *Report) (known Position, err error) {
	for _, c := range slices.Backward(checkpoints) {
		known = max(known, c.First)
		whole, err := readCheckpoint(l.fs, c, report, func(shard uint16, found section) {
			known = max(known, found.pos)
			if s := &l.plan.sections[shard]; s.file == "" {
				*s = found
				report.Sections++
			}
		})
		if err != nil {
			return 0, err
		}
		if whole {
			l.base = c.First
			report.Checkpoint = c.Name
			break
		}
	}
	return known, nil
}

// readCheckpoint calls `fn` for each good section, and reports whether the file is whole.
func readCheckpoint(fs segment.FS, c segment.File, report *Report, fn func(uint16, section)) (whole bool, err error) {
	r, err := checkpointFormat.Open(fs, c.First)
	if err != nil {
		return false, err
	}
	defer r.Close()
	if r.End == 0 {
		report.add(segment.Damage{File: c.Name, Bytes: r.Size, Reason: r.Err.Error()})
		return false, nil
	}
	damage := segment.Damage{File: c.Name, Offset: -1}
	found, ended := uint32(0), false
	var cut pieces
	for {
		before := r.End
		f, ok := r.Next(r.Size, segment.NoLimit)
		if gap := cmp.Or(f.Offset, r.Size) - before; gap > 0 {
			damage.Bytes += gap
			if damage.Offset < 0 {
				damage.Offset = before
			}
		}
		if !ok {
			break
		}
		switch s := (section{file: c.Name, pos: f.Pos, frames: []span{spanOf(&f)}}); typeOf(f.Tag) {
		case sectionFrame:
			found++
			fn(shardOf(f.Tag), s)
			continue
		case pieceFrame, lastPieceFrame:
			if cut.add(&f, before) && typeOf(f.Tag) == lastPieceFrame {
				found++
				s.frames = cut.frames
				fn(shardOf(f.Tag), s)
			}
			continue
		}
		ended = len(f.Payload) == 4 && order.Uint32(f.Payload) == found
	}
	if whole = damage.Bytes == 0 && ended; !whole {
		damage.Offset = max(0, damage.Offset)
		damage.Reason = because(fmt.Sprintf("checkpoint is damaged or incomplete; %d sections of it are good", found), r.Err)
		report.add(damage)
	}
	return whole, nil
}

// findFrames reads the segments after the whole checkpoint, cuts off the last one's torn tail,
// and finds the last position.
func (l *Log) findFrames(files []segment.File, report *Report) error {
	l.tail.Last = l.base
	if len(files) > 0 && files[0].First > l.base+1 {
		first := files[0].First
		report.add(segment.Damage{File: files[0].Name, Frames: uint64(first - l.base - 1),
			Reason: fmt.Sprintf("frames %d to %d should come before this segment and are missing", l.base+1, first-1)})
	}
	for _, f := range files {
		r, frames, err := readSegment(l.fs, f, report, func(Position, Frame) error { return nil })
		if err != nil {
			return err
		}
		l.plan.segments = append(l.plan.segments, segmentFile{f, frames})
		report.Segments++
		report.Frames += uint64(frames)
		l.sinceBytes.Add(max(0, r.End-segment.HeaderBytes))
		size := r.Size
		if f.Limit == segment.NoLimit {
			l.tail.Last, size = l.endTail(f.Name, r, report)
		}
		if f.First <= l.tail.Last || f.Limit != segment.NoLimit { // else the next segment takes this name
			l.found = append(l.found, found{f, size})
		}
	}
	return nil
}

// readSegment calls `fn` for each frame that counts in a segment. It returns the number of frames
// and the place where reading ended, and reports damage between the frames. The caller handles what
// follows the last good frame of the last segment.
func readSegment(fs segment.FS, s segment.File, report *Report,
	fn func(Position, Frame) error) (r *segment.Scanner, frames int, err error) {
	if r, err = segmentFormat.Open(fs, s.First); err != nil {
		return nil, 0, err
	}
	defer r.Close()
	for {
		last, end := r.Last, r.End
		f, ok := r.Next(r.Size, s.Limit)
		if !ok {
			break
		}
		if f.Offset > end {
			report.add(segment.Damage{File: s.Name, Offset: end, Bytes: f.Offset - end,
				Frames: uint64(f.Pos - last - 1), Reason: "checksum or position does not match"})
		}
		frames++
		if err := fn(f.Pos, Frame{shardOf(f.Tag), typeOf(f.Tag), f.Payload}); err != nil {
			return r, frames, err
		}
	}
	if missing := uint64(s.Limit - 1 - r.Last); missing > 0 && s.Limit != segment.NoLimit {
		report.add(segment.Damage{File: s.Name, Offset: r.End, Bytes: r.Size - r.End, Frames: missing,
			Reason: because(fmt.Sprintf("frames %d to %d are missing", r.Last+1, s.Limit-1), r.Err)})
	}
	return r, frames, nil
}

// endTail handles what follows the last good frame of the last segment, and returns the position
// that counts as the last, and the size of what is left. If the tail can be read, it is a torn
// frame, and is cut off. An unreadable tail is left alone, and the positions that it may hold are
// not used again.
func (l *Log) endTail(name string, r *segment.Scanner, report *Report) (last Position, sizeBytes int64) {
	tail := r.Size - r.End
	if tail == 0 {
		return r.Last, r.Size
	}
	damage := segment.Damage{File: name, Offset: r.End, Bytes: tail}
	if r.Err != nil && r.Size >= segment.HeaderBytes {
		damage.Frames = uint64(tail / segment.FrameBytes)
		damage.Reason = because("the last segment cannot be read to its end", r.Err)
		report.add(damage)
		return r.Last + Position(damage.Frames), r.Size
	}
	damage.Reason = "torn tail, cut off; it was never acknowledged, unless power was lost"
	if err := l.fs.Truncate(name, r.End); err != nil {
		// The tail does no harm: the next segment's name says where this one ends.
		damage.Reason = because("torn tail, passed over because it cannot be cut off", err)
	}
	report.add(damage)
	return r.Last, r.End
}

func because(what string, cause error) string {
	if cause == nil {
		return what
	}
	return what + ": " + cause.Error()
}

// Load calls `fn` for each section that a start needs, in the order of the shards, at most once
// each. The journal owns the payload, which is valid until `fn` returns.
func (l *Log) Load(fn func(shard uint16, pos Position, payload []byte) error) error {
	open := map[string]segment.Reader{}
	defer func() {
		for _, r := range open {
			_ = r.Close()
		}
	}()
	var buf []byte
	for i := range l.plan.sections {
		s := &l.plan.sections[i]
		if s.file == "" {
			continue
		}
		if open[s.file] == nil {
			r, _, err := l.fs.Open(s.file)
			if err != nil {
				return fmt.Errorf("open checkpoint %s: %w", s.file, err)
			}
			open[s.file] = r
		}
		var payload []byte
		var err error
		if payload, buf, err = readSection(open[s.file], uint16(i), s, buf); err != nil {
			return fmt.Errorf("read checkpoint %s at %w", s.file, err)
		}
		if err := fn(uint16(i), s.pos, payload); err != nil {
			return fmt.Errorf("load section of shard %d from checkpoint %s: %w", i, s.file, err)
		}
	}
	return nil
}

// readSection returns the payload of a section, in `buf` if it is large enough.
func readSection(r segment.Reader, shard uint16, s *section, buf []byte) (payload, scratch []byte, err error) {
	var whole []byte
	for _, at := range s.frames {
		n := int(at.end() - at.offset)
		buf = slices.Grow(buf[:0], n)[:n]
		if _, err := r.ReadAt(buf, at.offset); err != nil {
			return nil, buf, fmt.Errorf("byte %d: %w", at.offset, err)
		}
		f, ok := checkpointFormat.ParseFrame(buf)
		if !ok || shardOf(f.Tag) != shard || f.Pos != s.pos {
			return nil, buf, fmt.Errorf("byte %d: the section has changed since the journal was opened", at.offset)
		}
		if len(s.frames) == 1 && typeOf(f.Tag) == sectionFrame {
			return f.Payload, buf, nil
		}
		whole = append(whole, f.Payload[pieceBytes:]...)
	}
	return whole, buf, nil
}

// Replay calls `fn` for every frame that is not in its shard's section, in the order of appending.
// The journal owns the frame's payload, which is valid until `fn` returns.
func (l *Log) Replay(fn func(pos Position, f Frame) error) error {
	var known Report // not used: Open has reported the damage
	for _, s := range l.plan.segments {
		_, frames, err := readSegment(l.fs, s.File, &known, func(pos Position, f Frame) error {
			if pos <= l.plan.sections[f.Shard].pos {
				return nil
			}
			if err := fn(pos, f); err != nil {
				return fmt.Errorf("replay frame %d of shard %d from %s: %w", pos, f.Shard, s.Name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if frames != s.frames {
			return fmt.Errorf("replay %s: %d frames can be read now, but there were %d when the journal was opened",
				s.Name, frames, s.frames)
		}
	}
	return nil
}
