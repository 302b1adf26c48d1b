// Package tile is the aggregator's state: what each series of a shard has counted since it began,
// and its open tiles. It is a state machine without a clock: the same batches and boundaries in the
// same order give the same samples, and the same bytes in a checkpoint. So a journal can restore
// it, and two machines with one journal can be compared. The aggregator decides when a boundary is
// due, and where the samples go.
//
// These are the states of a series, which is an entry here. A series is owed, live or stale for the
// store of each width separately:
//
//	       increment        its tile closes      boundary of the width       time to live
//	absent ────────▶ open ─────────────▶ owed ─────────────────▶ live ─────────────▶ stale
//	   ▲              ▲                                          │  ▲ each boundary   │  │
//	   │              │                                          │  └ says it again   │  │
//	   │              └──────────────── increment ───────────────┴────────────────────┘  │
//	   └───────────── next boundary: the total is forgotten, and begins at zero ─────────┘
//
//	open   open tiles hold increments
//	owed   the total has taken a tile that the store does not have yet
//	live   the newest sample in the store is a value
//	stale  the newest sample is a stale marker; once no store is owed or live, the total is forgotten
//
// The files, from the top. Each uses only names of files below it:
//
//	shards.go     Shards: all shards of a process, which others may ask while one goroutine changes them
//	tile.go       Shard: closes tiles, answers queries, has a state
//	fold.go       Shard: folds batches into open tiles
//	tenant.go     the series of a tenant in a shard, and its closed tiles until they are stored
//	live.go       what a query sees of an open tile: a copy of a series, closed early
//	state.go      a series in a checkpoint
//	close.go      what a series hands out when a tile closes
//	seconds.go    what came in each second of an open tile
//	kind.go       what each kind of series does with its values, one file per kind:
//	counter.go, updown.go, check.go, gauge.go, classic.go, timer.go, set.go
//	waiting.go    closed tiles until they are stored, in memory and in a checkpoint
//	decode.go     how fields are written and read in a checkpoint
//	entry.go      a series in memory, and its states
//	written.go    the fates of samples in a store
//	config.go     times to live
//	sample.go     widths, samples and series, as stores and queries get them
package tile

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/changes"
)

// Shard is the state of one shard. It belongs to one goroutine at a time.
type Shard struct {
	config      *Config
	closed      int64 // boundary: end of the last closed tile, Unix milliseconds
	timedWindow int64 // Config.OutOfOrder at the last boundary, ms; part of the state, since a replay must fold with it
	tenants     map[string]*tenant
	producers   map[producer]*received
	series      int // of all tenants
	upDowns     int // the up/down counters among them
	reader      batch.Reader
	seconds     seconds

	// What queries must know of the past: see Shards.Changes.
	altered     int64 // the oldest time that the last Fold may have altered behind finalBefore, Unix ms; noTime if none
	timedOpen   int64 // the oldest stamped gauge since the last boundary, Unix ms; noTime if none
	timedClosed int64 // the oldest stamped gauge that may wait to be stored, Unix ms; noTime if none
}

// New returns an empty shard whose first tile begins at `boundary`, in Unix milliseconds and a
// multiple of ten seconds.
func New(config *Config, boundary int64) *Shard {
	return &Shard{
		config:      config,
		closed:      boundary,
		timedWindow: config.OutOfOrder.Milliseconds(),
		tenants:     map[string]*tenant{},
		producers:   map[producer]*received{},
		altered:     noTime,
		timedOpen:   noTime,
		timedClosed: noTime,
	}
}

// Closed returns the boundary: the end of the last closed tile, in Unix milliseconds.
func (s *Shard) Closed() int64 { return s.closed }

// Closed counts the fates of the samples of closed tiles.
type Closed struct {
	Samples    uint64            // values on the wire that are in the tiles
	Duplicates map[string]uint64 // values on the wire stamped with the end of a tile that has a sample there, by tenant
	Waiting    []*Waiting        // samples to store, one Waiting per tenant that has any
}

