// Package entrylog keeps the entries of a group on the disk of one member, with the term, the vote and
// the commit index that Raft must not forget. It is the storage of package replica, which decides what
// to write, and when a write counts.
//
// A log is a directory of segments (core/segment). A new leader replaces entries that are not
// committed, so an index can be written twice. Such a write begins a new segment, and the head of the
// segment says which entries before it still count. No byte is overwritten. The head also repeats the
// state and the members, so that earlier segments can be removed.
//
// The torn rest of the last write is cut off at the next start. Any other damage is an error,
// ErrDamaged: a member that skipped entries, or forgot acknowledged ones, would break the promise of the
// group. A member with a damaged log must be filled again from the other members.
//
// One limit remains: if a byte of the very last write is damaged after the sync, it looks like a
// torn write.
//
// Layout and the laws of reading: docs/format/entrylog.md.
package entrylog

import (
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/segment"
)

var (
	// ErrNone means that the directory holds no log. Either it is new, or its disk was emptied. A member
	// with an emptied disk has forgotten its votes, and must not come back under its old number.
	ErrNone = errors.New("there is no entry log in the directory")

	// ErrDamaged means that the log lacks entries that the member may have acknowledged.
	ErrDamaged = errors.New("the entry log is damaged")
)

// Entry is one place in the order of a group.
type Entry struct {
	Index, Term uint64
	Change      bool   // the entry changes the members; Data is a raftpb.ConfChangeV2
	Data        []byte // never changed once it is in a Write; empty for the first entry of a leader
}

// State is all that Raft stores besides the entries. Term and Vote must never be forgotten. Commit
// may be forgotten: the leader sends it again.
type State struct{ Term, Vote, Commit uint64 }

// Write is what one Append stores: entries without a gap, and a state. Either may be missing. If
// the log already has an entry at the first index, the write replaces that entry and all later
// ones.
type Write struct {
	Entries []Entry
	State   *State
	Sync    bool // the state must survive a power loss before it counts; entries always must
}

// Base is the entry after which the log of a new member begins. The entries up to it are already in
// the member's state, which came by other means. The first members of a group all begin with the
// same base.
type Base struct {
	Index, Term uint64 // of the last entry before the log; never 0
	Members     *raftpb.ConfState
}

// Options of a log.
type Options struct {
	Mark         uint32 // as in journal.Options
	SegmentBytes int64  // 0 means 64 MiB
	CacheBytes   int64  // size of the newest entries, which stay in memory; 0 means 16 MiB
	Has          uint64 // an entry that the log has for certain, since the state of the member reaches to it
}

const (
	segmentBytes = 64 << 20
	cacheBytes   = 16 << 20
)

// Log is an open log. One goroutine may call Append and Compact while another one calls the other
// methods, such as those of raft.Storage.
type Log struct {
	fs   segment.FS
	opts Options
	torn Torn

	// Only Append and Compact use these.
	tail     segment.Appender
	synced   segment.Position // the last position that is known to survive a power loss
	scratch  []byte
	removed  []segment.Position // removed segments whose files still exist
	segments []*part            // by position, the oldest first; changed with mu held

	mu      sync.Mutex
	state   State
	base    uint64            // index before the first entry
	last    uint64            // index of the last entry; base if there is none
	members *raftpb.ConfState // as of base
	changes []change          // entries above base that change the members
	terms   []run             // the first run begins at base
	cache   []Entry           // the newest entries, in order
	cached  int64             // their bytes
	start   uint64            // the index given to Start
}

// part is a segment that holds the entries after base. Each entry has an offset, unless a later
// segment replaced it.
type part struct {
	first   segment.Position
	base    uint64
	members *raftpb.ConfState // as of base
	offsets []uint32          // of the entries in the file
	end     int64             // of the last entry in the file, or of states behind it
	size    int64             // of the file
}

func (p *part) last() uint64 { return p.base + uint64(len(p.offsets)) }

// change is an entry that changes the members.
type change struct {
	index uint64
	data  []byte
}

// run is a run of entries with one term, from index `from` up to the next run.
type run struct{ from, term uint64 }

// Torn says which bytes Open cut off, since they are the rest of a write that did not end.
type Torn struct {
	File  string // empty if nothing was cut off
	Bytes int64
}

// Torn returns what Open cut off.
func (l *Log) Torn() Torn { return l.torn }

// Files returns the segments of a log among the names of its directory, in order.
func Files(names []string) []segment.File { return format.Files(names) }

// Last returns the index of the last entry.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Base returns the index before the first entry.
func (l *Log) Base() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.base
}

// Bytes returns the size of the log on disk.
func (l *Log) Bytes() (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.segments {
		sum += p.size
	}
	return sum
}

// truncate forgets the entries above base, which a new segment replaces. It is called with mu held,
// or while nothing else uses the log.
func (l *Log) truncate(base uint64) {
	for _, p := range l.segments {
		if len(p.offsets) > 0 && p.last() > base {
			keep := max(base, p.base) - p.base
			p.end = int64(p.offsets[keep])
			p.offsets = p.offsets[:keep]
		}
	}
	for len(l.terms) > 1 && l.terms[len(l.terms)-1].from > base {
		l.terms = l.terms[:len(l.terms)-1]
	}
	for len(l.changes) > 0 && l.changes[len(l.changes)-1].index > base {
		l.changes = l.changes[:len(l.changes)-1]
	}
	for len(l.cache) > 0 && l.cache[len(l.cache)-1].Index > base {
		end := len(l.cache) - 1
		l.cached -= cost(&l.cache[end])
		l.cache[end] = Entry{}
		l.cache = l.cache[:end]
	}
	l.last = base
}

// begin adds a segment with this head. In earlier segments, entries above the head's base no longer
// count. It is called with mu held, or while nothing else uses the log.
func (l *Log) begin(first segment.Position, h *head) {
	l.truncate(h.base)
	if len(l.segments) == 0 || h.base < l.base {
		// The segments with the entries up to the base have been removed.
		l.base, l.members, l.terms, l.changes = h.base, h.members, []run{{h.base, h.term}}, nil
	}
	l.segments = append(l.segments,
		&part{first: first, base: h.base, members: h.members, end: beginBytes, size: beginBytes})
}

// add adds an entry that is at this offset of the last segment. It is called with mu held, or while
// nothing else uses the log.
func (l *Log) add(e *Entry, offset uint32) {
	p := l.segments[len(l.segments)-1]
	p.offsets = append(p.offsets, offset)
	l.last = e.Index
	if e.Term != l.terms[len(l.terms)-1].term {
		l.terms = append(l.terms, run{e.Index, e.Term})
	}
	if e.Change {
		l.changes = append(l.changes, change{e.Index, append([]byte(nil), e.Data...)})
	}
}

// follows returns an error if the entry cannot be the next one.
func (l *Log) follows(e *Entry) error {
	if last := l.terms[len(l.terms)-1].term; e.Index != l.last+1 || e.Term < last {
		return fmt.Errorf("entry %d of term %d follows entry %d of term %d", e.Index, e.Term, l.last, last)
	}
	return nil
}
