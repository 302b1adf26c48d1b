package member

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/imports"
	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/ruleset"
	"github.com/freshet-io/freshet/internal/core/rulestate"
	"github.com/freshet-io/freshet/internal/core/seen"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/fields"
)

// errSection means that a section was damaged, or is not one of ours.
var errSection = errors.New("the section is damaged")

// These are the first bytes of sections. Notes have the version of tenants, and shards have the version
// of their tiles.
const (
	sectionVersion = 1 // of a tenant, of the decisions, and of a group without the additions of later versions
	withEvents     = 2 // of a group: events that wait for the event log
	withForwarded  = 3 // of a group: what its backends have, and waiting events
	withNames      = 4 // of a group: names of metrics, and all of the above
	withStates     = 5 // of a group: states of rules, and all of the above; written only if there are some
	withSets       = 6 // of a group: rules set by the API, and all of the above; written only if there were some
	withBlocks     = 7 // of a group: imported blocks, and all of the above; written only if there were some
)

// These are the parts of a group without names, rules and imports.
var (
	noNames = catalogue.NewShared().Append(nil)
	noRules = new(rulestate.Kept).Append(nil)
	noSets  = ruleset.NewKept().Append(nil)
	noBlock = imports.NewKept().Append(nil)
)

// Found returns the state of a group that goes on with the data of one machine. These data are the
// machine's shards, the state that each queue of requests left, and the names of metrics. All these
// data count as the entry `index`. The tenants are admitted. The shards and the states belong to the
// member from now on. The caller adds the rules set by the API to RuleSets.
func Found(
	group, index uint64, config *tile.Config, shards *tile.Shards, tenants map[string]*write.State,
	names []catalogue.Metric,
) *Member {
	m := New(group, config)
	m.applied, m.begun, m.shards = index, index, shards
	for number := range uint16(series.Shards) {
		if shard := shards.Of(number); shard != nil {
			for _, w := range shard.Waiting() {
				w.Index = index // it was a position of the machine's journal
			}
		}
	}
	m.names.Load(slices.DeleteFunc(slices.Clone(names), func(x catalogue.Metric) bool { return tenants[x.Tenant] == nil }))
	for name, state := range tenants {
		m.has.Admit(write.TenantOf(name), 0)
		m.tenant(name).setState(state)
	}
	return m
}

// AppendGroup appends the section of the group: it begins a checkpoint, whose base is the present
// index. An earlier program can read it until the log has entries that it does not know.
func (m *Member) AppendGroup(dst []byte) []byte {
	version := byte(withNames)
	if !m.rules.Empty() {
		version = withStates
	}
	if !m.sets.Empty() {
		version = withSets
	}
	if !m.imports.Empty() && !mutant.NoImports {
		version = withBlocks
	}
	dst = append(dst, version)
	dst = binary.AppendUvarint(dst, m.applied)
	dst = binary.AppendUvarint(dst, uint64(m.version.Format))
	dst = binary.AppendUvarint(dst, uint64(m.version.Semantics))
	dst = fields.AppendBytes(dst, m.pairs.Append(nil))
	sent := &m.deltas.seen
	if mutant.NoSenders {
		sent = new(seen.Seen)
	}
	dst = fields.AppendBytes(dst, sent.Append(nil))
	dst = fields.AppendBytes(dst, m.has.Append(nil))
	dst = fields.AppendBytes(dst, m.nodes.Append(nil))
	dst = m.appendDigests(dst)
	dst = fields.AppendBytes(dst, m.sent.List())
	dst = m.appendEvents(dst)
	dst = fields.AppendBytes(dst, m.names.Append(nil))
	if version >= withStates {
		dst = fields.AppendBytes(dst, m.rules.Append(nil))
	}
	if version >= withSets {
		dst = fields.AppendBytes(dst, m.sets.Append(nil))
	}
	if version >= withBlocks {
		dst = fields.AppendBytes(dst, m.imports.Append(nil))
	}
	return dst
}

