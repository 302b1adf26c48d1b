package entrylog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/freshet-io/freshet/internal/core/segment"
)

// Create begins the log of a new member. The directory must not hold a log. ErrDamaged means that the member had one.
func Create(fs segment.FS, opts Options, base Base) (*Log, error) {
	names, err := fs.List()
	if err != nil {
		return nil, fmt.Errorf("list the entry log: %w", err)
	}
	if len(Files(names)) > 0 {
		return nil, errors.New("create the entry log: the directory already has one")
	}
	if opts.Has > base.Index {
		return nil, fmt.Errorf("%w: it is gone, but the member had entry %d", ErrDamaged, opts.Has)
	}
	l := newLog(fs, opts)
	l.state = State{Term: base.Term, Commit: base.Index}
	l.members = base.Members
	if err := l.beginSegment(&head{base: base.Index, term: base.Term, state: l.state, members: base.Members}); err != nil {
		return nil, fmt.Errorf("create the entry log: %w", err)
	}
	return l, nil
}

func newLog(fs segment.FS, opts Options) *Log {
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = segmentBytes
	}
	if opts.CacheBytes == 0 {
		opts.CacheBytes = cacheBytes
	}
	return &Log{fs: fs, opts: opts,
		tail: segment.Appender{FS: fs, Format: &format, Mark: opts.Mark, MaxBytes: opts.SegmentBytes}}
}

// Open reads the log of a member, and cuts off the torn rest of its last write. It reads everything
// once. It also writes the last segment anew, since its entries will be acknowledged and a killed
// process may have failed to sync them. ErrDamaged means that the member must be filled again.
func Open(fs segment.FS, opts Options) (*Log, error) {
	l := newLog(fs, opts)
	names, err := fs.List()
	if err != nil {
		return nil, fmt.Errorf("list the entry log: %w", err)
	}
	files := Files(names)
	for len(files) > 0 {
		torn, err := l.tornBegin(&files[len(files)-1])
		if err != nil {
			return nil, err
		}
		if !torn {
			break
		}
		files = files[:len(files)-1]
		if len(files) > 0 {
			files[len(files)-1].Limit = segment.NoLimit
		}
	}
	if len(files) == 0 {
		return nil, ErrNone
	}
	l.tail.Last = files[0].First - 1
	for i := range files {
		if err := l.read(&files[i]); err != nil {
			return nil, err
		}
	}
	if has := max(l.state.Commit, opts.Has); has > l.last {
		end := l.segments[len(l.segments)-1]
		return nil, fmt.Errorf("%w: %s, byte %d: it ends with entry %d, but the member had entry %d",
			ErrDamaged, format.Name(end.first), end.end, l.last, has)
	}
	last := l.segments[len(l.segments)-1]
	if err := segment.Rewrite(fs, format.Name(last.first), last.size); err != nil {
		return nil, fmt.Errorf("write %s anew: %w", format.Name(last.first), err)
	}
	l.synced = l.tail.Last
	return l, nil
}

// Check reads a segment that another one follows, so that it no longer changes. ErrDamaged means that it lost
// entries, or has wrong ones.
func Check(fs segment.FS, f segment.File) error {
	l := newLog(fs, Options{})
	l.tail.Last = f.First - 1
	return l.read(&f)
}

// OnlyBegun reports whether a directory has a log to which nothing was written since it began. It changes nothing.
func OnlyBegun(fs segment.FS) (bool, error) {
	names, err := fs.List()
	if err != nil {
		return false, fmt.Errorf("list the entry log: %w", err)
	}
	files := Files(names)
	if len(files) != 1 {
		return false, nil
	}
	f, size, err := fs.Open(files[0].Name)
	if err != nil {
		return false, fmt.Errorf("open %s: %w", files[0].Name, err)
	}
	return size == beginBytes, f.Close()
}

// tornBegin removes the last segment if it is only a torn first write, on which nothing depends,
// and reports whether it did.
func (l *Log) tornBegin(f *segment.File) (bool, error) {
	s, err := format.Open(l.fs, f.First)
	if err != nil {
		return false, err
	}
	defer s.Close()
	first, ok := s.Next(s.Size, f.Limit)
	if ok && first.Pos == f.First && first.Offset == segment.HeaderBytes || s.Size > beginBytes {
		return false, nil
	}
	if s.Err != nil && s.Err != segment.ErrHeader { // the file cannot be read, or a newer program wrote it
		return false, fmt.Errorf("read %s: %w", f.Name, s.Err)
	}
	if err := l.fs.Remove(f.Name); err != nil {
		return false, fmt.Errorf("remove %s, which is torn: %w", f.Name, err)
	}
	return true, nil
}

