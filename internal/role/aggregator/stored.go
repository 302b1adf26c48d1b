package aggregator

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/freshet-io/freshet/internal/core/journal"
)

// stored holds, for each tenant, the position of a frame in the journal. The tenant's stores have
// all samples of tiles that were closed up to that frame, so a restart need not write these again.
//
// The positions are kept in the notes of the journal: the first note names the boot of the machine,
// and one note follows for each change. The notes hold for that boot only. Stores sync only now and
// then, at the latest for a checkpoint. So after a power loss they may lack samples that they took
// since the last checkpoint, and the aggregator writes these again.
type stored struct {
	log  Journal
	boot string // if empty, nothing is noted
	upTo map[string]journal.Position
}

// readStored reads the notes of the last process. It ignores notes of another boot.
func readStored(log Journal, boot string) (*stored, error) {
	s := &stored{log: log, boot: boot, upTo: map[string]journal.Position{}}
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

// reaches reports whether the tenant's stores have the tiles closed by the frame at a position.
func (s *stored) reaches(tenant string, at journal.Position) bool { return s.upTo[tenant] >= at }

// raise notes that the tenant's stores have the tiles closed up to a position.
func (s *stored) raise(tenant string, to journal.Position) error {
	if to <= s.upTo[tenant] {
		return nil
	}
	s.upTo[tenant] = to
	if s.boot == "" {
		return nil
	}
	return s.log.Note(appendStored(nil, tenant, to))
}

// rewrite writes the notes anew. It leaves out the notes for frames before a position, since no
// replay begins there any more.
func (s *stored) rewrite(before journal.Position) error {
	maps.DeleteFunc(s.upTo, func(_ string, at journal.Position) bool { return at < before })
	if s.boot == "" {
		return nil
	}
	all := [][]byte{[]byte(s.boot)}
	for _, tenant := range slices.Sorted(maps.Keys(s.upTo)) {
		all = append(all, appendStored(nil, tenant, s.upTo[tenant]))
	}
	return s.log.BeginNotes(all)
}

// appendStored appends a note: the position as a varint, then the tenant's name.
func appendStored(dst []byte, tenant string, at journal.Position) []byte {
	return append(binary.AppendUvarint(dst, uint64(at)), tenant...)
}

func parseStored(b []byte) (tenant string, at journal.Position, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return "", 0, false
	}
	return string(b[size:]), journal.Position(n), true
}
