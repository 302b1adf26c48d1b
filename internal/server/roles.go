package server

import (
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/settings"
)

// role is a role of the process: what it needs, and how it is built. Other files that check which roles
// the process has:
//
//	parts.go           what each role runs, in the order of stopping
//	sharing.go         whether the process takes samples
//	handler.go         what the first page names
//	banner.go          what the greeting suggests
//	books.go           whether there are probes in the ledger
//	otlp.go            OTLP over gRPC, which listens before the distributor is built
//	collector.go       the mark of the prober's datagrams
//
// The recorder and the web page are in every process: self.go opens the recorder, and handler.go
// serves the page.
type role struct {
	name   string
	needs  []string              // roles that must be built before it
	later  []string              // roles that it uses only after all roles are built; these may need it in turn
	build  func() error          // runs while the collector already reads the sockets
	serve  func(*routes)         // registers its HTTP endpoints; nil if it has none
	reload func(settings.Config) // applies another configuration; nil if a change needs a restart
}

// roles returns all roles of the process except the collector. Each stands after the roles that it
// needs. The collector is built before all of them, and reads while they are built: see newServer.
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
			later: []string{settings.RoleAggregator},
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
			name:  settings.RoleRuler,
			needs: []string{settings.RoleQuerier, settings.RoleDistributor},
			build: s.openRuler, // applyConfig reloads it, since it reads files
		},
		{
			name:  settings.RoleGateway,
			build: s.openRelay, serve: s.serveRelay,
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

// buildRoles opens the stores and the event log, and replays the journal. That takes long, so the
// collector reads the sockets meanwhile.
func (s *server) buildRoles() error {
	roles := s.roles()
	if missing := unmet(roles); missing != nil {
		panic("BUG: " + strings.Join(missing, "; "))
	}
	for _, r := range roles {
		if err := r.build(); err != nil {
			return err
		}
	}
	return nil
}

// unmet returns the needs that are not met when the roles are built in this order, after the collector.
func unmet(roles []role) (missing []string) {
	built := settings.Roles{settings.RoleCollector}
	for _, r := range roles {
		for _, needed := range r.needs {
			if !built.Has(needed) {
				missing = append(missing, "the role "+r.name+" needs the role "+needed+", which is not built before it")
			}
		}
		built = append(built, r.name)
	}
	for _, r := range roles {
		for _, used := range r.later {
			if !built.Has(used) {
				missing = append(missing, "the role "+r.name+" uses the role "+used+", which is not built")
			}
		}
	}
	return missing
}

// serveRoles registers the HTTP endpoints of the roles.
func (s *server) serveRoles(mux *routes) {
	for _, r := range s.roles() {
		if r.serve != nil {
			r.serve(mux)
		}
	}
	if !s.has(settings.RoleQuerier) && !s.has(settings.RoleGateway) {
		s.serveNoQuerier(mux)
	}
}

// reloadRoles applies a configuration. It was checked before, so no role can refuse it.
func (s *server) reloadRoles(next settings.Config) {
	for _, r := range s.roles() {
		if r.reload != nil {
			r.reload(next)
		}
	}
}
