package tsdb

import (
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/changes"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

func (s *Stores) newTenant(name string) map[string]*store {
	stores := map[string]*store{}
	log := changes.New()
	for _, kind := range kinds {
		stores[kind] = &store{
			tenant:  name,
			kind:    kind,
			dir:     filepath.Join(s.dir, name, kind),
			options: s.cfg.options(kind),
			reg:     prometheus.WrapRegistererWith(prometheus.Labels{"tenant": name, "store": kind}, s.reg),
			sums:    s.metrics.sums[kind],
			logger:  s.logger.With("tenant", name, "store", kind),
			opened:  s.metrics.open,
			marks:   sync.OnceValue(func() *storeMarks { return s.metrics.marks(name, kind) }),
			now:     s.now,
			growth:  s.growth,
			note:    s.note,
			changes: log,
			byHand:  s.byHand,

			others: &s.others,

			fsync:       func(path string) error { return s.fsync(path) },
			syncCommits: s.cfg.WALFsync == FsyncCommit,
			restored:    s.metrics.restored,
			savedHeads:  &s.heads,
			sparePages:  &s.sparePages,
			turns:       s.turns,
			wide:        &s.wide,
		}
	}
	if s.inGroup {
		for _, st := range stores {
			if st.ends.boot = s.boot; st.hasRequests() {
				st.keepEnds(s.boot, s.requests[st.queue()])
			}
		}
	}
	return stores
}

// Tenants returns the tenants that have stores.
func (s *Stores) Tenants() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.tenants))
}

// allStores returns every store of every tenant, in the order of their names. The caller holds
// s.mu.
func (s *Stores) allStores() (all []*store) {
	for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
		for _, kind := range slices.Sorted(maps.Keys(s.tenants[name])) {
			all = append(all, s.tenants[name][kind])
		}
	}
	return all
}

// forWrite returns a store, and makes it and its tenant if needed. It checks no limit of tenants:
// core/tenants has admitted the tenant before.
func (s *Stores) forWrite(name, kind string) (*store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if stores, ok := s.tenants[name]; ok {
		return stores[kind], nil
	}
	if err := tenant.Check(name); err != nil {
		return nil, err
	}
	s.tenants[name] = s.newTenant(name)
	return s.tenants[name][kind], nil
}

// forRead returns a store, or nil if it does not exist.
func (s *Stores) forRead(name, kind string) (*store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	return s.tenants[name][kind], nil
}
