package member

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/fields"
)

// tenant holds the tiles and requests of one tenant that wait for its stores, and the state that decides
// about the requests. Results of rules have one of their own, without tiles.
type tenant struct {
	name string // of the queue of requests: see write.QueueOf
	of   string // the tenant

	tiles        []Tile // tiles under way, then the others; each part sorted by index
	tilesBytes   int64
	tilesSamples uint64 // values on the wire
	tilesWork    *Work  // under way, or nil

	requests      []*Request
	requestsBytes int64        // of their entries
	requestsWork  *Work        // under way, or nil
	state         *write.State // state after the last request that left the queue; it may include some of requestsWork
	written       uint64       // index of the last request that left the queue
	folded        uint64       // State.Requests after that request
	newest        int64        // State.Newest after that request
	digest        Digest       // of the outcomes up to that request
}

// Tile is a closed tile of a tenant in a shard. Its Index is that of the entry that closed it.
type Tile struct {
	Shard uint16
	*tile.Waiting
}

// setState sets the state after the last request that left the queue. The state then records its changes
// for notes.
func (t *tenant) setState(s *write.State) {
	t.state, t.folded, t.newest = s, s.Requests, s.Newest
	s.Recent.Record()
}

// note returns a note of the requests that came after the entry `from` and have left the queue: see
// Member.RestoreNote. The note has the state's changes since the last note.
func (t *tenant) note(from uint64) []byte {
	b := fields.AppendBytes([]byte{sectionVersion}, []byte(t.name))
	b = binary.AppendUvarint(b, from)
	claimed := t.digest
	if mutant.NoteAhead {
		claimed.Index++
	}
	b = claimed.append(b)
	return t.state.AppendRecorded(b)
}

// firstTile returns the lowest index of the tiles that wait.
func (t *tenant) firstTile() uint64 {
	first := never
	if len(t.tiles) > 0 {
		first = t.tiles[0].Index
	}
	if n := t.tilesUnderWay(); n < len(t.tiles) {
		first = min(first, t.tiles[n].Index)
	}
	return first
}

// tilesUnderWay returns how many tiles are on their way to the stores.
func (t *tenant) tilesUnderWay() int {
	if t.tilesWork == nil {
		return 0
	}
	return len(t.tilesWork.Tiles)
}

// first returns the lowest index of the tiles and requests that wait.
func (t *tenant) first() uint64 {
	return min(t.firstTile(), t.requested())
}

// requested returns the lowest index of the requests that wait.
func (t *tenant) requested() uint64 {
	if len(t.requests) == 0 {
		return never
	}
	return t.requests[0].Index
}

// Unstored returns the lowest index of the tiles and requests that wait for stores, of all tenants. If none waits,
// it is the index of the next entry.
func (m *Member) Unstored() uint64 {
	lowest := m.applied + 1
	for _, t := range m.tenants {
		lowest = min(lowest, t.first())
	}
	return lowest
}

// addTile adds a tile to the queue of its tenant.
func (m *Member) addTile(x Tile) {
	m.tenant(x.Tenant).addTile(x)
	m.tilesBytes += x.Bytes
}

// addTile adds a tile to the queue, which is sorted by the index of the closing entry. After a restart,
// an entry may close a tile of one shard while the queue already has a restored tile of another shard
// that a later entry closed.
func (t *tenant) addTile(x Tile) {
	at := len(t.tiles)
	for at > t.tilesUnderWay() && t.tiles[at-1].Index > x.Index {
		at--
	}
	t.tiles = slices.Insert(t.tiles, at, x)
	t.tilesBytes += x.Bytes
	t.tilesSamples += x.Raw
}

// Waiting says what waits for the stores of a tenant.
type Waiting struct {
	Tiles    int
	Bytes    int64  // of tiles, about
	Samples  uint64 // received values that the tiles sum up
	Since    int64  // Unix ms, the end of the oldest tile; 0 for none
	Requests int

	RequestsBytes int64 // of their entries
}

