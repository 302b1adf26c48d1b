package recentseries

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/freshet-io/freshet/internal/lib/index"
)

// maxTime bounds the log's time. Package entry has the same bound.
const maxTime = 9_000_000_000_000

var errMalformed = errors.New("recent series: malformed")

// Append appends the saved form, with all changes as if they were final. It is equal on all members
// that have applied the same requests. Layout: docs/format/entry.md.
func (s *Set) Append(b []byte) []byte {
	s.lookUp()
	return appendSaved(b, s.epoch, view{of: &s.present}.hashes(), view{of: &s.before}.hashes())
}

// AppendKept is Append without the changes since the last Keep. It may run while another goroutine
// makes changes.
func (s *Set) AppendKept(b []byte) []byte {
	epoch, present, before := s.kept()
	return appendSaved(b, epoch, present, before)
}

// kept returns the series as Undo would leave them.
func (s *Set) kept() (epoch int64, present, before []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch = s.epoch
	now, last := view{of: &s.present}, view{of: &s.before}
	dropped := s.dropped
	for i := len(s.changes) - 1; i >= 0; i-- {
		c := s.changes[i]
		switch c.what {
		case added:
			now.remove(Hash(c.of))
		case moved:
			now.remove(Hash(c.of))
			last.add(Hash(c.of))
		case aged:
			step := dropped[len(dropped)-1]
			dropped = dropped[:len(dropped)-1]
			epoch, now, last = step.epoch, last, view{of: &step.before}
		case begun:
			epoch = 0
		}
	}
	return epoch, now.hashes(), last.hashes()
}

// view is an index with some hashes added and others removed.
type view struct {
	of             *index.Index
	added, removed map[Hash]struct{}
}

func (v *view) add(h Hash) {
	if _, was := v.removed[h]; was {
		delete(v.removed, h)
		return
	}
	if v.added == nil {
		v.added = map[Hash]struct{}{}
	}
	v.added[h] = struct{}{}
}

func (v *view) remove(h Hash) {
	if _, was := v.added[h]; was {
		delete(v.added, h)
		return
	}
	if v.removed == nil {
		v.removed = map[Hash]struct{}{}
	}
	v.removed[h] = struct{}{}
}

// hashes returns the hashes in any order.
func (v view) hashes() (all []uint64) {
	for hash, number := range v.of.All {
		h := Hash(number)<<32 | Hash(hash)
		if _, is := v.removed[h]; !is {
			all = append(all, uint64(h))
		}
	}
	for h := range v.added {
		all = append(all, uint64(h))
	}
	return all
}

func appendSaved(b []byte, epoch int64, present, before []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(epoch))
	b = binary.AppendUvarint(b, uint64(len(present)))
	for _, part := range [...][]uint64{present, before} {
		slices.Sort(part)
		for _, h := range part {
			b = binary.LittleEndian.AppendUint64(b, h)
		}
	}
	return b
}

// Parse replaces the series by those in a saved form. After an error nothing is replaced.
func (s *Set) Parse(b []byte) error {
	epoch, b, ok := cutNumber(b, maxTime/Epoch)
	if !ok {
		return errMalformed
	}
	present, b, ok := cutNumber(b, Most)
	if !ok || len(b)%8 != 0 || len(b)/8 > Most || uint64(len(b)/8) < present {
		return errMalformed
	}
	before := b[8*present:]
	if epoch == 0 && len(before) > 0 {
		return errMalformed
	}
	parsed := series{epoch: int64(epoch), size: len(b) / 8, older: len(before) / 8}
	if !parseHashes(&parsed.present, b[:8*present]) || !parseHashes(&parsed.before, before) {
		return errMalformed
	}
	for hash, number := range parsed.before.All {
		if has(&parsed.present, Hash(number)<<32|Hash(hash)) {
			return errMalformed
		}
	}
	s.series, s.noted, s.changes, s.dropped = parsed, nil, nil, nil
	return nil
}

// parseHashes inserts hashes, and reports whether they are in order.
func parseHashes(into *index.Index, b []byte) bool {
	for last := uint64(math.MaxUint32); len(b) > 0; b = b[8:] { // each hash is larger than this: its upper half is not 0
		h := binary.LittleEndian.Uint64(b)
		if h <= last {
			return false
		}
		into.Insert(h, uint32(h>>32))
		last = h
	}
	return true
}

func cutNumber(b []byte, most uint64) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 || v > most {
		return 0, nil, false
	}
	return v, b[n:], true
}

// Record makes the set record its final changes, for AppendRecorded.
func (s *Set) Record() { s.records = true }

// AppendRecorded appends the changes that Keep has made final since the last call. Layout:
// docs/format/entry.md.
func (s *Set) AppendRecorded(b []byte) []byte {
	for _, x := range s.recorded {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	if s.recorded = s.recorded[:0]; cap(s.recorded) > keepChanges {
		s.recorded = nil
	}
	return b
}

// Repeat repeats recorded changes. The set must equal the recording set as it was before these changes,
// and must have no provisional changes. After an error nothing is changed.
func (s *Set) Repeat(b []byte) error {
	if len(b)%8 != 0 {
		return errMalformed
	}
	epoch := uint64(s.epoch)
	for at := 0; at < len(b); at += 8 {
		x := binary.LittleEndian.Uint64(b[at:])
		if x > math.MaxUint32 {
			continue
		}
		if x < epoch || x > maxTime/Epoch {
			return errMalformed
		}
		epoch = x
	}
	for ; len(b) > 0; b = b[8:] {
		if x := binary.LittleEndian.Uint64(b); x > math.MaxUint32 {
			s.Note(Hash(x))
		} else {
			s.Advance(int64(x) * Epoch)
		}
	}
	s.lookUp()
	s.settled()
	return nil
}
