package collector

import "github.com/freshet-io/freshet/internal/core/mapping"

// terms are what a listener works by. They never change; a reload gives it
// others.
type terms struct {
	tenant         string
	mapper         *mapping.Mapper
	host           string // of events whose sender named none
	relativeGauges bool
	idleWindows    uint32 // see window.Options
}

// same reports whether a listener would do the same by both.
func (t *terms) same(other *terms) bool {
	return t.tenant == other.tenant && t.host == other.host && t.relativeGauges == other.relativeGauges &&
		t.idleWindows == other.idleWindows && t.mapper.Same(other.mapper)
}
