package journal

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/freshet-io/freshet/internal/core/series"
)

const (
	segmentSuffix    = ".segment"
	checkpointSuffix = ".checkpoint"
	nameDigits       = 20
)

func segmentName(first Position) string   { return fmt.Sprintf("%020d%s", first, segmentSuffix) }
func checkpointName(base Position) string { return fmt.Sprintf("%020d%s", base, checkpointSuffix) }

// parseName returns the position in the name of a segment or a checkpoint.
func parseName(name, suffix string) (Position, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != nameDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63) // so that a stray file cannot make positions overflow
	return Position(n), err == nil
}

// file is a segment or a checkpoint by its name and the position in it.
type file struct {
	name string
	pos  Position
}

// filesOf returns the files of one kind in the order of their positions.
func filesOf(names []string, suffix string) []file {
	var found []file
	for _, name := range names {
		if pos, ok := parseName(name, suffix); ok {
			found = append(found, file{name, pos})
		}
	}
	slices.SortFunc(found, func(a, b file) int { return cmp.Compare(a.pos, b.pos) })
	return found
}

// plan is what a start reads: where each section lies, and which segments follow.
type plan struct {
	sections [sections]section
	segments []segment
}

// section is one shard's state in a checkpoint.
type section struct {
	file   string // "" if there is none
	pos    Position
	frames []span // one, or its pieces in their order
}

// span is where a frame lies.
type span struct {
	offset int64
	length int // of the payload
}

// segment is a file of records. Those from limit on do not count.
type segment struct {
	file
	limit   Position // the next segment's first, or noLimit
	records int      // that count and are whole
}

const noLimit = math.MaxUint64

// Open finds the journal in fs, cuts off what the death of the last process left
// behind the last whole record, and reports what it found, in particular what is
// lost. It reads everything once. Damage is no error; these are: a directory that
// cannot be listed, a file that cannot be opened, a file of a newer version.
//
// The caller then restores its state by Load and Replay, before the first Append.
func Open(fs FS, opts Options) (*Log, Report, error) {
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = segmentBytes
	}
	if opts.SectionBytes == 0 {
		opts.SectionBytes = MaxSection
	}
	l := &Log{fs: fs, opts: opts}
	var report Report
	names, err := fs.List()
	if err != nil {
		return nil, report, fmt.Errorf("list the journal: %w", err)
	}
	known, err := l.findSections(filesOf(names, checkpointSuffix), &report)
	if err != nil {
		return nil, report, err
	}
	if err := l.findRecords(filesOf(names, segmentSuffix), &report); err != nil {
		return nil, report, err
	}
	if known > l.last {
		// Its state may hold them, but not every shard's did.
		report.add(Damage{Records: uint64(known - l.last),
			Reason: fmt.Sprintf("the checkpoint knows records up to %d, the segments end at %d", known, l.last)})
		l.last = known
	}
	report.Last = l.last
	return l, report, nil
}

// findSections plans which sections to load and returns the highest position that
// a checkpoint mentions. A damaged checkpoint gives what is good of it; the next
// older one gives the rest.
func (l *Log) findSections(checkpoints []file, report *Report) (known Position, err error) {
	for _, c := range slices.Backward(checkpoints) {
		known = max(known, c.pos)
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
			l.base = c.pos
			report.Checkpoint = c.name
			break
		}
	}
	return known, nil
}

