package tenants

import "sync"

// Gate is the Set of a server that is in no group: its limit never changes, and any goroutine may ask
// it. A nil Gate admits every tenant.
type Gate struct {
	limit int
	mu    sync.RWMutex
	set   Set
}

// NewGate returns the gate of a server with a limit, or with none if it is 0.
func NewGate(limit int) *Gate { return &Gate{limit: limit} }

// Admit admits a tenant, or returns the reason why not: see Set.Refusal.
func (g *Gate) Admit(name string) error {
	if g == nil {
		return nil
	}
	g.mu.RLock()
	has := g.set.Has(name)
	g.mu.RUnlock()
	if has {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.set.Admit(name, g.limit) {
		return g.set.Refusal(name, g.limit)
	}
	return nil
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
