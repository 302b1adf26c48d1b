package tenants

import (
	"strings"
	"sync"
)

// Gate is a Set with a fixed limit, for a server that is in no group. Any goroutine may use it. A tenant
// is admitted as soon as it may have stores. Until then it has a place only while work that may create
// its stores is under way. A nil Gate admits every tenant.
type Gate struct {
	limit  int
	mu     sync.RWMutex
	set    Set
	trying map[string]int // pieces of work under way, by tenant; only of tenants that are not admitted yet
}

// NewGate returns the gate of a server. A limit of 0 means no limit.
func NewGate(limit int) *Gate { return &Gate{limit: limit, trying: map[string]int{}} }

// Enter gives a tenant a place for one piece of work. If there is no place, it returns the error of
// Set.Refusal. If it returns nil, the caller must call Leave.
func (g *Gate) Enter(name string) error {
	if g.Has(name) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := g.set.Len() + len(g.trying)
	if g.trying[name] == 0 && !g.set.Has(name) && g.limit > 0 && taken >= g.limit {
		return g.set.Refusal(name, g.limit)
	}
	g.trying[strings.Clone(name)]++
	return nil
}

// Leave ends a piece of work. If the tenant may have stores now, it is admitted. Otherwise its
// place is free again, unless other work of the tenant is under way.
func (g *Gate) Leave(name string, stores bool) {
	if g.Has(name) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case stores:
		delete(g.trying, name)
		g.set.Admit(name, 0) // no limit: the tenant had a place
	case g.trying[name] > 1:
		g.trying[name]--
	default:
		delete(g.trying, name)
	}
}

// Has reports whether a tenant is admitted. Senders can invent any number of names. So if data per
// tenant has no other bound, keep it for admitted tenants only.
func (g *Gate) Has(name string) bool {
	if g == nil {
		return true
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.set.Has(name)
}

// Restore admits the tenants that were admitted before a restart, even beyond the limit: the limit may
// be lower now, but samples of these tenants were acknowledged.
func (g *Gate) Restore(names ...string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		g.set.Admit(name, 0)
	}
}