// AppendShard appends the section of a shard, and returns the index of the last entry in it. That is the
// present index, unless a restart restored the shard as of a later entry, which has not come again yet.
// A shard without tiles has no section.
func (m *Member) AppendShard(dst []byte, number uint16) (section []byte, index uint64, has bool) {
	if m.shards.Of(number) == nil {
		return dst, 0, false
	}
	return m.shards.AppendState(number, dst), max(m.applied, m.restored[number]), true
}

// Tenants returns the names of the tenants that have a section, sorted, and of their results of rules: see
// write.QueueOf.
func (m *Member) Tenants() []string { return slices.Sorted(maps.Keys(m.tenants)) }

// AppendTenant appends the section of a tenant: its state after the last request that left the queue,
// and the requests up to the index `base` that wait. The store may have a Work of these requests
// meanwhile, and may even hang: the section has the state from before the Work.
func (m *Member) AppendTenant(dst []byte, name string, base uint64) []byte {
	t := m.tenants[name]
	waiting := 0
	for waiting < len(t.requests) && t.requests[waiting].Index <= base {
		waiting++
	}
	dst = append(dst, sectionVersion)
	dst = binary.AppendUvarint(dst, t.written)
	dst = t.digest.append(dst)
	dst = binary.AppendUvarint(dst, uint64(waiting))
	for _, r := range t.requests[:waiting] {
		dst = binary.AppendUvarint(dst, r.Index)
		dst = fields.AppendBytes(dst, r.data)
	}
	return t.state.AppendKept(dst, t.folded, t.newest)
}

// Restore begins a restoration with the group's section. The caller then restores the other sections and
// the notes, calls Restored, and applies all entries after Index.
func Restore(group uint64, config *tile.Config, section []byte) (*Member, error) {
	m := New(group, config)
	d := fields.Reader{B: section}
	version := d.Byte()
	m.applied = d.Uvarint()
	m.version.Format, m.version.Semantics = uint32(d.Uvarint()), uint32(d.Uvarint())
	pairs, seen, has, nodes := d.Bytes(), d.Bytes(), d.Bytes(), d.Bytes()
	m.parseDigests(&d)
	var sent entry.List
	if version >= withForwarded {
		sent = d.Bytes()
	}
	if version >= withEvents {
		m.parseEvents(&d)
	}
	names, rules, sets, blocks := noNames, noRules, noSets, noBlock
	if version >= withNames {
		names = d.Bytes()
	}
	if version >= withStates {
		rules = d.Bytes()
	}
	if version >= withSets {
		sets = d.Bytes()
	}
	if version >= withBlocks {
		blocks = d.Bytes()
	}
	m.begun = m.applied
	known := version >= sectionVersion && version <= withBlocks
	if d.Bad || !known || len(d.B) > 0 || len(sent) > 0 && !sent.Forwarded() {
		return nil, fmt.Errorf("the group: %w", errSection)
	}
	if err := cmp.Or(m.readable(m.version), m.pairs.Parse(pairs), m.deltas.seen.Parse(seen), m.has.Parse(has),
		m.nodes.Parse(nodes), m.names.Parse(names), m.rules.Parse(rules), m.sets.Parse(sets),
		m.imports.Parse(blocks)); err != nil {
		return nil, fmt.Errorf("the group: %w", err)
	}
	m.sent.Raise(sent)
	return m, nil
}

// RestoreShard restores a shard as of an index.
func (m *Member) RestoreShard(number uint16, index uint64, section []byte) error {
	if int(number) >= series.Shards || index < m.applied {
		return fmt.Errorf("shard %d: %w", number, errSection)
	}
	tiles, err := tile.ParseState(m.config, section)
	if err != nil {
		return fmt.Errorf("shard %d: %w", number, err)
	}
	for _, w := range tiles.Waiting() {
		if w.Index == 0 {
			return fmt.Errorf("shard %d: %w", number, errSection)
		}
	}
	m.shards.Begin(number, tiles)
	m.restored[number] = index
	m.newest = max(m.newest, index)
	return nil
}

