// Package queue is a bounded queue of frames on disk, which outlives its process. It returns the oldest
// frame first, and keeps each frame until it is done. A full queue gives up its oldest segment and
// reports what was in it. If the queue blocked instead, the writer would stop. If it refused new frames,
// it would keep old frames that nobody needs any more.
//
// The owner defines the content of frames, decides when to retry, and knows the time.
// core/segment defines segments and frames. Layout: docs/format/queue.md.
package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/freshet-io/freshet/internal/core/segment"
)

// MaxPayload limits a payload, in bytes. A reader treats a greater length as damage, so the limit bounds
// the reader's memory.
const MaxPayload = 32 << 20

// A segment has a 16th of the queue's limit, at most 64 MiB. A full queue gives up that many bytes
// at once.
const (
	segmentsOfLimit = 16
	maxSegment      = 64 << 20
)

// ErrTooLarge means that frames exceed MaxPayload or the queue's limit, so they can never be
// appended.
var ErrTooLarge = errors.New("too large for the queue")

// Frame is an entry of the queue.
type Frame struct {
	Time    int64  // Unix milliseconds of the Append
	Samples uint32 // number of samples in the payload, only used for counts
	Payload []byte // at most MaxPayload bytes
}

// Amount counts frames, the samples in them and the bytes of their payload.
type Amount struct {
	Frames, Samples uint64
	Bytes           int64
}

// Add adds b.
func (a *Amount) Add(b Amount) {
	a.Frames += b.Frames
	a.Samples += b.Samples
	a.Bytes += b.Bytes
}

// sub subtracts b, but not below zero: if a sector was unreadable at the start and is readable now,
// its frames were never counted.
func (a *Amount) sub(b Amount) {
	a.Frames -= min(a.Frames, b.Frames)
	a.Samples -= min(a.Samples, b.Samples)
	a.Bytes -= min(a.Bytes, b.Bytes)
}

// Amount returns the amount of one frame.
func (f *Frame) Amount() Amount { return Amount{1, uint64(f.Samples), int64(len(f.Payload))} }

// Options of a queue.
type Options struct {
	MaxBytes     int64 // limit of all segments together
	SegmentBytes int64 // 0 means a 16th of MaxBytes, at most 64 MiB

	// Mark begins every frame that this process writes. It must be a random number that senders
	// cannot know, or they could forge frames inside their payload.
	Mark uint32

	// Sync makes each Append sync the disk before it returns, so that the frames survive a power
	// loss, too.
	Sync bool

	// Damaged is called for each place that Open or Peek skips.
	Damaged func(segment.Damage)

	// Found is called by Open for each frame that waits, the oldest first. The payload is valid during the call.
	// Found may be nil.
	Found func(Frame)
}

// Queue is an open queue. Any goroutine may call Append and Waiting; one goroutine calls Peek and
// Done. A slow read does not hold up an Append.
type Queue struct {
	fs   segment.FS
	opts Options

	// Used only by the reading goroutine.
	reader *segment.Scanner // of the oldest segment; nil before its first Peek
	peeked segment.Frame    // the frame that Peek returned; valid if its position is above done

	mu       sync.Mutex
	segments []*segmentFile   // the oldest first
	tail     segment.Appender // appends to the last segment; has no segment until an Append begins one
	done     segment.Position // frames up to this position are no longer needed
	kept     segment.Position // the position in the file "done"
	hasFile  bool             // there is a file "done"
	saved    segment.Writer   // the file "done"; nil before the first write
	entries  int              // number of entries in the file "done"
}

// segmentFile is a segment and its waiting frames. It ends where the next one begins.
type segmentFile struct {
	first   segment.Position
	size    int64  // in bytes; bytes beyond it do not count
	waiting Amount // not done
	oldest  int64  // time of the first waiting frame
}

// Append writes frames after all others, in one write, and returns the amount that it had to give
// up for them. If the error is nil, the frames survive the death of the process. After an error the
// queue has none of the frames. But if the process then dies before the next Append, some of the
// frames may be sent even so.
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
		added.Add(f.Amount())
	}
	n := segment.HeaderBytes + q.tail.Added()
	if n > q.opts.MaxBytes {
		return givenUp,
			fmt.Errorf("append to the queue: %w: %d bytes exceed its limit of %d", ErrTooLarge, n, q.opts.MaxBytes)
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
	s.waiting.Add(added)
	return givenUp, nil
}

func (q *Queue) newest() *segmentFile { return q.segments[len(q.segments)-1] }

// seal ends the segment that is written to, if any.
func (q *Queue) seal() {
	if f := q.tail.Seal(); f != nil {
		_ = f.Close() // the segment's bytes are in the page cache, or synced
	}
}