// Close ends the tile up to `boundary`, which must be the next one, or any later one while the
// shard rests. It returns the samples to store, in order of tenant, series and time. The samples
// stay in the shard until Stored. Close does not wait until earlier samples are stored, so no store
// holds up a shard. It takes the times to live from `config`, so that a replay can close with the
// times that were in force.
func (s *Shard) Close(boundary int64, config *Config) (closed Closed) {
	if next := s.closed + finest.Millis(); boundary != next && (boundary < next || !s.Rests()) {
		panic(fmt.Sprintf("BUG: tile of shard closed up to %d, asked for %d", s.closed, boundary))
	}
	if !s.waits() {
		s.timedClosed = noTime
	}
	s.timedOpen, s.timedClosed = noTime, min(s.timedOpen, s.timedClosed)
	s.closed, s.timedWindow = boundary, config.OutOfOrder.Milliseconds()
	closed.Duplicates = map[string]uint64{}
	for _, t := range s.tenantsByName() {
		if len(t.entries) == 0 {
			s.forgetTenant(t)
			continue
		}
		w := t.begin(boundary)
		full := slices.Contains(config.Full, t.name)
		all := t.byKey()
		kept := all[:0]
		for i, e := range all {
			fetch(all, i)
			before := w.len()
			samples, duplicates := e.close(boundary, config.ttl(e.kind), full, &w.Samples)
			closed.Samples += samples
			if duplicates > 0 {
				closed.Duplicates[t.name] += duplicates
			}
			// It must not matter whether earlier samples of the series still wait: a replay knows
			// less about stored samples.
			if w.len() == before && e.idle(boundary) {
				t.remove(e)
				s.count(e, -1)
				continue
			}
			kept = append(kept, e)
		}
		t.keep(kept)
		if w.len() > 0 {
			w.measure()
			t.waiting = append(t.waiting, w)
			closed.Waiting = append(closed.Waiting, w)
		}
	}
	s.seconds.close(boundary)
	s.forgetProducers()
	return closed
}

// Rests reports whether the shard holds only totals of up/down counters, all of them handed out:
// its next tiles would repeat the last one. So when no process ran for weeks, the tiles of that
// time need not be made.
func (s *Shard) Rests() bool {
	if s.series != s.upDowns {
		return false
	}
	for _, t := range s.tenants {
		for _, e := range t.entries {
			if e.pending(Width10s) || e.pending(Width1m) {
				return false
			}
		}
	}
	return true
}

// Skip moves the boundary of a shard without series, which has nothing to close, and reports
// whether it did. Samples that wait to be stored keep waiting.
func (s *Shard) Skip(boundary int64, config *Config) bool {
	if s.Len() > 0 {
		return false
	}
	for _, t := range s.tenants {
		s.forgetTenant(t)
	}
	s.closed, s.timedWindow = boundary, config.OutOfOrder.Milliseconds()
	s.forgetProducers()
	return true
}

// forgetTenant removes a tenant without series, unless samples wait for its stores.
func (s *Shard) forgetTenant(t *tenant) {
	if len(t.waiting) == 0 {
		delete(s.tenants, t.name)
	}
}

// producerTTL is how long the sequence of a silent producer is remembered, measured by boundaries.
// It is longer than the time for which batches are retried.
const producerTTL = 3_600_000 // ms

// leftTTL replaces producerTTL for a producer that has left. A copy of a batch may still be on its way
// to the leader, for less than a minute.
const leftTTL = 300_000 // ms

// Left says that an incarnation of a producer sends no more batches, except copies of earlier ones.
func (s *Shard) Left(id, incarnation uint64) {
	if last := s.producers[producer{id, incarnation}]; last != nil {
		last.boundary = min(last.boundary, s.closed-producerTTL+leftTTL)
	}
}

func (s *Shard) forgetProducers() {
	for id, last := range s.producers {
		if last.boundary < s.closed-producerTTL {
			delete(s.producers, id)
		}
	}
}

// tenantsByName returns the tenants in the one order in which they are handed out and written.
func (s *Shard) tenantsByName() []*tenant {
	return slices.SortedFunc(maps.Values(s.tenants), func(a, b *tenant) int { return cmp.Compare(a.name, b.name) })
}

