package entrylog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/freshet-io/freshet/internal/core/segment"
)

// Append stores a write. When it returns nil, the write survives the death of the process. If it
// has entries or asks for a sync, it also survives a power loss.
//
// On an error no part of the write counts, and the same write may be tried again. The entries that
// it would have replaced may be gone. That does no harm: they were not committed, and Raft holds
// the new ones in memory.
func (l *Log) Append(w *Write) error {
	base, err := l.check(w)
	if err != nil {
		return err
	}
	size := int64(0)
	for i := range w.Entries {
		size += segment.FrameBytes + segment.StampBytes + termBytes + int64(len(w.Entries[i].Data))
	}
	file, _ := l.tail.Active()
	if file == nil || base < l.last || l.tail.Size()+size > l.tail.MaxBytes {
		if err := l.nextSegment(base); err != nil {
			return fmt.Errorf("begin a segment after entry %d: %w", base, err)
		}
	}
	if err := l.write(w); err != nil {
		return fmt.Errorf("append %d entries after entry %d: %w", len(w.Entries), base, err)
	}
	return nil
}

// check returns the index before the write's first entry, or an error if the log cannot take the
// entries.
func (l *Log) check(w *Write) (base uint64, err error) {
	base = l.last
	if len(w.Entries) == 0 {
		return base, nil
	}
	base = w.Entries[0].Index - 1
	if base > l.last || base < l.state.Commit {
		return 0, fmt.Errorf("%w: entry %d is to be written, but the last entry is %d, and entry %d is committed",
			ErrDamaged, base+1, l.last, l.state.Commit)
	}
	before := Entry{Index: base, Term: l.termOf(base)}
	for i := range w.Entries {
		e := &w.Entries[i]
		if e.Index != before.Index+1 || e.Term < before.Term || len(e.Data) > MaxEntry {
			return 0, fmt.Errorf("%w: entry %d (term %d, %d bytes) is to be written after entry %d (term %d)",
				ErrDamaged, e.Index, e.Term, len(e.Data), before.Index, before.Term)
		}
		before = *e
	}
	return base, nil
}

// nextSegment syncs and ends the current segment, and begins one whose entries come after base.
func (l *Log) nextSegment(base uint64) error {
	if file, _ := l.tail.Active(); file != nil {
		if l.synced < l.tail.Last {
			if err := file.Sync(); err != nil {
				l.abandon()
				return fmt.Errorf("sync the previous segment: %w", err)
			}
			l.synced = l.tail.Last
		}
		_ = l.tail.Seal().Close() // an earlier Sync reported any error
	}
	members, err := l.membersAt(base)
	if err != nil {
		return err
	}
	return l.beginSegment(&head{base: base, term: l.termOf(base), state: l.state, members: members})
}

// beginSegment writes the header and the head in a write of their own, so that the size of this write is
// known.
func (l *Log) beginSegment(h *head) error {
	payload, err := h.payload()
	if err != nil {
		return err
	}
	l.tail.Begin()
	l.tail.Add(&segment.Frame{Tag: tag(headFrame, 0), Stamp: h.base, Payload: payload})
	l.tail.Sync = true
	if _, err := l.tail.Write(); err != nil {
		l.tail.CutBack() // removes the file
		return err
	}
	l.synced = l.tail.Last
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin(l.tail.Last, h)
	return nil
}

