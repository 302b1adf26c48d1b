package rulestate

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/lib/fields"
)

// MaxKept bounds the bytes of the states that the members of a group keep. A state beyond it is not kept,
// so a new leader begins its group anew.
const MaxKept = 64 << 20

// Hash identifies a group of a tenant in files and in entries, where keys have a fixed length.
func (k Key) Hash() [32]byte { return sha256.Sum256([]byte(k.File + "\x00" + k.Name)) }

// Kept has the encoded states of the groups of all tenants, as the members of a group fold them from
// entries of the kind rules. Its zero value is empty.
type Kept struct {
	of    map[string]map[[32]byte][]byte
	bytes int
}

// Fold notes what an entry says. It keeps no memory of the entry.
func (k *Kept) Fold(e *entry.Rules) {
	for item := range e.Groups.All() {
		g := entry.ParseRuleGroup(item)
		k.set(e.Tenant, g.Key, g.State)
	}
}

func (k *Kept) set(tenant string, key [32]byte, state []byte) {
	groups := k.of[tenant]
	if old, is := groups[key]; is {
		k.bytes -= len(key) + len(old)
		delete(groups, key)
	}
	if size := len(key) + len(state); len(state) > 0 && k.bytes+size <= MaxKept {
		k.bytes += size
		if groups == nil {
			groups = map[[32]byte][]byte{}
			if k.of == nil {
				k.of = map[string]map[[32]byte][]byte{}
			}
			k.of[strings.Clone(tenant)] = groups
		}
		groups[key] = bytes.Clone(state)
	}
	if len(groups) == 0 {
		delete(k.of, tenant)
	}
}

// Empty reports whether there are no states.
func (k *Kept) Empty() bool { return len(k.of) == 0 }

// Of returns the encoded states of a tenant's groups. They never change.
func (k *Kept) Of(tenant string) (all [][]byte) {
	for _, state := range k.of[tenant] {
		all = append(all, state)
	}
	return all
}

const keptVersion = 1

// Append appends all states. Equal states have equal bytes.
func (k *Kept) Append(b []byte) []byte {
	b = append(b, keptVersion)
	for _, tenant := range slices.Sorted(maps.Keys(k.of)) {
		groups := k.of[tenant]
		b = fields.AppendBytes(b, tenant)
		b = binary.AppendUvarint(b, uint64(len(groups)))
		keys := slices.SortedFunc(maps.Keys(groups), func(x, y [32]byte) int { return bytes.Compare(x[:], y[:]) })
		for _, key := range keys {
			b = append(b, key[:]...)
			b = fields.AppendBytes(b, groups[key])
		}
	}
	return b
}

var errKept = errors.New("the states of rules are malformed")

// Parse reads what Append wrote.
func (k *Kept) Parse(b []byte) error {
	r := fields.Reader{B: b}
	if r.Byte() != keptVersion {
		return errKept
	}
	before := ""
	for len(r.B) > 0 {
		tenant, n := r.Text(), r.Count()
		if tenant <= before || n == 0 {
			return errKept
		}
		before = tenant
		var last []byte
		for range n {
			if len(r.B) < 32 {
				return errKept
			}
			key := r.B[:32]
			r.B = r.B[32:]
			state := r.Bytes()
			if bytes.Compare(key, last) <= 0 || len(state) == 0 || k.bytes+len(key)+len(state) > MaxKept {
				return errKept
			}
			last = key
			k.set(tenant, [32]byte(key), state)
		}
	}
	if r.Bad {
		return errKept
	}
	return nil
}