// Stored removes a tenant's samples up to `boundary` from the shard, once its stores have them.
func (s *Shard) Stored(tenantName string, boundary int64) {
	if t := s.tenants[tenantName]; t != nil {
		t.stored(boundary)
		if !t.holds() {
			delete(s.tenants, tenantName)
		}
	}
}

// AllStored is Stored for all tenants and all closed tiles.
func (s *Shard) AllStored() {
	for name := range s.tenants {
		s.Stored(name, s.closed)
	}
}

// Waiting returns the samples that wait to be stored, for each tenant by boundary.
func (s *Shard) Waiting() (all []*Waiting) {
	for _, t := range s.tenantsByName() {
		all = append(all, t.waiting...)
	}
	return all
}

// Since returns a time in Unix milliseconds: the start of a tenant's first waiting tile, or the
// boundary. All samples from before this time are stored, except late ones.
func (s *Shard) Since(tenantName string) int64 {
	if t := s.tenants[tenantName]; t != nil && len(t.waiting) > 0 {
		return t.waiting[0].Boundary - finest.Millis()
	}
	return s.closed
}

// finalBefore returns a time before which a tenant's open tiles do not change what queries see, Unix milliseconds,
// except what `altered` says; noTime if the tenant has no series and no waiting samples here.
//
// A stamped gauge is not final before it is stored: each query takes the newest one up to its end for a live sample, so
// that two queries with different ends take different gauges.
func (s *Shard) finalBefore(tenantName string) int64 {
	if t := s.tenants[tenantName]; t == nil || !t.holds() {
		return noTime
	}
	return min(s.Since(tenantName), s.timedOpen, s.timedClosed)
}

// Unstored yields each tenant that has series or waiting samples here, with the end of its
// first tile that is not stored, in Unix milliseconds: a waiting tile, or the one that closes
// next.
func (s *Shard) Unstored() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for name, t := range s.tenants {
			if t.holds() && !yield(name, s.Since(name)+finest.Millis()) {
				return
			}
		}
	}
}

// Live returns the points of a tenant's matching series that are not stored yet: samples of closed
// tiles that are not stored yet, tiles that have ended and wait for late data, and one sample at
// `stamp`, the end of the last complete window.
//
// If the query ends earlier, at `until`, that sample is at the end of the last second before
// `until`, with the counts of that time. There is no such sample if that second is in no open tile.
// In the same way the sample at `stamp` leaves out later windows: a shard may have folded a window
// that other shards still lack. Times are Unix milliseconds. w is the width of the store that the
// answer is merged with.
func (s *Shard) Live(tenantName string, w Width, stamp, until int64, matchers []*labels.Matcher) []Live {
	t := s.tenants[tenantName]
	if t == nil {
		return nil
	}
	past := until < stamp || t.folded > stamp
	if past {
		stamp = min(stamp, until)
		stamp -= stamp % 1000
	}
	return t.live(&view{
		width: w, stamp: stamp, past: past,
		closed: s.closed, config: s.config, seconds: &s.seconds, reader: &s.reader,
	}, matchers)
}

// Len returns the number of series held.
func (s *Shard) Len() int { return s.series }

// waits reports whether any samples wait to be stored.
func (s *Shard) waits() bool {
	for _, t := range s.tenants {
		if len(t.waiting) > 0 {
			return true
		}
	}
	return false
}

// HasUpDown reports whether any series held is an up/down counter.
func (s *Shard) HasUpDown() bool { return s.upDowns > 0 }

// TenantLen returns the number of a tenant's series that are held.
func (s *Shard) TenantLen(name string) int {
	if t := s.tenants[name]; t != nil {
		return len(t.entries)
	}
	return 0
}

// Holds reports whether a series of a tenant is held.
func (s *Shard) Holds(name string, key []byte) bool {
	t := s.tenants[name]
	return t != nil && t.entries[string(key)] != nil
}

// Knows reports whether the batch with this header was folded already.
func (s *Shard) Knows(h *batch.Header) bool {
	last := s.producers[producer{h.Producer, h.Incarnation}]
	return last != nil && h.Sequence <= last.sequence
}

