package replica

import (
	"errors"
	"fmt"
	"slices"

	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
)

// ErrSolo means that there are no other members.
var ErrSolo = errors.New("one machine alone has no other members")

// Solo is a Group of one machine, without Raft: an entry is committed once it is stored. It copies
// no data, and allocates nothing once its buffers have grown. An Output and its Write are valid
// until the next call of Take.
type Solo struct {
	last, stored, applied uint64 // indexes

	number   uint64 // of the last Write
	barrier  uint64
	proposed []Committed // not in a Write yet
	writing  []Committed // in Writes that are not stored yet, in order
	writes   []soloWrite
	write    Write
	ready    []Committed // stored
	apply    []Committed // of the last Output
	known    []Read
	reads    []Read
	began    bool
}

// soloWrite is a Write that is not stored yet.
type soloWrite struct{ number, last uint64 }

var (
	_ Group = (*Solo)(nil)
	_ Group = (*Replica)(nil)
)

// soloTerm is the term of all entries.
const soloTerm = 1

// NewSolo returns the group of a machine whose state has the entries up to an index.
func NewSolo(applied uint64) *Solo { return &Solo{last: applied, stored: applied, applied: applied} }

// Propose implements Group.
func (s *Solo) Propose(data []byte) (index uint64, err error) {
	s.last++
	s.proposed = append(s.proposed, Committed{Index: s.last, Term: soloTerm, Data: data, Own: true})
	return s.last, nil
}

// Barrier implements Group. An acknowledged entry is stored. So the barrier ends once all entries that
// are stored now are applied.
func (s *Solo) Barrier() (number uint64, err error) {
	s.barrier++
	s.known = append(s.known, Read{s.barrier, s.stored})
	return s.barrier, nil
}

// Cancel implements Group.
func (s *Solo) Cancel(number uint64) {
	s.known = slices.DeleteFunc(s.known, func(read Read) bool { return read.Barrier == number })
}

// Members implements Group.
func (s *Solo) Members(_, _ []uint64) error { return ErrSolo }

// Transfer implements Group.
func (s *Solo) Transfer(uint64) error { return ErrSolo }

// Tick implements Group.
func (s *Solo) Tick() {}

// Stored implements Group.
func (s *Solo) Stored(number uint64) {
	if number > s.number {
		panic(fmt.Sprintf("BUG: write %d is stored, of %d", number, s.number))
	}
	writes := 0
	for writes < len(s.writes) && s.writes[writes].number <= number {
		s.stored = s.writes[writes].last
		writes++
	}
	s.writes = shift(s.writes, writes)
	entries := 0
	for entries < len(s.writing) && s.writing[entries].Index <= s.stored {
		entries++
	}
	s.ready = append(s.ready, s.writing[:entries]...)
	s.writing = shift(s.writing, entries)
}

// shift removes the first n elements, and keeps the memory.
func shift[T any](list []T, n int) []T {
	kept := copy(list, list[n:])
	clear(list[kept:])
	return list[:kept]
}

// Applied implements Group.
func (s *Solo) Applied(index uint64) { s.applied = index }

// Take implements Group.
func (s *Solo) Take() (Output, error) {
	out := Output{Leadership: Leadership{Term: soloTerm, Leader: 1, Leads: true}}
	if !s.began {
		s.began, out.Members = true, &Members{Voters: []uint64{1}}
	}
	if len(s.proposed) > 0 {
		s.number++
		s.write.Number, s.write.Sync = s.number, true
		s.write.Entries = s.write.Entries[:0]
		for i := range s.proposed {
			e := &s.proposed[i]
			s.write.Entries = append(s.write.Entries, entrylog.Entry{Index: e.Index, Term: e.Term, Data: e.Data})
		}
		s.writes = append(s.writes, soloWrite{s.number, s.last})
		s.writing = append(s.writing, s.proposed...)
		s.proposed = shift(s.proposed, len(s.proposed))
		out.Write = &s.write
	}
	s.apply, s.ready = s.ready, shift(s.apply, len(s.apply))
	out.Apply = s.apply
	s.reads = s.reads[:0]
	kept := s.known[:0]
	for _, read := range s.known {
		if read.Index <= s.applied {
			s.reads = append(s.reads, read)
		} else {
			kept = append(kept, read)
		}
	}
	s.known, out.Reads = kept, s.reads
	return out, nil
}
