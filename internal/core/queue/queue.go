// Package queue keeps records on disk, the oldest first, until they are done: a
// bounded queue that outlives its process. A full one gives up its oldest segment
// and says what was in it, since a queue that blocks its writer would stop what
// feeds it, and one that refuses the newest would keep what nobody waits for.
//
// What records mean, when to try again, and what time it is, is its owner's
// business; how files are reached is adapter/files'. Layout and the laws of
// reading: docs/format/queue.md.
package queue

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"sync"

	"github.com/freshet-io/freshet/internal/core/journal"
)

// MaxRecord limits a payload, in bytes. A length beyond it is damage, so it bounds
// what a reader allocates.
const MaxRecord = 32 << 20

// A queue has segments of a 16th of its limit, which is what it gives up at once,
// but none above 64 MiB.
const (
	segmentsOfLimit = 16
	maxSegment      = 64 << 20
)

// ErrTooLarge means that records exceed MaxRecord, or the queue's limit: they can
// never be appended.
var ErrTooLarge = errors.New("too large for the queue")

// Record is one entry of the queue.
type Record struct {
	Time    int64  // Unix milliseconds, when it was appended
	Samples uint32 // in the payload, only to be counted
	Payload []byte // at most MaxRecord bytes
}

// Amount counts records, the samples in them and the bytes of their payload.
type Amount struct {
	Records, Samples uint64
	Bytes            int64
}

func (a *Amount) add(b Amount) {
	a.Records += b.Records
	a.Samples += b.Samples
	a.Bytes += b.Bytes
}

// sub stops at zero: a sector that could not be read at the start, and can now,
// gives records that were not counted.
func (a *Amount) sub(b Amount) {
	a.Records -= min(a.Records, b.Records)
	a.Samples -= min(a.Samples, b.Samples)
	a.Bytes -= min(a.Bytes, b.Bytes)
}

// Amount of one record.
func (r *Record) Amount() Amount { return Amount{1, uint64(r.Samples), int64(len(r.Payload))} }

// Damage is a place that could not be read and was passed over.
type Damage struct {
	File    string
	Offset  int64
	Bytes   int64
	Records uint64 // lost, at most; 0 also if that cannot be known
	Reason  string
}

// String names the place, the loss and the reason.
func (d Damage) String() string {
	return fmt.Sprintf("%s, byte %d: %s (%d bytes, at most %d records lost)", d.File, d.Offset, d.Reason, d.Bytes, d.Records)
}

// Options of a queue.
type Options struct {
	MaxBytes     int64 // of all segments
	SegmentBytes int64 // 0 means a 16th of MaxBytes, at most 64 MiB

	// Mark begins every record that this process writes. It must be a random number
	// that senders cannot know, or they could forge records inside their payload.
	Mark uint32

	// Sync forces each Append to the disk before it returns, so that it survives a
	// power loss as well.
	Sync bool

	// Damaged is told of each place that is passed over, by Open and by Peek.
	Damaged func(Damage)
}

// Queue is an open queue. Any goroutine may call Append and Waiting; Peek and Done
// belong to one. A slow read does not hold up an Append.
type Queue struct {
	fs   journal.FS
	opts Options

	// Of the goroutine that reads.
	reader *reader // of the oldest segment; nil before its first Peek
	peeked frame   // what Peek returned; valid if its position is above done

	mu       sync.Mutex
	segments []*segment     // the oldest first
	active   journal.Writer // of the last segment; nil before the next Append
	buf      []byte         // of the largest Append so far
	last     uint64         // position of the record that was appended last
	done     uint64         // position up to which nothing is needed any more
	saved    journal.Writer // the file done; nil before it is written
	entries  int            // in it
}

// segment is a file of records. It ends where the next one begins.
type segment struct {
	first   uint64
	size    int64  // in bytes; what lies beyond does not count
	waiting Amount // not done
	oldest  int64  // time of the first of them
}

// noLimit is the position below which the records of the last segment lie.
const noLimit = math.MaxUint64

