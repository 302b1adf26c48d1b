// Package journal keeps what an aggregator must not lose when its process dies: a
// log of opaque records, each of one shard, and checkpoints of the shards' state
// that make older records unnecessary.
//
// Each shard has a journal of its own: its records never refer to another
// shard's, and are replayed from the shard's own checkpoint section. On disk the
// shards of an instance share one sequence of segment files, so that one window
// of all of them costs one write and one descriptor (docs/decisions/journal.md).
//
// What records and sections mean is the aggregator's business, and how files are
// reached is adapter/files'. Layout and the laws of recovery: docs/format/journal.md.
package journal

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/freshet-io/freshet/internal/core/series"
)

const (
	// MaxRecord and MaxSection limit the payload of a frame, in bytes. A length beyond them
	// is damage, so they bound what a reader allocates. Longer sections are cut.
	MaxRecord  = 16 << 20
	MaxSection = 256 << 20

	// segmentBytes is when a segment is full. Smaller ones are removed sooner
	// after a checkpoint; larger ones are fewer.
	segmentBytes = 64 << 20
)

// ErrTooLarge means that a record exceeds MaxRecord: it can never be appended.
var ErrTooLarge = errors.New("record too large")

// Position is the ordinal of a record in the journal: the first is 1.
type Position uint64

// Record is one entry of a shard's journal.
type Record struct {
	Shard   uint16 // below series.Shards
	Type    uint8  // the caller's
	Payload []byte // at most MaxRecord bytes; may be nil
}

// FS is the directory that holds a journal. Names have no slashes in them.
type FS interface {
	List() ([]string, error)
	Create(name string) (Writer, error)          // empty; replaces a file of that name; writes append
	Open(name string) (Reader, int64, error)     // and its size in bytes
	Truncate(name string, sizeBytes int64) error // also while it is open for writing
	Rename(from, to string) error                // replaces a file named to
	Remove(name string) error
	SyncDir() error // makes created, renamed and removed names survive a power loss
}

// Writer is a file open for writing. Sync makes what was written survive a power
// loss, and may be called while another goroutine writes.
type Writer interface {
	io.WriteCloser
	Sync() error
}

// Reader is a file open for reading. Its Sync is the Writer's: a process may have
// to sync what another one wrote before it died.
type Reader interface {
	io.ReaderAt
	io.Closer
	Sync() error
}

// Options of a journal.
type Options struct {
	// Mark begins every record that this process writes, and lets a reader find
	// the next one behind damage. It must be a random number that senders cannot
	// know, or they could forge records inside their payload.
	Mark uint32

	SegmentBytes int64 // 0 means 64 MiB

	// SectionBytes is the longest section of a checkpoint that is one frame; a longer one
	// is cut. 0 means MaxSection, which is the most.
	SectionBytes int
}

// Log is an open journal. Append, Sync, Size and the methods of a Checkpoint may
// be called by different goroutines: a slow Sync or Commit does not hold up an
// Append.
type Log struct {
	fs   FS
	opts Options
	plan plan // what Open found, for Load and Replay

	syncing sync.Mutex // held by whoever closes a sealed segment; taken before mu

	mu         sync.Mutex
	buf        []byte   // of the largest Append so far
	last       Position // of the last record
	active     Writer   // nil until the next Append
	name       string   // of active
	size       int64    // of active, in bytes; what lies beyond does not count
	found      []file   // segments that were there at Open and that nobody may have synced
	sealed     []sealed // segments that were ended since, and not synced
	newNames   bool     // a segment may have been created since the last SyncDir
	sinceBytes int64    // of records since the last checkpoint
	base       Position // of the newest whole checkpoint
	checkpoint *Checkpoint
}

// sealed is a segment that is complete but not synced. Its descriptor stays open,
// since the kernel reports a failed write-back only to those that held the file.
type sealed struct {
	Writer
	first Position
	name  string
}

