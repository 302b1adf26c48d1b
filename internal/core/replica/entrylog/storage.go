package entrylog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/segment"
)

var _ raft.Storage = (*Log)(nil)

// Start tells the log the last entry in the member's state. Call it before Raft reads InitialState. All
// entries up to that entry are committed, though the log may not know this, since commit indexes need no
// sync.
func (l *Log) Start(applied uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if applied < l.base || applied > l.last {
		return fmt.Errorf("%w: it has the entries %d to %d, but the state of the member ends with entry %d",
			ErrDamaged, l.base+1, l.last, applied)
	}
	l.state.Commit = max(l.state.Commit, applied)
	if mutant.PastCommit {
		l.state.Commit = l.last
	}
	l.start = applied
	return nil
}

// CommitAlone notes that all entries are committed if the member decides alone: it is the only voter, no later entry
// changes that, and the last entry is of the present term, so that no other leader can have replaced it. Call it
// after Start. An election would tell the same, but on a full disk there is none.
func (l *Log) CommitAlone(member uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.termOf(l.last) != l.state.Term {
		return nil
	}
	for _, c := range l.changes {
		if c.index > l.state.Commit {
			return nil
		}
	}
	members, err := l.membersAt(l.state.Commit)
	if err == nil && len(members.GetVotersOutgoing()) == 0 && slices.Equal(members.GetVoters(), []uint64{member}) {
		l.state.Commit = l.last
	}
	return err
}

// InitialState implements raft.Storage. The members are as of the index given to Start. Raft
// applies later changes again.
func (l *Log) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	members, err := l.membersAt(l.start)
	if err != nil {
		return nil, nil, err
	}
	return &raftpb.HardState{Term: new(l.state.Term), Vote: new(l.state.Vote), Commit: new(l.state.Commit)}, members, nil
}

// Snapshot implements raft.Storage. It returns no snapshot: Raft's messages do not fill a member that
// lags behind the first entry.
func (l *Log) Snapshot() (*raftpb.Snapshot, error) {
	return nil, raft.ErrSnapshotTemporarilyUnavailable
}

// FirstIndex implements raft.Storage.
func (l *Log) FirstIndex() (uint64, error) { return l.Base() + 1, nil }

// LastIndex implements raft.Storage.
func (l *Log) LastIndex() (uint64, error) { return l.Last(), nil }

// Term implements raft.Storage.
func (l *Log) Term(index uint64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case index < l.base:
		return 0, raft.ErrCompacted
	case index > l.last:
		return 0, raft.ErrUnavailable
	}
	return l.termOf(index), nil
}

// Entries implements raft.Storage. Entries that are no longer in memory are read from disk. Any
// error other than Raft's own means that the disk does not return the bytes that were written.
func (l *Log) Entries(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error) {
	found, err := l.Read(lo, hi, maxBytes)
	if err != nil {
		return nil, err
	}
	return toRaft(found), nil
}

// Read returns the entries in [lo, hi): at least one, and more up to maxBytes.
func (l *Log) Read(lo, hi, maxBytes uint64) ([]Entry, error) {
	found, places, err := l.find(lo, hi, maxBytes)
	if err == nil && len(places) > 0 {
		found, err = l.readBack(places, maxBytes)
		if errors.Is(err, fs.ErrNotExist) && lo <= l.Base() {
			err = raft.ErrCompacted // meanwhile
		}
	}
	return found, err
}

// BaseAt returns the base with which another member's log can begin: the entry at an index, and the members as of
// that entry.
func (l *Log) BaseAt(index uint64) (Base, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if index < l.base || index > l.last {
		return Base{}, fmt.Errorf("it has the entries %d to %d, not %d", l.base+1, l.last, index)
	}
	members, err := l.membersAt(index)
	return Base{Index: index, Term: l.termOf(index), Members: members}, err
}

// place is where an entry is on disk.
type place struct {
	file        segment.Position
	offset, end int64 // end is where the next entry begins or the file ends
	index       uint64
}

