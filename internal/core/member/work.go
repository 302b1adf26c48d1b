package member

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// Bounds of one Work, so that the first items of a long queue do not wait for the last.
const (
	workSamples  = 128 << 10 // of tiles, about 7 MB
	workRequests = 64
)

// Work is what a tenant's stores take next: the first tiles or the first requests of the tenant's queue.
// Or it is the events, of any tenants, that the event log takes next. Until the caller passes it to
// Done, a Work belongs to the caller, who may retry it as often as needed.
type Work struct {
	Tenant   string
	Tiles    []Tile
	Requests []*Request
	State    *write.State // for Requests; nil for Tiles
	Events   []*Events    // for the event log

	tenant *tenant
}

// Work returns the next Work of each queue that is not empty and has no Work under way. They are sorted
// by tenant, tiles first, and the event log's Work comes last. So equal inputs give equal outputs.
func (m *Member) Work() (all []*Work) {
	for _, t := range m.tenants {
		if w := t.takeTiles(); w != nil {
			all = append(all, w)
		}
		if w := t.takeRequests(); w != nil {
			all = append(all, w)
		}
	}
	slices.SortStableFunc(all, func(a, b *Work) int { return cmp.Compare(a.Tenant, b.Tenant) })
	if w := m.takeEvents(); w != nil {
		all = append(all, w)
	}
	return all
}

func (t *tenant) takeTiles() *Work {
	if len(t.tiles) == 0 || t.tilesWork != nil {
		return nil
	}
	n, samples := 0, 0
	for n < len(t.tiles) && (n == 0 || samples < workSamples) {
		for _, of := range t.tiles[n].Samples {
			samples += len(of)
		}
		n++
	}
	t.tilesWork = &Work{Tenant: t.name, Tiles: t.tiles[:n:n], tenant: t}
	return t.tilesWork
}

func (t *tenant) takeRequests() *Work {
	if len(t.requests) == 0 || t.requestsWork != nil {
		return nil
	}
	n := min(len(t.requests), workRequests)
	t.requestsWork = &Work{Tenant: t.name, Requests: t.requests[:n:n], State: t.state, tenant: t}
	return t.requestsWork
}

// Done takes back work that the tenant's stores have: each width of the work's tiles is stored, or each
// of its requests has its outcome. For requests, Done returns a note for RestoreNote.
func (m *Member) Done(w *Work) (note []byte) {
	if w == m.eventsWork {
		m.doneEvents(w)
		return nil
	}
	t := w.tenant
	if t == nil {
		panic("BUG: events are done that are not under way")
	}
	switch w {
	case t.tilesWork:
		t.tilesWork = nil
		for _, x := range w.Tiles {
			m.shards.Stored(x.Shard, t.name, x.Boundary)
			t.tilesBytes -= x.Bytes
			m.tilesBytes -= x.Bytes
			t.tilesSamples -= x.Raw
		}
		t.tiles = append([]Tile(nil), t.tiles[len(w.Tiles):]...) // a copy, which frees the stored tiles
	case t.requestsWork:
		t.requestsWork = nil
		for _, r := range w.Requests {
			m.marks.Settle(t.name, r.Index-1, t.digest.Index, t.digest.Hash)
			t.digest.add(r.Index, &r.Write.Outcome)
		}
		from := t.written
		t.written = w.Requests[len(w.Requests)-1].Index
		t.state.Recent.Keep()
		t.folded, t.newest = t.state.Requests, t.state.Newest
		note = t.note(from)
		m.dropRequests(t, len(w.Requests))
		m.marks.Settle(t.name, t.requested()-1, t.digest.Index, t.digest.Hash)
	default:
		panic(fmt.Sprintf("BUG: work of tenant %s is done that is not under way", t.name))
	}
	return note
}

// Samples returns the samples of one width.
func (w *Work) Samples(width tile.Width) (all []tile.Sample) {
	for _, t := range w.Tiles {
		all = append(all, t.Tiles(width)...)
	}
	return all
}

// Tiles returns the samples of one width.
func (t *Tile) Tiles(width tile.Width) []tile.Sample { return t.Waiting.Samples[width] }

// full returns the tenants whose waiting tiles have `most` bytes or more. The names are sorted.
func (m *Member) full(most int64) (names []string) {
	for name, t := range m.tenants {
		if t.tilesBytes >= most {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// overfull returns the tenant with the most waiting bytes among those for which a bound is reached, or
// "" if there is none. The bounds are bytes of a tenant's tiles, of a tenant's requests, and of the
// requests of all tenants.
func (m *Member) overfull(tiles, requests, sum int64) (name string) {
	most := int64(0)
	for _, t := range m.tenants {
		full := t.tilesBytes >= tiles || t.requestsBytes >= requests || m.requestsBytes >= sum
		if n := t.tilesBytes + t.requestsBytes; full && (n > most || n == most && t.name < name) {
			name, most = t.name, n
		}
	}
	return name
}
