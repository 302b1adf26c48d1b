package ledger

import "maps"

// Books are a copy of the ledger at one moment between two postings. The JSON names of the fields
// must not change.
type Books struct {
	Boundary int64             `json:"boundary_ms"` // Unix ms, end of the last window; 0 before the first
	Tenants  map[string]Tenant `json:"tenants"`
}

// Of returns the books of a tenant. They are empty if nothing was posted for the tenant.
func (b Books) Of(name string) Tenant {
	if t, ok := b.Tenants[name]; ok {
		return t
	}
	return new(tenant).copy()
}

// Tenant is the books of one tenant.
type Tenant struct {
	Samples   Samples            `json:"samples"`
	Datagrams DatagramBook       `json:"datagrams"`
	Clients   map[string]float64 `json:"clients,omitempty"` // counts that clients report about themselves, by name

	// Copied is the part of Samples that the log of a cluster brought, or that was in tiles at the start. Each node has
	// a copy of these samples. The rest came in at this node alone. Copied means nothing outside a cluster.
	Copied Samples `json:"-"`
}

// Samples is the book of samples: Received plus Restored plus Collected equals the sum of the states.
type Samples struct {
	Received   uint64            `json:"received"`
	Restored   uint64            `json:"restored"`
	Collected  uint64            `json:"collected,omitempty"`
	Malformed  map[string]uint64 `json:"malformed"` // by reason, like the next four fields
	Refused    map[string]uint64 `json:"refused"`
	Late       map[string]uint64 `json:"late"`
	Unsent     map[string]uint64 `json:"unsent"`
	Discarded  map[string]uint64 `json:"discarded"`
	HandedOver uint64            `json:"handed_over,omitempty"`
	Window     uint64            `json:"window"`
	Tile       uint64            `json:"tile"`
	Stored     uint64            `json:"stored"`
	Difference int64             `json:"difference"` // negative if the states have more samples than came
	OfWhich    OfWhichBook       `json:"of_which"`
}

// Lost is a state in which samples end without reaching the store, by reason.
type Lost struct {
	Account Account
	Reasons map[string]uint64
}

// Lost returns the states that lose samples, in the order in which a sample may meet them.
func (s Samples) Lost() []Lost {
	return []Lost{
		{Malformed, s.Malformed}, {Refused, s.Refused}, {Late, s.Late}, {Unsent, s.Unsent}, {Discarded, s.Discarded},
	}
}

// Total is the number of samples in the state.
func (l Lost) Total() (n uint64) {
	for _, samples := range l.Reasons {
		n += samples
	}
	return n
}

// OfWhichBook counts samples by property. Each of these samples is also in one of the states.
type OfWhichBook struct {
	Folded    uint64 `json:"folded"`
	LateKept  uint64 `json:"late_kept"`
	Ahead     uint64 `json:"ahead"`
	Respelled uint64 `json:"respelled"`
}

// DatagramBook is the book of datagrams: Received equals the sum of the states.
type DatagramBook struct {
	Received uint64 `json:"received"`
	Datagrams
}

// Books returns a copy of the books.
func (l *Ledger) Books() Books {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := Books{Boundary: l.boundary, Tenants: make(map[string]Tenant, len(l.tenants))}
	for name, t := range l.tenants {
		b.Tenants[name] = t.copy()
	}
	return b
}

func (t *tenant) copy() Tenant {
	d := t.datagrams
	c := Tenant{
		Samples: t.all.book(), Copied: t.copied.book(),
		Datagrams: DatagramBook{Received: d.Read + d.KernelDropped + d.Oversized + d.CutFrames, Datagrams: d},
	}
	c.Samples.OfWhich = OfWhichBook{t.ofWhich[Folded], t.ofWhich[LateKept], t.ofWhich[Ahead], t.ofWhich[Respelled]}
	c.Copied.OfWhich = OfWhichBook{LateKept: t.ofWhich[LateKept], Ahead: t.ofWhich[Ahead]} // only tiles count these two
	if t.clients != nil {
		c.Clients = map[string]float64{}
		for count, n := range t.clients {
			c.Clients[ClientCount(count).String()] = n
		}
	}
	return c
}

func (a *accounts) book() Samples {
	in := func(of Account) uint64 { return uint64(max(0, a.samples[of])) }
	reasons := func(of Account) map[string]uint64 {
		byReason := map[string]uint64{} // not nil, since it must not be null in JSON
		maps.Copy(byReason, a.reasons[of])
		return byReason
	}
	s := Samples{
		Received: in(Received), Restored: in(Restored), Collected: in(Collected),
		Malformed: reasons(Malformed), Refused: reasons(Refused), Late: reasons(Late), Unsent: reasons(Unsent),
		Discarded:  reasons(Discarded),
		HandedOver: in(HandedOver), Window: in(Window), Tile: in(Tile), Stored: in(Stored),
	}
	s.Difference = s.difference()
	return s
}

// difference returns the samples that came, minus all states.
func (s *Samples) difference() int64 {
	d := int64(s.Received + s.Restored + s.Collected - s.HandedOver - s.Window - s.Tile - s.Stored)
	for _, l := range s.Lost() {
		d -= int64(l.Total())
	}
	return d
}