// RestoreTenant restores a tenant.
func (m *Member) RestoreTenant(name string, section []byte) error {
	d := fields.Reader{B: section}
	version := d.Byte()
	t := m.tenant(name)
	t.written = d.Uvarint()
	t.digest = digestOf(&d)
	last := t.written
	for range d.Count() {
		r, err := m.parseRequest(d.Uvarint(), slices.Clone(d.Bytes()))
		if err != nil || r.Index <= last || r.Index > m.applied || write.QueueOf(r.entry.Tenant, r.entry.Results) != name {
			return fmt.Errorf("tenant %.80q, a waiting request: %w", name, errSection)
		}
		last = r.Index
		m.addRequest(t, r)
	}
	if d.Bad || version != sectionVersion {
		return fmt.Errorf("tenant %.80q: %w", name, errSection)
	}
	state, err := write.ParseState(d.B)
	if err != nil {
		return fmt.Errorf("tenant %.80q: %w", name, err)
	}
	t.setState(state)
	return nil
}

// RestoreNote restores a note that Done returned. The note says that the tenant's store has the requests
// up to an entry, so these are not looked up there again. The caller must be certain that the store
// still has them. `counts` reports whether the note counts. It counts only if the tenant's state is from
// just before the requests of the note.
func (m *Member) RestoreNote(note []byte) (counts bool, err error) {
	d := fields.Reader{B: note}
	version := d.Byte()
	name := string(d.Bytes())
	from := d.Uvarint()
	digest := digestOf(&d)
	if d.Bad || version != sectionVersion || digest.Index <= from {
		return false, fmt.Errorf("a note of requests: %w", errSection)
	}
	t := m.tenants[name]
	if t == nil && from != 0 || t != nil && t.written != from {
		return false, nil
	}
	t = m.tenant(name)
	if err := t.state.Repeat(d.B); err != nil {
		return false, fmt.Errorf("a note of requests of tenant %.80q: %w", name, err)
	}
	t.folded, t.newest = t.state.Requests, t.state.Newest
	t.written, t.digest = digest.Index, digest
	n := 0
	for n < len(t.requests) && t.requests[n].Index <= t.written {
		n++
	}
	m.dropRequests(t, n)
	return true, nil
}

// Restored ends a restoration, once all sections are there. For each tenant, `stored` has the index up
// to which its stores are known to have the closed tiles. These tiles no longer wait.
func (m *Member) Restored(stored map[string]uint64) {
	m.stored = stored
	var all []Tile
	for number := range uint16(series.Shards) {
		shard := m.shards.Of(number)
		if shard == nil {
			continue
		}
		for _, w := range shard.Waiting() {
			if w.Index <= m.stored[w.Tenant] || mutant.UnstoredLost {
				shard.Stored(w.Tenant, w.Boundary)
				continue
			}
			all = append(all, Tile{number, w})
		}
	}
	slices.SortStableFunc(all, func(x, y Tile) int { // tiles of a founder have the same index: see Found
		return cmp.Or(cmp.Compare(x.Index, y.Index), cmp.Compare(x.Boundary, y.Boundary))
	})
	for _, x := range all {
		m.addTile(x)
	}
}

// Reaches returns the largest index of an entry in a restored state. The log must have all entries up to it:
// a later entry with such an index would have no effect.
func (m *Member) Reaches() uint64 {
	last := max(m.applied, m.newest)
	for _, t := range m.tenants {
		last = max(last, t.written)
	}
	for _, index := range m.stored {
		last = max(last, index)
	}
	return last
}

// Requests returns, by tenant, how many requests have left the queue. After a restoration, the stores of
// the tenant must have these, since only later ones are written again.
func (m *Member) Requests() map[string]uint64 {
	all := map[string]uint64{}
	for name, t := range m.tenants {
		all[name] = t.state.Requests
	}
	return all
}
