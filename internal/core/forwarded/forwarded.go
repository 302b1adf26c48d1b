// Package forwarded has the state that a group folds from entries of the kind forwarded: for each
// backend, the last entry whose samples the backend has. A backend is another server. With this state, a
// new leader continues where the last one stopped.
package forwarded

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/core/entry"
)

// Max bounds the backends that are remembered.
const Max = 64

// Indexes has the index of the last entry whose samples a backend has, by the backend's name.
type Indexes struct{ of map[string]uint64 }

// Raise notes what an entry says. An index never falls.
func (x *Indexes) Raise(l entry.List) {
	if x.of == nil {
		x.of = map[string]uint64{}
	}
	for item := range l.All() {
		backend, index := entry.ParseForwarded(item)
		if index > x.of[backend] {
			x.of[strings.Clone(backend)] = index
		}
	}
	for len(x.of) > Max {
		x.forget()
	}
}

// forget forgets the backend with the lowest index. If that backend still gets samples, a new leader may
// repeat more of these samples.
func (x *Indexes) forget() {
	lowest, least := "", uint64(math.MaxUint64)
	for _, backend := range slices.Sorted(maps.Keys(x.of)) {
		if index := x.of[backend]; index < least {
			lowest, least = backend, index
		}
	}
	delete(x.of, lowest)
}

// Of returns the index of a backend; 0 if it is not known.
func (x *Indexes) Of(backend string) uint64 { return x.of[backend] }

// List returns all indexes in the form of an entry. Equal states have equal lists.
func (x *Indexes) List() (l entry.List) {
	for _, backend := range slices.Sorted(maps.Keys(x.of)) {
		l = entry.AppendForwarded(l, backend, x.of[backend])
	}
	return l
}