// readCheckpoint calls fn for each good section and reports whether the file is
// whole.
func readCheckpoint(fs FS, c file, report *Report, fn func(uint16, section)) (whole bool, err error) {
	src, size, err := fs.Open(c.name)
	if err != nil {
		return false, fmt.Errorf("open checkpoint %s: %w", c.name, err)
	}
	defer src.Close()
	r, err := openFrames(src, size, checkpointMagic, c.pos)
	if errors.Is(err, errVersion) {
		return false, fmt.Errorf("read checkpoint %s: %w", c.name, err)
	}
	if err != nil {
		report.add(Damage{File: c.name, Bytes: size, Reason: err.Error()})
		return false, nil
	}
	r.limit = MaxSection
	r.accept = func(f *frame, _ int64) bool {
		return f.pos >= c.pos && f.shard <= Instance && f.typ >= sectionFrame && f.typ <= lastPieceFrame
	}
	damage := Damage{File: c.name, Offset: -1}
	found, ended := uint32(0), false
	var cut pieces
	for {
		before := r.end
		f, ok := r.next()
		if gap := cmp.Or(f.offset, size) - before; gap > 0 {
			damage.Bytes += gap
			if damage.Offset < 0 {
				damage.Offset = before
			}
		}
		if !ok {
			break
		}
		switch s := (section{file: c.name, pos: f.pos, frames: []span{{f.offset, len(f.payload)}}}); f.typ {
		case sectionFrame:
			found++
			fn(f.shard, s)
			continue
		case pieceFrame, lastPieceFrame:
			if cut.add(&f, before) && f.typ == lastPieceFrame {
				found++
				s.frames = cut.frames
				fn(f.shard, s)
			}
			continue
		}
		ended = len(f.payload) == 4 && order.Uint32(f.payload) == found
	}
	if whole = damage.Bytes == 0 && ended; !whole {
		damage.Offset = max(0, damage.Offset)
		damage.Reason = fmt.Sprintf("checkpoint is damaged or incomplete; %d sections of it are good", found)
		if r.err != nil {
			damage.Reason += ": " + r.err.Error()
		}
		report.add(damage)
	}
	return whole, nil
}

// findRecords reads the segments behind the whole checkpoint, cuts the last one's
// torn tail off and sets l.last.
func (l *Log) findRecords(files []file, report *Report) error {
	files = slices.DeleteFunc(files, func(f file) bool { return f.pos <= l.base })
	l.last = l.base
	if len(files) > 0 && files[0].pos > l.last+1 {
		report.add(Damage{File: files[0].name, Records: uint64(files[0].pos - l.last - 1),
			Reason: fmt.Sprintf("records %d to %d should come before this segment and are missing", l.last+1, files[0].pos-1)})
	}
	for i, f := range files {
		s := segment{file: f, limit: noLimit}
		if i+1 < len(files) {
			s.limit = files[i+1].pos
		}
		at, err := readSegment(l.fs, &s, report, func(Position, Record) error { return nil })
		if err != nil {
			return err
		}
		l.plan.segments = append(l.plan.segments, s)
		l.found = append(l.found, f)
		l.newNames = true
		report.Segments++
		report.Records += uint64(s.records)
		l.sinceBytes += max(0, at.end-headerBytes)
		if s.limit == noLimit {
			l.last = l.endTail(&s, at, report)
		}
	}
	return nil
}

// segmentEnd says where the reading of a segment ended.
type segmentEnd struct {
	last      Position // that was read
	end, size int64    // bytes of it that were read; the file's
	err       error    // why its records, or the rest of them, cannot be read
}

// readSegment calls fn for each record of s that counts, counts them in
// s.records, and reports damage between them. Of the last segment it leaves to
// the caller what follows the last good record.
func readSegment(fs FS, s *segment, report *Report, fn func(Position, Record) error) (segmentEnd, error) {
	src, size, err := fs.Open(s.name)
	if err != nil {
		return segmentEnd{}, fmt.Errorf("open journal segment %s: %w", s.name, err)
	}
	defer src.Close()
	at := segmentEnd{last: s.pos - 1, size: size}
	r, err := openFrames(src, size, segmentMagic, s.pos)
	switch {
	case errors.Is(err, errVersion):
		return at, fmt.Errorf("read journal segment %s: %w", s.name, err)
	case err != nil:
		at.err = err
	default:
		at.end = r.end
		r.limit = MaxRecord
		r.accept = func(f *frame, passedOver int64) bool {
			return f.shard < series.Shards && f.pos > at.last && uint64(f.pos-at.last-1) <= uint64(passedOver/frameBytes)
		}
		for {
			f, ok := r.next()
			if !ok || f.pos >= s.limit {
				break
			}
			if f.offset > at.end {
				report.add(Damage{File: s.name, Offset: at.end, Bytes: f.offset - at.end,
					Records: uint64(f.pos - at.last - 1), Reason: "checksum or position does not match"})
			}
			at.last, at.end = f.pos, r.end
			s.records++
			if err := fn(f.pos, Record{f.shard, f.typ, f.payload}); err != nil {
				return at, err
			}
		}
		at.err = r.err
	}
	if missing := uint64(s.limit - 1 - at.last); missing > 0 && s.limit != noLimit {
		report.add(Damage{File: s.name, Offset: at.end, Bytes: at.size - at.end, Records: missing,
			Reason: because(fmt.Sprintf("records %d to %d are not there", at.last+1, s.limit-1), at.err)})
	}
	return at, nil
}

