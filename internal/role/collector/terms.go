package collector

import "github.com/freshet-io/freshet/internal/core/mapping"

// terms are a listener's configuration. They never change; a reload replaces them.
type terms struct {
	tenant         string
	mapper         *mapping.Mapper
	host           string // for events without a host
	relativeGauges bool
	idleWindows    uint32 // see window.Options
}

// same reports whether both terms make a listener behave the same.
func (t *terms) same(other *terms) bool {
	return t.tenant == other.tenant && t.host == other.host && t.relativeGauges == other.relativeGauges &&
		t.idleWindows == other.idleWindows && t.mapper.Same(other.mapper)
}
