package queue

import (
	"fmt"
	"slices"

	"github.com/freshet-io/freshet/internal/core/segment"
)

// Open finds the queue in fs. It reads every segment once, to count the frames that wait. Damage is
// not an error: the queue reports it when Peek passes it. Open returns an error if the directory
// cannot be listed, if a file cannot be opened, or if a file has a newer version.
func Open(fs segment.FS, opts Options) (*Queue, error) {
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = min(opts.MaxBytes/segmentsOfLimit, maxSegment)
	}
	q := &Queue{fs: fs, opts: opts, tail: segment.Appender{
		FS: fs, Format: &segmentFormat, Mark: opts.Mark, MaxBytes: opts.SegmentBytes, Sync: opts.Sync}}
	names, err := fs.List()
	if err != nil {
		return nil, fmt.Errorf("list the queue: %w", err)
	}
	if q.hasFile = slices.Contains(names, doneName); q.hasFile {
		if q.done, err = readDone(fs); err != nil {
			return nil, err
		}
	}
	for _, f := range segment.After(segmentFormat.Files(names), 0) {
		if err := q.find(f); err != nil {
			return nil, err
		}
	}
	q.begin()
	q.kept = q.done
	return q, nil
}

// find counts the frames of a segment. From the last segment it also takes the next position, which
// must never have been used.
func (q *Queue) find(file segment.File) error {
	r, err := segmentFormat.Open(q.fs, file.First)
	if err != nil {
		return err
	}
	defer r.Close()
	s := &segmentFile{first: file.First, size: r.Size}
	for f, ok := r.Next(s.size, file.Limit); ok; f, ok = r.Next(s.size, file.Limit) {
		if f.Pos <= q.done {
			continue
		}
		frame := frameOf(&f)
		if s.waiting.Frames == 0 {
			s.oldest = frame.Time
		}
		s.waiting.Add(frame.Amount())
		if q.opts.Found != nil {
			q.opts.Found(frame)
		}
	}
	q.tail.Last = r.Last
	switch {
	case file.Limit != segment.NoLimit:
	case s.size < segment.HeaderBytes || r.Last < file.First && r.Err == nil:
		// The process died in its first write to this segment. The next segment gets the same name.
		q.damaged(segment.Damage{File: file.Name, Bytes: s.size,
			Reason: "removed, since it holds no whole frame: a torn write, never acknowledged unless power was lost"})
		if err := q.fs.Remove(file.Name); err != nil {
			return fmt.Errorf("remove torn queue segment %s: %w", file.Name, err)
		}
		return nil
	case r.Err != nil:
		q.tail.Last += 1 + segment.Position(s.size-r.End)/segment.Position(segmentFormat.HeadBytes())
	}
	q.segments = append(q.segments, s)
	return nil
}

// begin decides where reading and writing continue.
func (q *Queue) begin() {
	if len(q.segments) > 0 {
		switch first := q.segments[0].first; {
		case q.done == 0: // the position was never saved, or was lost: earlier frames may have existed
			q.done = first - 1
		case first > q.done+1:
			q.damaged(segment.Damage{File: segmentFormat.Name(first), Frames: uint64(first - q.done - 1),
				Reason: fmt.Sprintf("frames %d to %d should come before this segment and are missing", q.done+1, first-1)})
			q.done = first - 1
		}
	}
	q.tail.Last = max(q.tail.Last, q.done)
}
