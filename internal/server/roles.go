package server

import "github.com/freshet-io/freshet/internal/settings"

// role is a role that a process may have: what it needs, and how it is built. The parts that it
// runs are in parts, in the order of stopping.
type role struct {
	name   string
	needs  []string                       // roles that must be built before it
	build  func(*server) error            // runs while the sockets are read
	serve  func(*server, *routes)         // what it answers over HTTP; nil for nothing
	reload func(*server, settings.Config) // puts another configuration in force; nil if that takes a restart
}

// roles are all roles but the collector, each below the roles that it needs. The collector is built
// before them, and reads while they are built: see newServer.
var roles = []role{
	{
		name:  settings.RoleIngester,
		build: (*server).openIngester, serve: (*server).serveIngester, reload: (*server).reloadIngester,
	},
	{
		name:  settings.RoleForwarder,
		build: (*server).openForwarders,
	},
	{
		name:  settings.RoleDistributor,
		needs: []string{settings.RoleIngester, settings.RoleForwarder},
		build: (*server).openDistributor, serve: (*server).serveDistributor, reload: (*server).reloadDistributor,
	},
	{
		name:  settings.RoleAggregator,
		needs: []string{settings.RoleDistributor},
		build: (*server).openAggregator,
	},
	{
		name:  settings.RoleQuerier,
		needs: []string{settings.RoleIngester, settings.RoleDistributor, settings.RoleAggregator},
		build: (*server).openQuerier, serve: (*server).serveQuerier,
	},
	{
		name:  settings.RoleScraper,
		needs: []string{settings.RoleDistributor},
		build: (*server).openScraper,
	},
	{
		name:  settings.RoleProber,
		needs: []string{settings.RoleCollector, settings.RoleDistributor, settings.RoleQuerier},
		build: (*server).openProber,
	},
}

// has reports whether the process has a role.
func (s *server) has(role string) bool { return s.config.Roles().Has(role) }

// open builds the roles, which may take long: events, stores, and the replay of the journal. The
// sockets are read meanwhile.
func (s *server) open() error {
	for _, r := range roles {
		if !s.has(r.name) {
			continue
		}
		if err := r.build(s); err != nil {
			return err
		}
	}
	s.serveHTTP()
	return nil
}

// serveRoles registers what the roles answer.
func (s *server) serveRoles(mux *routes) {
	for _, r := range roles {
		if r.serve != nil && s.has(r.name) {
			r.serve(s, mux)
		}
	}
	if !s.has(settings.RoleQuerier) {
		s.serveNothing(mux)
	}
}

// reloadRoles puts a configuration in force that no role can refuse.
func (s *server) reloadRoles(next settings.Config) {
	for _, r := range roles {
		if r.reload != nil && s.has(r.name) {
			r.reload(s, next)
		}
	}
}