// write writes to the current segment, and then changes the fields that describe the log.
func (l *Log) write(w *Write) error {
	offsets := make([]uint32, len(w.Entries))
	l.tail.Begin()
	unsynced := uint64(l.tail.Last - l.synced)
	add := func(typ uint8, stamp uint64) {
		l.tail.Add(&segment.Frame{Tag: tag(typ, unsynced), Stamp: stamp, Payload: l.scratch})
		unsynced++
	}
	for i := range w.Entries {
		e := &w.Entries[i]
		offset := l.tail.Size() + l.tail.Added()
		if offset > math.MaxUint32 {
			return errors.New("the write does not fit into a segment")
		}
		offsets[i] = uint32(offset)
		l.scratch = appendEntry(l.scratch[:0], e)
		add(entryType(e), e.Index)
	}
	if w.State != nil {
		l.scratch = appendState(l.scratch[:0], *w.State)
		add(stateFrame, w.State.Commit)
	}
	if unsynced == 0 {
		return nil
	}
	l.tail.Sync = w.Sync || len(w.Entries) > 0 || unsynced >= maxUnsynced/2
	if _, err := l.tail.Write(); err != nil {
		l.tail.CutBack() // to free the space
		l.abandon()
		return err
	}
	if l.tail.Sync {
		l.synced = l.tail.Last
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range w.Entries {
		l.add(&w.Entries[i], offsets[i])
		l.remember(&w.Entries[i])
	}
	if w.State != nil {
		l.state = *w.State
	}
	p := l.segments[len(l.segments)-1]
	p.end, p.size = l.tail.Size(), l.tail.Size()
	return nil
}

// abandon ends the current segment after a failed write or sync: frames that were not synced may never
// reach the disk. The next segment begins at the position of the first frame that does not count.
func (l *Log) abandon() {
	_ = l.tail.Seal().Close()
	l.tail.Last = l.synced
}

// remember puts an entry into the cache. It is called with mu held.
func (l *Log) remember(e *Entry) {
	l.cache = append(l.cache, *e)
	l.cached += cost(e)
	n := 0
	for l.cached > l.opts.CacheBytes {
		l.cached -= cost(&l.cache[n])
		l.cache[n] = Entry{}
		n++
	}
	l.cache = l.cache[n:]
}

// cost returns the size of an entry in the cache, in bytes.
func cost(e *Entry) int64 { return int64(len(e.Data)) + 48 }

// Compact removes the oldest segments that hold no entry above upTo, until the others take at most
// keepBytes. The remaining entries up to upTo let another member catch up after it was away. This member
// must be able to restore the effects of all entries up to upTo by other means.
func (l *Log) Compact(upTo uint64, keepBytes int64) error {
	if n, first := l.removable(upTo, keepBytes); n > 0 {
		l.forget(n, first)
	}
	for len(l.removed) > 0 {
		err := l.fs.Remove(format.Name(l.removed[0]))
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = l.fs.SyncDir() // so that a power loss leaves no hole
		}
		if err != nil {
			return fmt.Errorf("remove a segment of the entry log up to entry %d: %w", upTo, err)
		}
		l.removed = l.removed[1:]
	}
	return nil
}

// forget lets the log begin with another segment. Readers see the new beginning before the files of
// the earlier segments are removed.
func (l *Log) forget(n int, first *part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	term := l.termOf(first.base)
	for _, p := range l.segments[:n] {
		l.removed = append(l.removed, p.first)
	}
	l.segments = slices.Delete(l.segments, 0, n)
	l.base, l.members = first.base, first.members
	for len(l.terms) > 1 && l.terms[1].from <= l.base {
		l.terms = slices.Delete(l.terms, 0, 1)
	}
	l.terms[0] = run{l.base, term}
	l.changes = slices.DeleteFunc(l.changes, func(c change) bool { return c.index <= l.base })
	for len(l.cache) > 0 && l.cache[0].Index <= l.base {
		l.cached -= cost(&l.cache[0])
		l.cache[0] = Entry{}
		l.cache = l.cache[1:]
	}
}

// removable returns how many segments can be removed, and the segment with which the log then begins.
// That segment is not always the oldest remaining one, since a later one may have replaced all entries
// of the oldest.
func (l *Log) removable(upTo uint64, keepBytes int64) (n int, first *part) {
	size := l.Bytes()
	for i := 1; i < len(l.segments) && size > keepBytes; i++ {
		lowest := slices.MinFunc(l.segments[i:], func(a, b *part) int { return cmp.Compare(a.base, b.base) })
		if lowest.base > upTo {
			break
		}
		n, first = i, lowest
		size -= l.segments[i-1].size
	}
	return n, first
}

// Close closes the files. A power loss can still lose bytes that were not synced.
func (l *Log) Close() error {
	if f := l.tail.Seal(); f != nil {
		return f.Close()
	}
	return nil
}
