package tenants

import (
	"strings"
	"sync"
)

// Gate is the Set of a server that is in no group: its limit never changes, and any goroutine may ask
// it. A tenant is admitted when it may have stores. Until then it has a place while work that may make
// stores is under way. A nil Gate admits every tenant.
type Gate struct {
	limit  int
	mu     sync.RWMutex
	set    Set
	trying map[string]int // works under way, by a tenant that is not admitted yet
}

// NewGate returns the gate of a server with a limit, or with none if it is 0.
func NewGate(limit int) *Gate { return &Gate{limit: limit, trying: map[string]int{}} }

// Enter gives a tenant a place for one piece of work, or returns the reason why not: see Set.Refusal. If it
// returns nil, Leave must follow.
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

// Leave ends a piece of work. If the tenant may have stores now, it is admitted. Otherwise its place is free
// again, unless other work of it is under way.
func (g *Gate) Leave(name string, stores bool) {
	if g.Has(name) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case stores:
		delete(g.trying, name)
		g.set.Admit(name, 0) // it had a place
	case g.trying[name] > 1:
		g.trying[name]--
	default:
		delete(g.trying, name)
	}
}

// Has reports whether a tenant is admitted. What is kept for each tenant and has no other bound may be kept
// for admitted tenants only: names that senders invent come and go.
func (g *Gate) Has(name string) bool {
	if g == nil {
		return true
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.set.Has(name)
}

// Restore notes tenants that were admitted before a restart. It asks for no limit: the present one may
// be lower than the limit at that time, and samples of these tenants were acknowledged.
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