// makeRoom gives up the oldest segments until n more bytes fit into the limit.
func (q *Queue) makeRoom(n int64) (givenUp Amount) {
	for _, s := range q.segments {
		n += s.size
	}
	for n > q.opts.MaxBytes {
		oldest := q.segments[0]
		givenUp.Add(oldest.waiting)
		n -= oldest.size
		q.drop()
	}
	return givenUp
}

// drop removes the oldest segment, and all its frames count as done. It saves the position first,
// or the next start would report the frames as lost.
func (q *Queue) drop() {
	upTo := q.tail.Last
	if len(q.segments) > 1 {
		upTo = q.segments[1].first - 1
	} else {
		q.seal()
	}
	if upTo > q.done {
		q.done = upTo
		_ = q.save() // the next save tries again
	}
	_ = q.fs.Remove(segmentFormat.Name(q.segments[0].first)) // if this fails, Peek removes the file after a restart
	q.segments = q.segments[1:]
}

// write writes the added frames to the current segment or into a new one. After a failure, even if
// only the sync failed, the segment gets no more frames.
func (q *Queue) write() error {
	first := q.tail.Last + 1
	began, err := q.tail.Write()
	if err != nil {
		q.tail.CutBack() // if that fails, the name of the next segment shows where the valid frames end
		q.seal()
		return err
	}
	if began {
		q.segments = append(q.segments, &segmentFile{first: first})
	}
	q.newest().size = q.tail.Size()
	return nil
}

// Peek returns the oldest frame that is not done, and false if none waits. It returns the same
// frame until Done, or until the queue gives it up. The payload is valid until the next Peek.
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
			if q.leave(s.first) { // the segment was not given up meanwhile
				q.damaged(segment.Damage{
					File: segmentFormat.Name(s.first), Bytes: s.size, Frames: s.waiting.Frames, Reason: err.Error(),
				})
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
			return Frame{}, false, nil // this segment may get more frames
		default:
			q.passed(s.first, from, s.size, last, limit, q.reader.Err)
			q.leave(s.first)
		}
	}
}

// Ahead returns the oldest frames that wait: as many as fit into `bytes` bytes of payload, but at least
// one if any waits. It passes over damage, which Peek reports. The payloads are copies. The goroutine
// that calls Peek and Done may call Ahead.
func (q *Queue) Ahead(bytes int) (frames []Frame, err error) {
	q.mu.Lock()
	done, segments := q.done, make([]segmentFile, len(q.segments))
	for i, s := range q.segments {
		segments[i] = *s
	}
	q.mu.Unlock()
	for i, s := range segments {
		limit := segment.NoLimit
		if i+1 < len(segments) {
			limit = segments[i+1].first
		}
		r, err := segmentFormat.Open(q.fs, s.first)
		if errors.Is(err, fs.ErrNotExist) { // given up meanwhile
			continue
		} else if err != nil {
			return nil, err
		}
		for f, ok := r.Next(s.size, limit); ok; f, ok = r.Next(s.size, limit) {
			if f.Pos <= done {
				continue
			}
			if bytes -= len(f.Payload); bytes < 0 && len(frames) > 0 {
				return frames, r.Close()
			}
			frame := frameOf(&f)
			frame.Payload = slices.Clone(frame.Payload)
			frames = append(frames, frame)
		}
		_ = r.Close()
	}
	return frames, nil
}

// open makes q.reader read the segment.
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

// peek stores f as the frame that was read.
func (q *Queue) peek(f segment.Frame) {
	q.peeked = f
	q.mu.Lock()
	defer q.mu.Unlock()
	if f.Pos > q.done { // not given up meanwhile
		q.segments[0].oldest = frameOf(&f).Time
	}
}

// leave(first) drops a segment that was read to its end, unless it was given up meanwhile, and reports
// whether it dropped the segment.
func (q *Queue) leave(first segment.Position) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.segments) == 0 || q.segments[0].first != first {
		return false
	}
	q.drop()
	return true
}

// passed(first, ...) reports the damage between two frames of a segment, if there is any: the bytes
// [from, to), and the frames between the positions last and next.
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
		d.Reason = "no waiting frame: a frame that is done, or a torn or failed write, never acknowledged " +
			"unless power was lost"
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

// Done marks the frame that Peek returned last as no longer needed. `counted` is false if the
// queue gave the frame up meanwhile. After an error a restart may return the frame again.
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

// Trim removes the last segment if all its frames are done. Without it the segment stays until the next one
// begins. Call it where frames rarely wait.
func (q *Queue) Trim() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.segments) == 1 && q.done == q.tail.Last {
		q.drop()
	}
}

// Waiting returns the amount of frames that are not done, and the time of the oldest one, or 0 if
// there are none. Between Done and the next Peek, the time is still the time of the frame that is
// done.
func (q *Queue) Waiting() (sum Amount, oldest int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.segments {
		if sum.Frames == 0 && s.waiting.Frames > 0 {
			oldest = s.oldest
		}
		sum.Add(s.waiting)
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