// Append writes records behind all others, in one write, and returns what had to
// be given up for them. When the error is nil they survive the death of the
// process. On an error none of them counts; only if the process dies before the
// next Append may some of them be sent after all.
func (q *Queue) Append(records ...Record) (givenUp Amount, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(records) == 0 {
		return givenUp, nil
	}
	// The header is encoded in any case and left out of the write where the segment
	// has one: so no segment has a header and nothing else.
	buf := appendHeader(q.buf[:0], segmentMagic, q.opts.Mark, q.last+1)
	var added Amount
	for i := range records {
		r := &records[i]
		if len(r.Payload) > MaxRecord {
			return givenUp, fmt.Errorf("append to the queue: %w: %d bytes exceed %d", ErrTooLarge, len(r.Payload), MaxRecord)
		}
		buf = appendFrame(buf, q.opts.Mark, q.last+1+uint64(i), r)
		added.add(r.Amount())
	}
	q.buf = buf
	n := int64(len(buf))
	if n > q.opts.MaxBytes {
		return givenUp, fmt.Errorf("append to the queue: %w: %d bytes exceed its limit of %d", ErrTooLarge, n, q.opts.MaxBytes)
	}
	if q.active != nil && q.newest().size+n-headerBytes > q.opts.SegmentBytes {
		q.seal()
	}
	givenUp = q.makeRoom(n)
	if err := q.write(buf); err != nil {
		return givenUp, fmt.Errorf("append %d records to the queue: %w", len(records), err)
	}
	s := q.newest()
	if s.waiting.Records == 0 {
		s.oldest = records[0].Time
	}
	s.waiting.add(added)
	q.last += uint64(len(records))
	return givenUp, nil
}

func (q *Queue) newest() *segment { return q.segments[len(q.segments)-1] }

// seal ends the active segment.
func (q *Queue) seal() {
	_ = q.active.Close() // what it wrote is in the page cache, or synced
	q.active = nil
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
// saved before: else the next start would take the records for lost.
func (q *Queue) drop() {
	upTo := q.last
	if len(q.segments) > 1 {
		upTo = q.segments[1].first - 1
	} else if q.active != nil {
		q.seal()
	}
	if upTo > q.done {
		q.done = upTo
		_ = q.save() // the next one is a new attempt
	}
	_ = q.fs.Remove(segmentName(q.segments[0].first)) // otherwise it is removed after the next start, when Peek has passed it
	q.segments = q.segments[1:]
}

// write puts buf, a header and records, at the end of the active segment or into a
// new one.
func (q *Queue) write(buf []byte) error {
	created := q.active == nil
	if created {
		// A file of that name can only hold records that did not count.
		name := segmentName(q.last + 1)
		f, err := q.fs.Create(name)
		if err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
		q.active = f
		q.segments = append(q.segments, &segment{first: q.last + 1})
	} else {
		buf = buf[headerBytes:]
	}
	s := q.newest()
	if err := q.writeOut(buf, created); err != nil {
		q.undo()
		return fmt.Errorf("write %s: %w", segmentName(s.first), err)
	}
	s.size += int64(len(buf))
	return nil
}

func (q *Queue) writeOut(buf []byte, created bool) error {
	n, err := q.active.Write(buf)
	if err == nil && n < len(buf) {
		err = io.ErrShortWrite
	}
	if err == nil && q.opts.Sync {
		if err = q.active.Sync(); err == nil && created {
			err = q.fs.SyncDir()
		}
	}
	return err
}

// undo takes back a failed write. Where that fails too, the name of the next
// segment tells readers which records of this one count.
func (q *Queue) undo() {
	q.seal()
	s := q.newest()
	if s.size > 0 {
		_ = q.fs.Truncate(segmentName(s.first), s.size)
		return
	}
	_ = q.fs.Remove(segmentName(s.first)) // the next segment has the same name and replaces it
	q.segments = q.segments[:len(q.segments)-1]
}

// Peek returns the oldest record that is not done, and false if none waits. It is
// the same until Done, or until the queue gives it up. The payload lasts until the
// next Peek.
func (q *Queue) Peek() (Record, bool, error) {
	for {
		q.mu.Lock()
		done, limit, s := q.done, uint64(noLimit), segment{}
		if len(q.segments) > 0 {
			s = *q.segments[0]
		}
		if len(q.segments) > 1 {
			limit = q.segments[1].first
		}
		q.mu.Unlock()
		if q.peeked.pos > done {
			return q.peeked.Record, true, nil
		}
		if s.first == 0 {
			return Record{}, false, nil
		}
		if err := q.open(s.first); errors.Is(err, fs.ErrNotExist) {
			if q.leave(s.first) { // and it was not given up meanwhile
				q.damaged(Damage{File: segmentName(s.first), Bytes: s.size, Records: s.waiting.Records, Reason: err.Error()})
			}
			continue
		} else if err != nil {
			return Record{}, false, err
		}
		from, last := q.reader.end, max(q.reader.last, done)
		f, ok := q.reader.next(s.size, limit)
		switch {
		case ok:
			q.passed(s.first, from, f.offset, last, f.pos, nil)
			q.peek(f)
		case limit == noLimit:
			return Record{}, false, nil // more will come behind it
		default:
			q.passed(s.first, from, s.size, last, limit, q.reader.err)
			q.leave(s.first)
		}
	}
}

// open makes q.reader that of the segment.
func (q *Queue) open(first uint64) (err error) {
	if q.reader != nil && q.reader.first == first {
		return nil
	}
	if q.reader != nil {
		_ = q.reader.src.Close()
	}
	q.reader, err = openSegment(q.fs, first)
	return err
}

// peek remembers f as what was read.
func (q *Queue) peek(f frame) {
	q.peeked = f
	q.mu.Lock()
	defer q.mu.Unlock()
	if f.pos > q.done { // it was not given up meanwhile
		q.segments[0].oldest = f.Time
	}
}

// leave drops a segment that has nothing more to read, if it has not been given up
// meanwhile.
func (q *Queue) leave(first uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.segments) == 0 || q.segments[0].first != first {
		return false
	}
	q.drop()
	return true
}