// Raw returns how many values on the wire are in tiles, by tenant: in open tiles, and in closed
// ones that wait to be stored.
func (s *Shard) Raw() map[string]uint64 {
	held := map[string]uint64{}
	for _, t := range s.tenants {
		for _, e := range t.entries {
			held[t.name] += e.raw()
		}
		for _, w := range t.waiting {
			held[t.name] += w.Raw
		}
	}
	return held
}

// LastSeen returns the end of the last window with a sample of a held series, in Unix milliseconds;
// 0 for none. It looks at all series.
func (s *Shard) LastSeen() (ms int64) {
	for _, t := range s.tenants {
		for _, e := range t.entries {
			ms = max(ms, e.lastSeen)
		}
	}
	return ms
}

// Series yields each held series, by tenant, once per source of a merged gauge. The source is 0
// if there is nothing to merge.
func (s *Shard) Series() iter.Seq[Held] {
	return func(yield func(Held) bool) {
		for _, t := range s.tenants {
			for _, e := range t.entries {
				if !e.held(t.name, yield) {
					return
				}
			}
		}
	}
}

// The versions of a state. Version 2 added how many values on the wire a stamped point stands for;
// in version 1 each stands for one. Version 3 added the ends of senders' own deltas, 4 the
// exemplars of open tiles, and 5 the timed window of the last boundary and the samples that wait to
// be stored. Version 6 may have up/down counters, and version 7 added the indexes of waiting tiles.
// A shard in which nothing waits is written as version 6, or as 5 if it has no up/down counters, so
// that earlier programs can read it.
const stateVersion = 7

// AppendState appends the state of the shard to `dst`: its section of a checkpoint. Everything in
// it has one order, so that equal states have equal bytes. Layout: docs/format/checkpoint.md.
func (s *Shard) AppendState(dst []byte) []byte {
	version := byte(stateVersion)
	switch {
	case s.waits():
	case s.HasUpDown():
		version = 6
	default:
		version = 5
	}
	dst = append(dst, version)
	dst = binary.AppendVarint(dst, s.closed)
	dst = binary.AppendVarint(dst, s.timedWindow)
	dst = binary.AppendUvarint(dst, uint64(len(s.producers)))
	for _, p := range slices.SortedFunc(maps.Keys(s.producers), producer.compare) {
		last := s.producers[p]
		dst = binary.LittleEndian.AppendUint64(dst, p.id)
		dst = binary.LittleEndian.AppendUint64(dst, p.incarnation)
		dst = binary.LittleEndian.AppendUint64(dst, last.sequence)
		dst = binary.AppendVarint(dst, last.boundary)
	}
	tenants := slices.DeleteFunc(s.tenantsByName(), func(t *tenant) bool { return !t.holds() })
	dst = binary.AppendUvarint(dst, uint64(len(tenants)))
	for _, t := range tenants {
		dst = t.append(dst)
	}
	return dst
}

// ParseState returns the shard from a state that AppendState of this or an older program wrote.
func ParseState(config *Config, b []byte) (*Shard, error) {
	d := decoder{b: b}
	if d.version = d.byte(); d.version < 1 || d.version > stateVersion {
		return nil, errState
	}
	s := New(config, d.varint())
	if s.closed%finest.Millis() != 0 {
		return nil, errState
	}
	if d.version > 4 {
		s.timedWindow = d.varint()
	}
	s.timedOpen = changes.All // the state does not say
	for range d.count(25) {
		p := producer{d.fixed(), d.fixed()}
		s.producers[p] = &received{d.fixed(), d.varint()}
	}
	for range d.count(2) {
		t := s.tenant(string(d.bytes()))
		t.parse(&d, s.closed)
		if d.err != nil {
			return nil, d.err
		}
	}
	for _, t := range s.tenants {
		for _, e := range t.entries {
			s.count(e, 1)
		}
	}
	if d.err == nil && len(d.b) > 0 {
		d.err = errState
	}
	return s, d.err
}
