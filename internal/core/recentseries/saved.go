package recentseries

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/freshet-io/freshet/internal/lib/index"
)

// maxTime bounds the log's time, as in entries.
const maxTime = 9_000_000_000_000

var errMalformed = errors.New("recent series: malformed")

// Append appends the saved form, with all changes as if they were final. It is equal on all members
// that have applied the same requests. Layout: docs/format/entry.md.
func (s *Set) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(s.epoch))
	b = binary.AppendUvarint(b, uint64(s.size-s.older))
	return appendHashes(appendHashes(b, &s.present), &s.before)
}

func appendHashes(b []byte, of *index.Index) []byte {
	var all []uint64
	for hash, number := range of.All {
		all = append(all, uint64(number)<<32|uint64(hash))
	}
	slices.Sort(all)
	for _, h := range all {
		b = binary.LittleEndian.AppendUint64(b, h)
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
	parsed := Set{epoch: int64(epoch), size: len(b) / 8, older: len(before) / 8}
	if !parseHashes(&parsed.present, b[:8*present]) || !parseHashes(&parsed.before, before) {
		return errMalformed
	}
	for hash, number := range parsed.before.All {
		if has(&parsed.present, Hash(number)<<32|Hash(hash)) {
			return errMalformed
		}
	}
	*s = parsed
	return nil
}

// parseHashes inserts hashes, and reports whether they are in order.
func parseHashes(into *index.Index, b []byte) bool {
	for last := uint64(math.MaxUint32); len(b) > 0; b = b[8:] { // a hash is larger: its upper half is not 0
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
