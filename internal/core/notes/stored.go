package notes

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Stored holds, for each tenant, an index of the log. The tenant's stores have all samples of tiles
// that were closed up to there, so a restart need not write these again.
//
// The indexes are kept in the notes of the log: the first note names the boot of the machine, and one
// note follows for each change. The notes hold for that boot only. Stores sync only now and then, at
// the latest for a checkpoint. So after a power loss they may lack samples that they took since the
// last checkpoint, and the owner of the log writes these again.
type Stored struct {
	log  Log
	boot string // if empty, nothing is noted
	upTo map[string]uint64
}

// Log has notes: see File.
type Log interface {
	Notes() ([][]byte, error)
	BeginNotes(all [][]byte) error
	Note(note []byte) error
}

// ReadStored reads the notes of the last process. It ignores notes of another boot. The result is of use
// even if there is an error.
func ReadStored(log Log, boot string) (*Stored, error) {
	s := &Stored{log: log, boot: boot, upTo: map[string]uint64{}}
	all, err := log.Notes()
	if err != nil || boot == "" || len(all) == 0 || string(all[0]) != boot {
		return s, err
	}
	for _, n := range all[1:] {
		if tenant, at, ok := parseStored(n); ok {
			s.upTo[tenant] = at
		}
	}
	return s, nil
}

// Reaches reports whether the tenant's stores have the tiles that were closed at an index.
func (s *Stored) Reaches(tenant string, at uint64) bool { return s.upTo[tenant] >= at }

// All returns the indexes by tenant.
func (s *Stored) All() map[string]uint64 { return maps.Clone(s.upTo) }

// Raise notes that the tenant's stores have the tiles closed up to an index.
func (s *Stored) Raise(tenant string, to uint64) error {
	if to <= s.upTo[tenant] {
		return nil
	}
	s.upTo[tenant] = to
	if s.boot == "" {
		return nil
	}
	return s.log.Note(appendStored(nil, tenant, to))
}

// Rewrite writes the notes anew, once a checkpoint is in place that was begun at the index `base`. It
// leaves out tenants of which a restart would find no stored tiles: `waits` says that no tile of them
// waits, and everything was stored when the checkpoint was begun.
func (s *Stored) Rewrite(base uint64, waits func(tenant string) bool) error {
	maps.DeleteFunc(s.upTo, func(tenant string, at uint64) bool { return at < base && !waits(tenant) })
	if s.boot == "" {
		return nil
	}
	all := [][]byte{[]byte(s.boot)}
	for _, tenant := range slices.Sorted(maps.Keys(s.upTo)) {
		all = append(all, appendStored(nil, tenant, s.upTo[tenant]))
	}
	return s.log.BeginNotes(all)
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
