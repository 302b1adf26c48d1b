// Package tenants decides which tenants may have stores. Each tenant has three databases, and senders
// can invent names, so store.max_tenants bounds the number of tenants. A tenant is admitted with the
// first work that a store must see, and stays admitted until it is deleted. Metadata alone, and deltas
// that are all refused, admit no tenant. The decision depends on earlier decisions, and not on the state
// of a store: members of a group that apply the same entries admit the same tenants.
package tenants

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Set has the admitted tenants. The zero value has none, and is ready. One goroutine at a time uses it.
type Set struct{ names map[string]struct{} }

// Admit admits a tenant if fewer than `limit` tenants are admitted; a limit of 0 means no limit. It
// reports whether the tenant is admitted now. If the limit becomes lower, the admitted tenants
// stay.
func (s *Set) Admit(name string, limit int) bool {
	if s.Has(name) {
		return true
	}
	if !s.Fits(name, limit) {
		return false
	}
	if s.names == nil {
		s.names = map[string]struct{}{}
	}
	s.names[strings.Clone(name)] = struct{}{}
	return true
}

// Fits reports whether Admit would return true.
func (s *Set) Fits(name string, limit int) bool { return s.Has(name) || limit == 0 || s.Len() < limit }

// Has reports whether a tenant is admitted.
func (s *Set) Has(name string) bool {
	_, has := s.names[name]
	return has
}

// Remove gives the place of a tenant back.
func (s *Set) Remove(name string) { delete(s.names, name) }

// Len returns the number of tenants.
func (s *Set) Len() int { return len(s.names) }

// Refusal returns the error that tells a sender why a tenant is not admitted, and what to do.
func (s *Set) Refusal(name string, limit int) error {
	return fmt.Errorf("tenant %.80q would be one more than store.max_tenants (%d) allows, since %d tenants are admitted; "+
		"raise the setting, or find what creates so many tenants", name, limit, s.Len())
}

// version is the version of the saved form. Layout: docs/format/entry.md.
const version = 1

// maxName is the maximum length of a name, in bytes. Entries have the same limit.
const maxName = 255

var errMalformed = errors.New("the admitted tenants are malformed")

// Append appends the saved form. It is equal on all members that have applied the same entries.
func (s *Set) Append(b []byte) []byte {
	b = append(b, version)
	for _, name := range slices.Sorted(maps.Keys(s.names)) {
		b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
	}
	return b
}

// Parse replaces the tenants by those of a saved form. After an error nothing is replaced.
func (s *Set) Parse(b []byte) error {
	if len(b) == 0 {
		return errMalformed
	}
	if b[0] != version {
		return fmt.Errorf("the admitted tenants have version %d, but this program reads version %d", b[0], version)
	}
	var parsed Set
	for rest := b[1:]; len(rest) > 0; {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size == 0 || size > maxName || size > uint64(len(rest)-n) {
			return errMalformed
		}
		parsed.Admit(string(rest[n:][:size]), 0)
		rest = rest[n:][size:]
	}
	if !bytes.Equal(parsed.Append(nil), b) { // names are out of order or repeated
		return errMalformed
	}
	*s = parsed
	return nil
}
