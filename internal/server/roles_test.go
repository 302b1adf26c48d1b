package server

import (
	"slices"
	"testing"

	"github.com/freshet-io/freshet/internal/settings"
)

// Roles are built from the top of the table, so that each finds the roles that it needs.
func TestEachRoleStandsBelowThoseThatItNeeds(t *testing.T) {
	built := settings.Roles{settings.RoleCollector}
	for _, r := range roles {
		for _, needed := range r.needs {
			if !built.Has(needed) {
				t.Errorf("%s needs %s, which is not built before it", r.name, needed)
			}
		}
		built = append(built, r.name)
	}
	all := settings.Default().Roles()
	slices.Sort(all)
	if slices.Sort(built); !slices.Equal(built, all) {
		t.Errorf("the table builds %v, the configuration knows %v", built, all)
	}
}

// Whatever the configuration says, a process has all roles that its roles need, or is a collector
// alone.
func TestAProcessHasWhatItsRolesNeed(t *testing.T) {
	c := settings.Default()
	for _, c.Role = range []string{settings.RoleAll, settings.RoleCollector} {
		for _, c.Self.Metrics = range []bool{true, false} {
			for _, c.Self.Probe = range []bool{true, false} {
				has := c.Roles()
				for _, r := range roles {
					for _, needed := range r.needs {
						if has.Has(r.name) && !has.Has(needed) {
							t.Errorf("role %s: %v has %s without %s", c.Role, has, r.name, needed)
						}
					}
				}
			}
		}
	}
}
