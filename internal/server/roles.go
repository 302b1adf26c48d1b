package server

import (
	"slices"

	"github.com/freshet-io/freshet/internal/settings"
)

// role is a role of the process: what it needs, and how it is built. What it runs is in parts, in
// the order of stopping.
type role struct {
	name   string
	needs  []string              // roles that must be built before it
	build  func() error          // while the sockets are read
	serve  func(*routes)         // what it answers over HTTP; nil for nothing
	reload func(settings.Config) // puts another configuration in force; nil if that takes a restart
}

// roles returns the roles of the process but the collector, each below the roles that it needs. The
// collector is built before them, and reads while they are built: see newServer.
func (s *server) roles() []role {
	all := []role{
		{
			name:  settings.RoleIngester,
			build: s.openIngester, serve: s.serveIngester, reload: s.reloadIngester,
		},
		{
			name:  settings.RoleForwarder,
			build: s.openForwarders,
		},
		{
			name:  settings.RoleDistributor,
			needs: []string{settings.RoleIngester, settings.RoleForwarder},
			build: s.openDistributor, serve: s.serveDistributor, reload: s.reloadDistributor,
		},
		{
			name:  settings.RoleAggregator,
			needs: []string{settings.RoleDistributor},
			build: s.openAggregator,
		},
		{
			name:  settings.RoleQuerier,
			needs: []string{settings.RoleIngester, settings.RoleDistributor, settings.RoleAggregator},
			build: s.openQuerier, serve: s.serveQuerier,
		},
		{
			name:  settings.RoleScraper,
			needs: []string{settings.RoleDistributor},
			build: s.openScraper,
		},
		{
			name:  settings.RoleProber,
			needs: []string{settings.RoleCollector, settings.RoleDistributor, settings.RoleQuerier},
			build: s.openProber,
		},
	}
	return slices.DeleteFunc(all, func(r role) bool { return !s.has(r.name) })
}

// buildRoles opens the stores and the event log, and replays the journal. That takes long; the
// sockets are read meanwhile.
func (s *server) buildRoles() error {
	built := settings.Roles{settings.RoleCollector}
	for _, r := range s.roles() {
		for _, needed := range r.needs {
			if !built.Has(needed) {
				panic("BUG: the role " + r.name + " needs the role " + needed + ", which is not built")
			}
		}
		if err := r.build(); err != nil {
			return err
		}
		built = append(built, r.name)
	}
	return nil
}

// serveRoles registers what the roles answer.
func (s *server) serveRoles(mux *routes) {
	for _, r := range s.roles() {
		if r.serve != nil {
			r.serve(mux)
		}
	}
	if !s.has(settings.RoleQuerier) {
		s.serveNoQuerier(mux)
	}
}

// reloadRoles puts a configuration in force that no role can refuse.
func (s *server) reloadRoles(next settings.Config) {
	for _, r := range s.roles() {
		if r.reload != nil {
			r.reload(next)
		}
	}
}