// read adds the frames of one segment to the log.
func (l *Log) read(f *segment.File) error {
	damaged := func(offset int64, reason error) error {
		return fmt.Errorf("%w: %s, byte %d: %w", ErrDamaged, f.Name, offset, reason)
	}
	s, err := format.Open(l.fs, f.First)
	if err != nil {
		return err
	}
	defer s.Close()
	if s.End == 0 {
		return damaged(0, s.Err)
	}
	if f.First != l.tail.Last+1 {
		return damaged(0, fmt.Errorf("frames %d to %d are missing", l.tail.Last+1, f.First-1))
	}
	end := s.End // of the frames that count
	for {
		frame, ok := s.Next(s.Size, f.Limit)
		if !ok {
			break
		}
		if frame.Offset != end {
			// A frame behind the gap may belong to the same torn write: the disk may have kept only that
			// part.
			if lost := l.tail.Last + 1; f.Limit != segment.NoLimit || syncedBefore(&frame) >= lost {
				return damaged(end, fmt.Errorf("frame %d is lost, but frame %d is whole", lost, frame.Pos))
			}
			continue
		}
		if err := l.take(&frame, f.First); err != nil {
			return damaged(frame.Offset, err)
		}
		end, l.tail.Last = s.End, frame.Pos
	}
	switch tail := s.Size - end; {
	case s.Err != nil:
		return fmt.Errorf("read %s: %w", f.Name, s.Err)
	case l.tail.Last < f.First:
		return damaged(end, errors.New("the head is lost"))
	case f.Limit != segment.NoLimit && l.tail.Last != f.Limit-1:
		return damaged(end, fmt.Errorf("frames %d to %d are lost", l.tail.Last+1, f.Limit-1))
	case f.Limit == segment.NoLimit && tail > 0:
		l.torn = Torn{f.Name, tail} // Open cuts it off
	}
	p := l.segments[len(l.segments)-1]
	p.end, p.size = end, end
	return nil
}

// take adds a frame to the log, or returns an error if the frame cannot follow the earlier ones.
func (l *Log) take(f *segment.Frame, first segment.Position) error {
	if isHead := typeOf(f.Tag) == headFrame; isHead != (f.Pos == first) {
		return fmt.Errorf("frame %d has type %d", f.Pos, typeOf(f.Tag))
	}
	switch typeOf(f.Tag) {
	case headFrame:
		return l.takeHead(f)
	case stateFrame:
		s, err := parseState(f)
		if err != nil {
			return err
		}
		if s.Term < l.state.Term || s.Commit < l.state.Commit {
			return fmt.Errorf("a state with term %d and commit index %d follows one with term %d and commit index %d",
				s.Term, s.Commit, l.state.Term, l.state.Commit)
		}
		l.state = s
		return nil
	}
	e, err := parseEntry(f)
	if err == nil {
		err = l.follows(&e)
	}
	if err != nil {
		return err
	}
	l.add(&e, uint32(f.Offset))
	return nil
}

func (l *Log) takeHead(f *segment.Frame) error {
	h, err := parseHead(f)
	if err != nil {
		return err
	}
	if len(l.segments) > 0 {
		switch before := l.termOf(h.base); {
		case h.base > l.last:
			return fmt.Errorf("the entries end at %d, but the segment begins after %d", l.last, h.base)
		case h.base < l.state.Commit:
			return fmt.Errorf("the segment replaces entries from %d on, but entry %d is committed", h.base+1, l.state.Commit)
		case h.base >= l.base && h.term != before:
			return fmt.Errorf("entry %d has term %d, but the segment says %d", h.base, before, h.term)
		case h.state.Term < l.state.Term:
			return fmt.Errorf("term %d follows term %d", h.state.Term, l.state.Term)
		}
	}
	h.state.Commit = max(h.state.Commit, l.state.Commit)
	l.begin(f.Pos, &h)
	l.state = h.state
	return nil
}

// termOf returns the term of an entry between base and last. It is called with mu held, or while
// nothing else uses the log.
func (l *Log) termOf(index uint64) uint64 {
	i, found := slices.BinarySearchFunc(l.terms, index, func(r run, index uint64) int {
		return cmp.Compare(r.from, index)
	})
	if !found {
		i--
	}
	if i < 0 {
		return 0
	}
	return l.terms[i].term
}
