package queue

import (
	"fmt"
	"slices"

	"github.com/freshet-io/freshet/internal/core/journal"
)

// Open finds the queue in fs. It reads every segment once, to count what waits.
// Damage is no error, and is reported when Peek passes it; these are errors: a
// directory that cannot be listed, a file that cannot be opened, a file of a newer
// version.
func Open(fs journal.FS, opts Options) (*Queue, error) {
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = min(opts.MaxBytes/segmentsOfLimit, maxSegment)
	}
	q := &Queue{fs: fs, opts: opts}
	names, err := fs.List()
	if err != nil {
		return nil, fmt.Errorf("list the queue: %w", err)
	}
	if slices.Contains(names, doneName) {
		if q.done, err = readDone(fs); err != nil {
			return nil, err
		}
	}
	var firsts []uint64
	for _, name := range names {
		if first, ok := parseName(name); ok {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	for i, first := range firsts {
		limit := uint64(noLimit)
		if i+1 < len(firsts) {
			limit = firsts[i+1]
		}
		if err := q.find(first, limit); err != nil {
			return nil, err
		}
	}
	q.begin()
	return q, nil
}

// find counts the records of a segment. Of the last one it also decides which
// position comes next: none that may have been used.
func (q *Queue) find(first, limit uint64) error {
	r, err := openSegment(q.fs, first)
	if err != nil {
		return err
	}
	defer r.src.Close()
	s := &segment{first: first, size: r.size}
	for f, ok := r.next(s.size, limit); ok; f, ok = r.next(s.size, limit) {
		if f.pos <= q.done {
			continue
		}
		if s.waiting.Records == 0 {
			s.oldest = f.Time
		}
		s.waiting.add(f.Amount())
	}
	q.last = r.last
	switch {
	case limit != noLimit:
	case s.size < headerBytes || r.last < first && r.err == nil:
		// The process died in its first write. The next segment gets the same name.
		q.damaged(Damage{File: segmentName(first), Bytes: s.size,
			Reason: "removed, since it holds no whole record: a torn write, which did not count unless power was lost"})
		if err := q.fs.Remove(segmentName(first)); err != nil {
			return fmt.Errorf("remove torn queue segment %s: %w", segmentName(first), err)
		}
		return nil
	case r.err != nil:
		q.last += 1 + uint64(s.size-r.end)/frameBytes
	}
	q.segments = append(q.segments, s)
	return nil
}

// begin settles where reading and writing go on.
func (q *Queue) begin() {
	if len(q.segments) > 0 {
		switch first := q.segments[0].first; {
		case q.done == 0: // never saved, or lost: nothing can be said of what came before
			q.done = first - 1
		case first > q.done+1:
			q.damaged(Damage{File: segmentName(first), Records: first - q.done - 1,
				Reason: fmt.Sprintf("records %d to %d should come before this segment and are missing", q.done+1, first-1)})
			q.done = first - 1
		}
	}
	q.last = max(q.last, q.done)
}