// find returns the entries in [lo, hi) that are in memory: at least one, and more up to maxBytes.
// If entry lo is not in memory, find returns the places on disk of the entries that are not in
// memory.
func (l *Log) find(lo, hi, maxBytes uint64) (found []Entry, places []place, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lo <= l.base {
		return nil, nil, raft.ErrCompacted
	}
	if hi > l.last+1 || lo >= hi {
		return nil, nil, raft.ErrUnavailable
	}
	cached := l.last + 1 - uint64(len(l.cache)) // index of the first entry in memory
	if lo >= cached {
		found = l.cache[lo-cached : hi-cached]
		return slices.Clone(found[:fit(found, maxBytes)]), nil, nil
	}
	size := uint64(0)
	for index := lo; index < min(hi, cached) && (size == 0 || size <= maxBytes); index++ {
		p := l.place(index)
		size += uint64(p.end - p.offset)
		places = append(places, p)
	}
	return nil, places, nil
}

// place returns where an entry is. It is called with mu held.
func (l *Log) place(index uint64) place {
	for _, p := range slices.Backward(l.segments) {
		if index <= p.base || index > p.last() {
			continue
		}
		i := index - p.base - 1
		at := place{file: p.first, offset: int64(p.offsets[i]), end: p.end, index: index}
		if i+1 < uint64(len(p.offsets)) {
			at.end = int64(p.offsets[i+1])
		}
		return at
	}
	panic(fmt.Sprintf("BUG: entry %d of %d to %d is in no segment", index, l.base+1, l.last))
}

// fit returns how many of the first entries fit into maxBytes, but at least 1.
func fit(entries []Entry, maxBytes uint64) int {
	size := uint64(0)
	for i := range entries {
		if size += uint64(cost(&entries[i])); size > maxBytes && i > 0 {
			return i
		}
	}
	return len(entries)
}

// readBack reads entries from disk, with one read for entries that are adjacent in a file.
func (l *Log) readBack(places []place, maxBytes uint64) (found []Entry, err error) {
	for len(places) > 0 {
		n := 1
		for n < len(places) && places[n].file == places[0].file {
			n++
		}
		if found, err = l.readFile(found, places[:n]); err != nil {
			return nil, fmt.Errorf("read entry %d from %s: %w", places[0].index, format.Name(places[0].file), err)
		}
		places = places[n:]
	}
	return found[:fit(found, maxBytes)], nil
}

func (l *Log) readFile(found []Entry, places []place) ([]Entry, error) {
	r, _, err := l.fs.Open(format.Name(places[0].file))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	from := places[0].offset
	buf := make([]byte, places[len(places)-1].end-from)
	if _, err := r.ReadAt(buf, from); err != nil {
		return nil, err
	}
	for _, p := range places {
		b := buf[p.offset-from : p.end-from] // states may follow the entry
		n := int64(format.HeadBytes()) + int64(order.Uint32(b[8:]))
		if n > int64(len(b)) {
			return nil, fmt.Errorf("%w: byte %d: the entry is %d bytes long", ErrDamaged, p.offset, n)
		}
		frame, ok := format.ParseFrame(b[:n])
		if !ok || frame.Stamp != p.index {
			return nil, fmt.Errorf("%w: byte %d: the entry has changed since it was written", ErrDamaged, p.offset)
		}
		e, err := parseEntry(&frame)
		if err != nil {
			return nil, fmt.Errorf("%w: byte %d: %w", ErrDamaged, p.offset, err)
		}
		found = append(found, e)
	}
	return found, nil
}

// toRaft returns entries in Raft's form, with the same data, in two allocations.
func toRaft(entries []Entry) []*raftpb.Entry {
	type whole struct {
		e           raftpb.Entry
		index, term uint64
	}
	all, pointers := make([]whole, len(entries)), make([]*raftpb.Entry, len(entries))
	for i := range entries {
		w, e := &all[i], &entries[i]
		w.index, w.term = e.Index, e.Term
		w.e.Index, w.e.Term, w.e.Data = &w.index, &w.term, e.Data
		if w.e.Type = raftpb.EntryNormal.Enum(); e.Change {
			w.e.Type = raftpb.EntryConfChangeV2.Enum()
		}
		pointers[i] = &w.e
	}
	return pointers
}
