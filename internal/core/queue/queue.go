// Package queue keeps frames on disk, the oldest first, until they are done: a
// bounded queue that outlives its process. A full one gives up its oldest segment
// and says what was in it, since a queue that blocks its writer would stop what
// feeds it, and one that refuses the newest would keep what nobody waits for.
//
// What frames mean, when to try again, and what time it is, is its owner's
// business; what segments and frames are is core/segment's. Layout:
// docs/format/queue.md.
package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/freshet-io/freshet/internal/core/segment"
)

// MaxPayload limits a payload, in bytes. A length beyond it is damage, so it bounds
// what a reader allocates.
const MaxPayload = 32 << 20

// A queue has segments of a 16th of its limit, which is what it gives up at once,
// but none above 64 MiB.
const (
	segmentsOfLimit = 16
	maxSegment      = 64 << 20
)

// ErrTooLarge means that frames exceed MaxPayload, or the queue's limit: they can
// never be appended.
var ErrTooLarge = errors.New("too large for the queue")

// Frame is what waits in the queue.
type Frame struct {
	Time    int64  // Unix milliseconds, when it was appended
	Samples uint32 // in the payload, only to be counted
	Payload []byte // at most MaxPayload bytes
}

// Amount counts frames, the samples in them and the bytes of their payload.
type Amount struct {
	Frames, Samples uint64
	Bytes           int64
}

func (a *Amount) add(b Amount) {
	a.Frames += b.Frames
	a.Samples += b.Samples
	a.Bytes += b.Bytes
}

// sub stops at zero: a sector that could not be read at the start, and can now,
// gives frames that were not counted.
func (a *Amount) sub(b Amount) {
	a.Frames -= min(a.Frames, b.Frames)
	a.Samples -= min(a.Samples, b.Samples)
	a.Bytes -= min(a.Bytes, b.Bytes)
}

// Amount of one frame.
func (f *Frame) Amount() Amount { return Amount{1, uint64(f.Samples), int64(len(f.Payload))} }

// Options of a queue.
type Options struct {
	MaxBytes     int64 // of all segments
	SegmentBytes int64 // 0 means a 16th of MaxBytes, at most 64 MiB

	// Mark begins every frame that this process writes. It must be a random number
	// that senders cannot know, or they could forge frames inside their payload.
	Mark uint32

	// Sync forces each Append to the disk before it returns, so that it survives a
	// power loss as well.
	Sync bool

	// Damaged is told of each place that is passed over, by Open and by Peek.
	Damaged func(segment.Damage)
}

// Queue is an open queue. Any goroutine may call Append and Waiting; Peek and Done
// belong to one. A slow read does not hold up an Append.
type Queue struct {
	fs   segment.FS
	opts Options

	// Of the goroutine that reads.
	reader *segment.Scanner // of the oldest segment; nil before its first Peek
	peeked segment.Frame    // what Peek returned; valid if its position is above done

	mu       sync.Mutex
	segments []*segmentFile   // the oldest first
	tail     segment.Appender // to the last one, or to none before the next Append
	done     segment.Position // up to which nothing is needed any more
	saved    segment.Writer   // the file done; nil before it is written
	entries  int              // in it
}

// segmentFile is a segment and what of it waits. It ends where the next one begins.
type segmentFile struct {
	first   segment.Position
	size    int64  // in bytes; what lies beyond does not count
	waiting Amount // not done
	oldest  int64  // time of the first of them
}

// Append writes frames behind all others, in one write, and returns what had to
// be given up for them. When the error is nil they survive the death of the
// process. On an error none of them counts; only if the process dies before the
// next Append may some of them be sent after all.
func (q *Queue) Append(frames ...Frame) (givenUp Amount, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(frames) == 0 {
		return givenUp, nil
	}
	q.tail.Begin()
	var added Amount
	for i := range frames {
		f := &frames[i]
		if len(f.Payload) > MaxPayload {
			return givenUp, fmt.Errorf("append to the queue: %w: %d bytes exceed %d", ErrTooLarge, len(f.Payload), MaxPayload)
		}
		stored := onDisk(f)
		q.tail.Add(&stored)
		added.add(f.Amount())
	}
	n := segment.HeaderBytes + q.tail.Added()
	if n > q.opts.MaxBytes {
		return givenUp, fmt.Errorf("append to the queue: %w: %d bytes exceed its limit of %d", ErrTooLarge, n, q.opts.MaxBytes)
	}
	if q.tail.Full() {
		q.seal()
	}
	givenUp = q.makeRoom(n)
	if err := q.write(); err != nil {
		return givenUp, fmt.Errorf("append %d frames to the queue: %w", len(frames), err)
	}
	s := q.newest()
	if s.waiting.Frames == 0 {
		s.oldest = frames[0].Time
	}
	s.waiting.add(added)
	return givenUp, nil
}

func (q *Queue) newest() *segmentFile { return q.segments[len(q.segments)-1] }

// seal ends the segment that is written to, if there is one.
func (q *Queue) seal() {
	if f := q.tail.Seal(); f != nil {
		_ = f.Close() // what it wrote is in the page cache, or synced
	}
}

// makeRoom gives up the oldest segments until n more bytes are within the limit.
func (q *Queue) makeRoom(n int64) (givenUp Amount) {
	for _, s := range q.segments {
		n += s.size
	}
	for n > q.opts.MaxBytes {
		oldest := q.segments[0]
		givenUp.add(oldest.waiting)
		n -= oldest.size
		q.drop()
	}
	return givenUp
}