// passed reports what lies between two records of a segment, if anything does: the
// bytes in [from, to), the records between the positions last and next.
func (q *Queue) passed(first uint64, from, to int64, last, next uint64, err error) {
	records := uint64(0)
	if next > last+1 {
		records = next - last - 1
	}
	if to == from && records == 0 {
		return
	}
	d := Damage{File: segmentName(first), Offset: from, Bytes: to - from, Records: records}
	switch {
	case err != nil:
		d.Reason = "cannot be read: " + err.Error()
	case records == 0:
		d.Reason = "no record that waits: one that is done, or a torn or failed write, which did not count unless power was lost"
	default:
		d.Reason = fmt.Sprintf("records %d to %d are damaged or missing", last+1, next-1)
	}
	q.damaged(d)
}

func (q *Queue) damaged(d Damage) {
	if q.opts.Damaged != nil {
		q.opts.Damaged(d)
	}
}

// Done says that the record that Peek returned last is not needed any more. It
// reports whether it still counted, which it does not if it was given up
// meanwhile. After an error a restart may return the record again.
func (q *Queue) Done() (counted bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.peeked.pos <= q.done {
		return false, nil
	}
	q.segments[0].waiting.sub(q.peeked.Amount())
	q.done = q.peeked.pos
	return true, q.save()
}

// Waiting returns what is not done, and the time of the oldest of it, 0 if there is
// nothing. Between Done and the next Peek that time is of the record before.
func (q *Queue) Waiting() (sum Amount, oldest int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.segments {
		if sum.Records == 0 && s.waiting.Records > 0 {
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
	if q.active != nil {
		errs = append(errs, q.active.Close())
		q.active = nil
	}
	if q.saved != nil {
		errs = append(errs, q.saved.Close())
		q.saved = nil
	}
	if q.reader != nil {
		errs = append(errs, q.reader.src.Close())
		q.reader = nil
	}
	return errors.Join(errs...)
}