// endTail deals with what follows the last good record of the last segment and
// returns the position that counts as the last. A tail that could be read is
// torn and cut off. One that could not is left alone, and the positions that it
// may hold are not used again.
func (l *Log) endTail(s *segment, at segmentEnd, report *Report) Position {
	tail := at.size - at.end
	if tail == 0 {
		return at.last
	}
	damage := Damage{File: s.name, Offset: at.end, Bytes: tail}
	if at.err != nil && at.size >= headerBytes {
		damage.Records = uint64(tail / frameBytes)
		damage.Reason = because("the last segment cannot be read to its end", at.err)
		report.add(damage)
		return at.last + Position(damage.Records)
	}
	damage.Reason = "torn tail, cut off; it was never acknowledged, unless power was lost"
	if err := l.fs.Truncate(s.name, at.end); err != nil {
		// The next segment's name says where this one ends.
		damage.Reason = because("torn tail, passed over because it cannot be cut off", err)
	}
	report.add(damage)
	return at.last
}

func because(what string, cause error) string {
	if cause == nil {
		return what
	}
	return what + ": " + cause.Error()
}

// Load calls fn for each section that a start begins with: the instance's first,
// then the shards' in their order, each at most once. The payload belongs to the
// journal and lasts until fn returns.
func (l *Log) Load(fn func(shard uint16, pos Position, payload []byte) error) error {
	open := map[string]Reader{}
	defer func() {
		for _, r := range open {
			_ = r.Close()
		}
	}()
	var buf []byte
	for i := range sections {
		shard := uint16((i + Instance) % sections)
		s := &l.plan.sections[shard]
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
		if payload, buf, err = readSection(open[s.file], shard, s, buf); err != nil {
			return fmt.Errorf("read checkpoint %s at %w", s.file, err)
		}
		if err := fn(shard, s.pos, payload); err != nil {
			return fmt.Errorf("load section of shard %d from checkpoint %s: %w", shard, s.file, err)
		}
	}
	return nil
}

// readSection returns the payload of a section, in buf's memory or more.
func readSection(r Reader, shard uint16, s *section, buf []byte) (payload, scratch []byte, err error) {
	var whole []byte
	for _, at := range s.frames {
		buf = slices.Grow(buf[:0], frameBytes+at.length)[:frameBytes+at.length]
		if _, err := r.ReadAt(buf, at.offset); err != nil {
			return nil, buf, fmt.Errorf("byte %d: %w", at.offset, err)
		}
		f, ok := parseFrame(buf)
		if !ok || f.shard != shard || f.pos != s.pos {
			return nil, buf, fmt.Errorf("byte %d: it has changed since the start", at.offset)
		}
		if len(s.frames) == 1 && f.typ == sectionFrame {
			return f.payload, buf, nil
		}
		whole = append(whole, f.payload[pieceBytes:]...)
	}
	return whole, buf, nil
}

// Replay calls fn for every record that is not in its shard's section, in the
// order in which they were appended. The record's payload belongs to the journal
// and lasts until fn returns.
func (l *Log) Replay(fn func(pos Position, r Record) error) error {
	var known Report // Open has reported it
	for _, s := range l.plan.segments {
		want := s.records
		s.records = 0
		_, err := readSegment(l.fs, &s, &known, func(pos Position, r Record) error {
			if pos <= l.plan.sections[r.Shard].pos {
				return nil
			}
			if err := fn(pos, r); err != nil {
				return fmt.Errorf("replay record %d of shard %d from %s: %w", pos, r.Shard, s.name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if s.records != want {
			return fmt.Errorf("replay %s: %d records can be read, and were %d at the start", s.name, s.records, want)
		}
	}
	return nil
}