// Append writes records after all earlier ones, in one write, and returns the
// position of the last of them; the others precede it without a gap. When it
// returns nil they survive the death of the process.
//
// On an error none of them counts, and the next Append goes on as if this one had
// not been: the file is cut back, or else abandoned for a new segment. Only if
// the process dies before that next Append, or the machine before the next Sync,
// may an abandoned segment hand some first records of the batch to Replay. A
// payload beyond MaxRecord is refused before anything is written.
func (l *Log) Append(records []Record) (Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(records) == 0 {
		return l.last, nil
	}
	// The header is encoded in any case and left out of the write where the
	// segment has one: so a new segment's header and records are one write too,
	// and no segment has a header and nothing else.
	buf := appendHeader(l.buf[:0], segmentMagic, l.opts.Mark, l.last+1)
	for i := range records {
		r := &records[i]
		if r.Shard >= series.Shards {
			panic(fmt.Sprintf("BUG: journal record for shard %d", r.Shard))
		}
		if len(r.Payload) > MaxRecord {
			return 0, fmt.Errorf("append to the journal of shard %d: %w: %d bytes exceed %d", r.Shard, ErrTooLarge, len(r.Payload), MaxRecord)
		}
		buf = appendFrame(buf, l.opts.Mark, r.Shard, r.Type, l.last+1+Position(i), r.Payload)
	}
	l.buf = buf
	if err := l.write(buf); err != nil {
		return 0, fmt.Errorf("append %d records to the journal: %w", len(records), err)
	}
	l.last += Position(len(records))
	l.sinceBytes += int64(len(buf) - headerBytes)
	return l.last, nil
}

// write puts buf, a header and frames, at the end of the active segment or into a
// new one.
func (l *Log) write(buf []byte) error {
	if l.active != nil && l.size+int64(len(buf)-headerBytes) > l.opts.SegmentBytes {
		l.seal()
	}
	if l.active == nil {
		// A file of that name can only hold records that did not count.
		name := segmentName(l.last + 1)
		f, err := l.fs.Create(name)
		if err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
		l.active, l.name, l.size, l.newNames = f, name, 0, true
	} else {
		buf = buf[headerBytes:]
	}
	n, err := l.active.Write(buf)
	if err == nil && n < len(buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		l.cutBack()
		return fmt.Errorf("write %s: %w", l.name, err)
	}
	l.size += int64(n)
	return nil
}

// cutBack undoes a failed write. Where that fails too the file is given up: the
// name of the next segment tells readers which of its records count.
func (l *Log) cutBack() {
	switch {
	case l.size == 0: // a new segment; the next one has the same name and replaces it
		_ = l.active.Close()
		_ = l.fs.Remove(l.name)
		l.active = nil
	case l.fs.Truncate(l.name, l.size) != nil:
		l.seal()
	}
}

// seal ends the active segment.
func (l *Log) seal() {
	first, _ := parseName(l.name, segmentSuffix)
	l.sealed = append(l.sealed, sealed{l.active, first, l.name})
	l.active = nil
}

// Sync makes all records before it survive a power loss, also those that an
// earlier process appended. After an error those since the last Sync may not, whatever a later Sync says, for the
// kernel reports a lost page once: only a checkpoint makes up for them. The
// journal goes on in a new segment.
func (l *Log) Sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()

	l.mu.Lock()
	found, done, active, name, newNames := l.found, l.sealed, l.active, l.name, l.newNames
	l.found, l.sealed, l.newNames = nil, nil, false
	l.mu.Unlock()

	var errs []error
	for _, s := range found {
		if err := syncFound(l.fs, s.name); err != nil {
			errs = append(errs, fmt.Errorf("sync journal segment %s: %w", s.name, err))
		}
	}
	for _, s := range done {
		if err := s.Sync(); err != nil {
			errs = append(errs, fmt.Errorf("sync journal segment %s: %w", s.name, err))
		}
		_ = s.Close() // what it could report, Sync did
	}
	if active != nil {
		if err := active.Sync(); err != nil {
			errs = append(errs, fmt.Errorf("sync journal segment %s: %w", name, err))
			l.giveUp(active)
		}
	}
	if newNames {
		if err := l.fs.SyncDir(); err != nil {
			errs = append(errs, fmt.Errorf("sync journal directory: %w", err))
			l.mu.Lock()
			l.newNames = true
			l.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

func syncFound(fs FS, name string) error {
	f, _, err := fs.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// giveUp closes a segment that was active when its Sync failed, so that no later
// Sync calls its records safe. An Append may have sealed it meanwhile.
func (l *Log) giveUp(w Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active == w {
		l.active = nil
	}
	for i := range l.sealed {
		if l.sealed[i].Writer == w {
			l.sealed = append(l.sealed[:i], l.sealed[i+1:]...)
			break
		}
	}
	_ = w.Close()
}

// Size returns the bytes of records since the last checkpoint was begun: what a
// restart would replay.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sinceBytes
}

// Close syncs the journal and closes its files. A checkpoint must have ended.
func (l *Log) Close() error {
	err := l.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active != nil {
		err = errors.Join(err, l.active.Close())
		l.active = nil
	}
	return err
}