// drop removes the oldest segment, and whatever it holds is done. The position is
// saved before: else the next start would take the frames for lost.
func (q *Queue) drop() {
	upTo := q.tail.Last
	if len(q.segments) > 1 {
		upTo = q.segments[1].first - 1
	} else {
		q.seal()
	}
	if upTo > q.done {
		q.done = upTo
		_ = q.save() // the next one is a new attempt
	}
	_ = q.fs.Remove(segmentFormat.Name(q.segments[0].first)) // otherwise it is removed after the next start, when Peek has passed it
	q.segments = q.segments[1:]
}

// write writes the frames that were added, to the segment that is written to or into a
// new one. After a failure, which may be one to sync, that segment gets no more.
func (q *Queue) write() error {
	first := q.tail.Last + 1
	began, err := q.tail.Write()
	if err != nil {
		q.tail.CutBack() // where that fails, the name of the next segment tells which frames count
		q.seal()
		return err
	}
	if began {
		q.segments = append(q.segments, &segmentFile{first: first})
	}
	q.newest().size = q.tail.Size()
	return nil
}

// Peek returns the oldest frame that is not done, and false if none waits. It is
// the same until Done, or until the queue gives it up. The payload lasts until the
// next Peek.
func (q *Queue) Peek() (Frame, bool, error) {
	for {
		q.mu.Lock()
		done, limit, s := q.done, segment.NoLimit, segmentFile{}
		if len(q.segments) > 0 {
			s = *q.segments[0]
		}
		if len(q.segments) > 1 {
			limit = q.segments[1].first
		}
		q.mu.Unlock()
		if q.peeked.Pos > done {
			return frameOf(&q.peeked), true, nil
		}
		if s.first == 0 {
			return Frame{}, false, nil
		}
		if err := q.open(s.first); errors.Is(err, fs.ErrNotExist) {
			if q.leave(s.first) { // and it was not given up meanwhile
				q.damaged(segment.Damage{File: segmentFormat.Name(s.first), Bytes: s.size, Frames: s.waiting.Frames, Reason: err.Error()})
			}
			continue
		} else if err != nil {
			return Frame{}, false, err
		}
		from, last := q.reader.End, max(q.reader.Last, done)
		f, ok := q.reader.Next(s.size, limit)
		switch {
		case ok:
			q.passed(s.first, from, f.Offset, last, f.Pos, nil)
			q.peek(f)
		case limit == segment.NoLimit:
			return Frame{}, false, nil // more will come behind it
		default:
			q.passed(s.first, from, s.size, last, limit, q.reader.Err)
			q.leave(s.first)
		}
	}
}

// open makes q.reader that of the segment.
func (q *Queue) open(first segment.Position) (err error) {
	if q.reader != nil && q.reader.First == first {
		return nil
	}
	if q.reader != nil {
		_ = q.reader.Close()
	}
	q.reader, err = segmentFormat.Open(q.fs, first)
	return err
}

// peek remembers f as what was read.
func (q *Queue) peek(f segment.Frame) {
	q.peeked = f
	q.mu.Lock()
	defer q.mu.Unlock()
	if f.Pos > q.done { // it was not given up meanwhile
		q.segments[0].oldest = frameOf(&f).Time
	}
}

// leave drops a segment that has nothing more to read, if it has not been given up
// meanwhile.
func (q *Queue) leave(first segment.Position) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.segments) == 0 || q.segments[0].first != first {
		return false
	}
	q.drop()
	return true
}

// passed reports what lies between two frames of a segment, if anything does: the
// bytes in [from, to), the frames between the positions last and next.
func (q *Queue) passed(first segment.Position, from, to int64, last, next segment.Position, err error) {
	frames := uint64(0)
	if next > last+1 {
		frames = uint64(next - last - 1)
	}
	if to == from && frames == 0 {
		return
	}
	d := segment.Damage{File: segmentFormat.Name(first), Offset: from, Bytes: to - from, Frames: frames}
	switch {
	case err != nil:
		d.Reason = "cannot be read: " + err.Error()
	case frames == 0:
		d.Reason = "no frame that waits: one that is done, or a torn or failed write, which did not count unless power was lost"
	default:
		d.Reason = fmt.Sprintf("frames %d to %d are damaged or missing", last+1, next-1)
	}
	q.damaged(d)
}

func (q *Queue) damaged(d segment.Damage) {
	if q.opts.Damaged != nil {
		q.opts.Damaged(d)
	}
}

// Done says that the frame that Peek returned last is not needed any more. It
// reports whether it still counted, which it does not if it was given up
// meanwhile. After an error a restart may return the frame again.
func (q *Queue) Done() (counted bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.peeked.Pos <= q.done {
		return false, nil
	}
	frame := frameOf(&q.peeked)
	q.segments[0].waiting.sub(frame.Amount())
	q.done = q.peeked.Pos
	return true, q.save()
}

// Waiting returns what is not done, and the time of the oldest of it, 0 if there is
// nothing. Between Done and the next Peek that time is of the frame before.
func (q *Queue) Waiting() (sum Amount, oldest int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.segments {
		if sum.Frames == 0 && s.waiting.Frames > 0 {
			oldest = s.oldest
		}
		sum.add(s.waiting)
	}
	return sum, oldest
}

// Close closes the files.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var errs []error
	if f := q.tail.Seal(); f != nil {
		errs = append(errs, f.Close())
	}
	if q.saved != nil {
		errs = append(errs, q.saved.Close())
		q.saved = nil
	}
	if q.reader != nil {
		errs = append(errs, q.reader.Close())
		q.reader = nil
	}
	return errors.Join(errs...)
}