// Waiting returns what waits for the stores of a tenant. Its requests are those of the named queue: see
// write.QueueOf.
func (m *Member) Waiting(tenant string) (w Waiting) {
	t := m.tenants[tenant]
	if t == nil {
		return w
	}
	w = Waiting{Tiles: len(t.tiles), Bytes: t.tilesBytes, Samples: t.tilesSamples, Requests: len(t.requests),
		RequestsBytes: t.requestsBytes}
	if len(t.tiles) > 0 {
		w.Since = t.tiles[0].Boundary
	}
	return w
}

// Digest is a hash of the outcomes of a tenant's entries, up to the entry Index. Members with the same
// Index and different hashes have decided differently.
type Digest struct{ Index, Hash uint64 }

// Digests returns the digest of the outcomes that are known when an entry is applied, and the digest of
// those that are known only once the stores have a request. Both are zero before the first outcome.
func (m *Member) Digests(tenant string) (applied, stored Digest) {
	if d := m.digests[tenant]; d != nil {
		applied = *d
	}
	if t := m.tenants[tenant]; t != nil {
		stored = t.digest
	}
	return applied, stored
}

// add adds the outcome of a later entry. It leaves out the text of the first refusal. It also leaves out
// exemplars, since the commit in which a request is stored decides whether they are kept.
func (d *Digest) add(index uint64, o *outcome.Outcome) {
	d.Index = index
	b := make([]byte, 0, 16+2*24+len(o.Refused)*8)
	b = binary.LittleEndian.AppendUint64(b, d.Hash)
	b = binary.LittleEndian.AppendUint64(b, index)
	b = appendCounts(b, &o.Written)
	b = appendCounts(b, &o.Dropped)
	for i := range o.Refused {
		b = appendCounts(b, &o.Refused[i])
	}
	d.Hash = xxhash.Sum64(b)
}

func appendCounts(b []byte, c *outcome.Counts) []byte {
	for _, n := range [...]int{c.Samples, c.Histograms, c.Series} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// note adds an outcome that is known when its entry is applied. `tenant` is an admitted tenant or
// refusedTenants, so there are at most store.max_tenants + 1 digests.
func (m *Member) note(tenant string, index uint64, o *outcome.Outcome) {
	d := m.digests[tenant]
	if d == nil {
		d = new(Digest)
		m.digests[strings.Clone(tenant)] = d
	}
	d.add(index, o)
}

func (d *Digest) append(b []byte) []byte {
	b = binary.AppendUvarint(b, d.Index)
	return binary.LittleEndian.AppendUint64(b, d.Hash)
}

func digestOf(d *fields.Reader) Digest { return Digest{d.Uvarint(), d.Uint64()} }

func (m *Member) appendDigests(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(m.digests)))
	for _, name := range slices.Sorted(maps.Keys(m.digests)) {
		b = fields.AppendBytes(b, []byte(name))
		b = m.digests[name].append(b)
	}
	return b
}

func (m *Member) parseDigests(d *fields.Reader) {
	for range d.Count() {
		name := string(d.Bytes())
		one := digestOf(d)
		m.digests[name] = &one
	}
}

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
	Queue    string // the tenant's name, or that of its results of rules: see write.QueueOf
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
	slices.SortStableFunc(all, func(a, b *Work) int { return cmp.Compare(a.Queue, b.Queue) })
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
	t.tilesWork = &Work{Tenant: t.of, Queue: t.name, Tiles: t.tiles[:n:n], tenant: t}
	return t.tilesWork
}

func (t *tenant) takeRequests() *Work {
	if len(t.requests) == 0 || t.requestsWork != nil {
		return nil
	}
	n := min(len(t.requests), workRequests)
	t.requestsWork = &Work{Tenant: t.of, Queue: t.name, Requests: t.requests[:n:n], State: t.state, tenant: t}
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
	number := 0
	for _, t := range w.Tiles {
		number += len(t.Tiles(width))
	}
	all = make([]tile.Sample, 0, number)
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
