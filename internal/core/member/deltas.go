package member

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/delta"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/seen"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/fields"
)

// Deltas describes what an entry with deltas contained and what it changed, besides its increments.
type Deltas struct {
	Tenant   string
	Sender   sender.Sender
	Families []remotewrite.Family
	New      []delta.New    // series that had no total
	Request  *write.Request // with its outcome
}

// deltas is the state, besides the tiles, that decides which deltas count.
type deltas struct {
	seen   seen.Seen
	writer batch.Writer

	// refused lists the series that were refused because of the totals in all shards. Sections of shards
	// are saved one after the other, so after a restart the totals of all shards are not as they were
	// when an entry was first applied. Therefore, up to the entry `decided`, the member repeats its
	// earlier decisions.
	refused []decision
	decided uint64
}

// decision has the series of an entry that were refused because of the totals.
type decision struct {
	index  uint64
	series []delta.Refused
}

// applyDeltas adds the increments of a request to their tiles. A request that comes again counts once,
// and has the same outcome. If none of its increments counts, a request does not admit its tenant.
func (m *Member) applyDeltas(index uint64, e *entry.Request, done *Applied) error {
	m.deltas.seen.Advance(e.Arrival)
	r := Request{Index: index, entry: *e}
	if err := r.Decode(); err != nil {
		return err
	}
	done.Outcome = &r.Write.Outcome
	if !m.has.Fits(e.Tenant, e.MaxTenants) {
		r.Write.RefuseAll(outcome.TooManyTenants, m.has.Refusal(e.Tenant, e.MaxTenants))
		m.note(refusedTenants, index, done.Outcome)
		return nil
	}
	done.Deltas = &Deltas{Tenant: e.Tenant, Sender: e.Sender, Families: r.decoded.Families, Request: &r.Write}
	err := m.takeDeltas(index, e, &r, done)
	if !m.has.Has(e.Tenant) {
		done.Deltas = nil // metadata is kept by tenant, and only the number of admitted tenants is bounded
		m.note(refusedTenants, index, done.Outcome)
		return err
	}
	m.note(e.Tenant, index, done.Outcome)
	return err
}

// takeDeltas is applyDeltas for a tenant that is admitted, or that may be admitted.
func (m *Member) takeDeltas(index uint64, e *entry.Request, r *Request, done *Applied) error {
	d := &m.deltas
	known := m.has.Has(e.Tenant) // elections of HA pairs, too, are only for admitted tenants
	if known && !m.takes(e, done) {
		r.Write.Outcome.Dropped = r.decoded.Counts()
		return nil
	}
	if hash := seen.Hash(e.Hash); d.seen.Has(e.Tenant, hash) {
		d.repeat(hash, r)
		written := r.Write.Outcome.Written
		done.Windows.Folded = map[string]*tile.Folded{e.Tenant: {Repeated: uint64(written.Samples + written.Histograms)}}
		return nil
	}
	counted := delta.Resolve(&r.Write)
	if err := m.count(index, r, counted); err != nil {
		return err
	}
	done.Deltas.New = counted.New
	if r.Write.Outcome.Written == (outcome.Counts{}) {
		return nil // the request has changed nothing, so it may be tried again later
	}
	if m.has.Admit(e.Tenant, e.MaxTenants); !known {
		m.takes(e, done) // the first request of a tenant elects its sender
	}
	d.seen.Add(e.Tenant, seen.Hash(e.Hash), &r.Write.Outcome)
	return m.addIncrements(index, e, counted.Increments, done)
}

// repeat sets the outcome of a request that comes again. The parts that were refused at first are
// refused, and all other parts are written. If the rules of its proposer changed meanwhile, the body
// may have fewer samples than were refused.
func (d *deltas) repeat(hash seen.Hash, r *Request) {
	o := &r.Write.Outcome
	d.seen.Refused(r.entry.Tenant, hash, o)
	all, refused := r.decoded.Counts(), o.AllRefused()
	o.Written = outcome.Counts{
		Samples: max(0, all.Samples-refused.Samples), Histograms: max(0, all.Histograms-refused.Histograms),
	}
}

// count decides which series count, or repeats the decision from before a restart.
func (m *Member) count(index uint64, r *Request, counted *delta.Deltas) error {
	d := &m.deltas
	if index <= d.decided {
		var before []delta.Refused
		i, has := slices.BinarySearchFunc(d.refused, index, func(x decision, i uint64) int { return cmp.Compare(x.index, i) })
		if has {
			before = d.refused[i].series
		}
		counted.Recount(before)
		return nil
	}
	if index <= m.newest {
		return fmt.Errorf("a shard of the checkpoint has entry %d, but its decisions end at entry %d", m.newest, d.decided)
	}
	have := 0
	if r.Write.MaxSeries > 0 {
		have = m.shards.TenantLen(r.Write.Tenant)
	}
	counted.Count(m.shards.Kinds(r.Write.Tenant, counted.Keys()), have)
	if len(counted.Refused) > 0 {
		d.refused = append(d.refused, decision{index, counted.Refused})
	}
	return nil
}

// addIncrements folds increments. The group is their producer, and the index of the entry is
// their sequence number.
func (m *Member) addIncrements(index uint64, e *entry.Request, all []delta.Increment, done *Applied) error {
	if len(all) == 0 {
		return nil
	}
	w := &m.deltas.writer
	w.Begin(batch.Header{
		Tenant: []byte(e.Tenant), Producer: ^m.group, Incarnation: 1, Sequence: index,
		Second: e.Arrival / 1000, Birth: e.Arrival * 1e6,
	})
	for i := range all {
		w.Add(all[i].Shard, &all[i].Increment)
	}
	done.Windows.Folded = map[string]*tile.Folded{}
	for _, b := range w.End() {
		if err := m.fold(index, b.Bytes, e.MaxTenants, &done.Windows); err != nil {
			return err
		}
	}
	return nil
}

// AppendDecisions appends the section of decisions: which series of deltas were refused since `base`, the
// index of the checkpoint. It must be the last section of a checkpoint. Decisions up to base are
// forgotten: no later checkpoint needs them.
func (m *Member) AppendDecisions(dst []byte, base uint64) []byte {
	d := &m.deltas
	for len(d.refused) > 0 && d.refused[0].index <= base {
		d.refused = d.refused[1:]
	}
	dst = append(dst, sectionVersion)
	dst = binary.AppendUvarint(dst, max(m.applied, d.decided))
	dst = binary.AppendUvarint(dst, uint64(len(d.refused)))
	for _, x := range d.refused {
		dst = binary.AppendUvarint(dst, x.index)
		dst = binary.AppendUvarint(dst, uint64(len(x.series)))
		for _, s := range x.series {
			dst = binary.AppendUvarint(dst, uint64(s.Series))
			dst = append(dst, byte(s.Reason))
		}
	}
	return dst
}

// RestoreDecisions restores the section of decisions.
func (m *Member) RestoreDecisions(section []byte) error {
	d := fields.Reader{B: section}
	version := d.Byte()
	m.deltas.decided = d.Uvarint()
	m.deltas.refused = nil
	for range d.Count() {
		x := decision{index: d.Uvarint()}
		for range d.Count() {
			x.series = append(x.series, delta.Refused{Series: uint32(d.Uvarint()), Reason: outcome.Reason(d.Byte())})
			d.Bad = d.Bad || x.series[len(x.series)-1].Reason >= outcome.NumReasons
		}
		m.deltas.refused = append(m.deltas.refused, x)
	}
	if !d.Done() || version != sectionVersion {
		return fmt.Errorf("the decisions: %w", errSection)
	}
	return nil
}
