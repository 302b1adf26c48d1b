package notes

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Stored holds, for each tenant, an index of the log. The tenant's stores have all samples of tiles
// that were closed up to this index, so a restart need not write these again.
//
// The indexes are kept in notes, one for each change.
type Stored struct {
	notes bootNotes
	upTo  map[string]uint64
}

// ReadStored reads the notes of the last process. It ignores notes of another boot. The result may be
// used even after an error.
func ReadStored(log Log, boot string) (*Stored, error) {
	s := &Stored{notes: bootNotes{log, boot}, upTo: map[string]uint64{}}
	all, err := s.notes.read()
	for _, n := range all {
		if tenant, at, ok := parseStored(n); ok {
			s.upTo[tenant] = at
		}
	}
	return s, err
}

// Reaches reports whether the tenant's stores have the tiles that were closed at an index.
func (s *Stored) Reaches(tenant string, at uint64) bool { return s.upTo[tenant] >= at }

// All returns the indexes by tenant.
func (s *Stored) All() map[string]uint64 { return maps.Clone(s.upTo) }

// Raise writes a note that the tenant's stores have the tiles closed up to an index.
func (s *Stored) Raise(tenant string, to uint64) error {
	if to <= s.upTo[tenant] {
		return nil
	}
	s.upTo[tenant] = to
	return s.notes.add(appendStored(nil, tenant, to))
}

// Rewrite writes the notes anew after a checkpoint that was begun at the index `base`. It leaves out a
// tenant if two things hold: `waits` reports that no tile of the tenant waits, and the stores had
// everything when the checkpoint was begun. Then no tile that a restart finds for the tenant is stored
// already, so the tenant needs no note.
func (s *Stored) Rewrite(base uint64, waits func(tenant string) bool) error {
	maps.DeleteFunc(s.upTo, func(tenant string, at uint64) bool { return at < base && !waits(tenant) })
	var all [][]byte
	for _, tenant := range slices.Sorted(maps.Keys(s.upTo)) {
		all = append(all, appendStored(nil, tenant, s.upTo[tenant]))
	}
	return s.notes.begin(all)
}

// appendStored appends a note: the index as a uvarint, then the tenant's name.
func appendStored(dst []byte, tenant string, at uint64) []byte {
	return append(binary.AppendUvarint(dst, at), tenant...)
}

func parseStored(b []byte) (tenant string, at uint64, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return "", 0, false
	}
	return string(b[size:]), n, true
}
