package server

import (
	"fmt"
	"slices"
	"testing"

	"github.com/freshet-io/freshet/internal/settings"
)

// Under every configuration, a process has all roles that its roles need, and builds needed roles
// first.
func TestRolesFindWhatTheyNeed(t *testing.T) {
	c := settings.Default()
	for _, c.Role = range []string{
		settings.RoleAll, settings.RoleCollector, "collector,gateway",
	} {
		for _, c.Self.Metrics = range []bool{true, false} {
			for _, c.Self.Probe = range []bool{true, false} {
				roles := (&server{config: c}).roles()
				for _, missing := range unmet(roles) {
					t.Errorf("role %s: %s", c.Role, missing)
				}
				built := settings.Roles{settings.RoleCollector}
				for _, r := range roles {
					built = append(built, r.name)
				}
				configured := c.Roles()
				slices.Sort(configured)
				if slices.Sort(built); !slices.Equal(built, configured) {
					t.Errorf("role %s: the process has the roles %v, but the configuration names %v", c.Role, built, configured)
				}
			}
		}
	}
}

// If a role were built before the roles that it needs, it would fail later, far from the mistake.
func TestRolesAreNotBuiltWithoutWhatTheyNeed(t *testing.T) {
	c := settings.Default()
	c.Role = settings.RoleQuerier // alone, which no configuration allows
	defer func() {
		want := "BUG: the role querier needs the role ingester, which is not built before it; " +
			"the role querier needs the role distributor, which is not built before it; " +
			"the role querier needs the role aggregator, which is not built before it"
		if said := fmt.Sprint(recover()); said != want {
			t.Errorf("got the panic %s; want %s", said, want)
		}
	}()
	_ = (&server{config: c}).buildRoles()
}

// The distributor uses the aggregator, but only after both are built. The aggregator needs the
// distributor, so it is built after the distributor.
func TestRolesAreNotBuiltWithoutWhatTheyUseLater(t *testing.T) {
	all := (&server{config: settings.Default()}).roles()
	i := slices.IndexFunc(all, func(r role) bool { return r.name == settings.RoleAggregator })
	missing, want := unmet(all[:i]), []string{"the role distributor uses the role aggregator, which is not built"}
	if !slices.Equal(missing, want) {
		t.Errorf("unmet returned %q; want %q", missing, want)
	}
	if missing := unmet(all); missing != nil {
		t.Errorf("with all roles: %q", missing)
	}
}
