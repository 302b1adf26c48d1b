// Package member is one member of a group, without goroutines, clock or I/O. A Node is the whole member:
// its part in the order of the log, its state, and the leader's work while it leads. A Member is the
// state alone, a state machine. Entries go in, in the order of the log. Work for the stores and answers
// for the proposers come out. Equal entries give equal states, equal work and equal answers on every
// member, no matter when its stores take the work.
//
// This is what a Node does with its Member:
//
//	for each committed entry {
//		applied, err := m.Apply(index, data) // answer proposers with applied
//		for _, w := range m.Work() {
//			// write w.Tiles or w.Requests, in any goroutine, then
//			m.Done(w)
//		}
//	}
//
// # Tenants' queues
//
// Samples wait in the queues of their tenant until its stores have them. Closed tiles and requests
// have a queue each, since they go to different stores. A store that fails or hangs delays only its
// own queue. Whether a request is too old, or has too many series, is decided when it leaves its
// queue. The decision depends on the tenant's write.State and on stored samples, and both depend only
// on the requests before it.
//
// # Sections
//
// The state is saved in sections, so that nobody waits until all of it is written: one section for
// the group, one for each shard and one for each tenant (section.go). The group's section is saved
// first, and its index is the base of the checkpoint. The other sections follow, each with an index
// of its own, and the section of decisions is the last (deltas.go). After a restart, an entry is applied
// only to the parts of the state that lack it.
//
// The files, from the top; each uses only names of those below it:
//
//	node.go        Node: a member with its part in the order
//	leader.go      what a node proposes while it leads
//	boundaries.go  when a leader closes tiles
//	member.go      Member: applies entries
//	section.go     saves and restores the state
//	deltas.go      a request of OTLP deltas in the log
//	windows.go     what windows and boundaries do to the shards
//	request.go     a request in the log, and events
//	tenant.go      a tenant's queues, what its stores take next, and hashes of outcomes
//	clocks.go      the members' clocks, the versions that their programs know, drained nodes and spares
package member

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"strings"

	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/cluster"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/forwarded"
	"github.com/freshet-io/freshet/internal/core/hapair"
	"github.com/freshet-io/freshet/internal/core/imports"
	"github.com/freshet-io/freshet/internal/core/marks"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/ruleset"
	"github.com/freshet-io/freshet/internal/core/rulestate"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/skip"
	"github.com/freshet-io/freshet/internal/core/tenants"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/fault"
)

// ErrEntry means that an entry cannot be applied. The member must stop before it: members that
// skipped it would differ from the others.
// An operator can tell all members to leave it out: see Member.Skip.
var ErrEntry = errors.New("an entry of the log cannot be applied")

// EntryError is the ErrEntry of one entry.
type EntryError struct {
	Index uint64
	Cause error
}

// Error names the entry.
func (e *EntryError) Error() string {
	return fmt.Sprintf("%v: entry %d: %v", ErrEntry, e.Index, e.Cause)
}

// Unwrap returns ErrEntry and the cause.
func (e *EntryError) Unwrap() []error { return []error{ErrEntry, e.Cause} }

// Format and Semantics are the newest versions that this program knows: see entry.Version. A leader proposes
// nothing that the version in Member.version does not have yet.
const (
	Format    = withImports
	Semantics = 1
)

// Formats, by what they brought.
const (
	withForwardedEntries = 2 // entries of the kind forwarded
	withReplacements     = 3 // entries of the kind node that replace or remove a member
	withDrains           = 4 // entries of the kind drain
	withRules            = 5 // entries of the kind rules
	withRuleSets         = 6 // entries of the kind ruleset, and requests with results of rules
	withImports          = 7 // entries of the kind import
)

// RulesFormat is the format from which on the log can have states of rules.
const RulesFormat = withRules

// ImportsFormat is the format from which on the log can have imports.
const ImportsFormat = withImports

// shape is the only shape of a group so far.
const shape = 1

// Member is the state of one member. One goroutine at a time calls its methods.
type Member struct {
	config  *tile.Config // for queries; no effect of an entry depends on it
	group   uint64
	applied uint64        // index of the last entry
	knows   entry.Version // the newest version that this program knows
	version entry.Version // what entries may use: see Node.raiseVersion
	skips   skip.List     // entries that are left out
	shards  *tile.Shards
	tenants map[string]*tenant
	has     tenants.Set // the admitted tenants
	pairs   hapair.Pairs
	deltas  deltas
	nodes   cluster.Nodes
	sent    forwarded.Indexes      // what other servers have
	names   *catalogue.Shared      // of DogStatsD metrics
	rules   rulestate.Kept         // of groups of rules
	sets    *ruleset.Kept          // rules set by the API
	imports *imports.Kept          // imported blocks
	digests map[string]*Digest     // of outcomes known when an entry is applied; store.max_tenants bounds their number
	senders map[uint64]lastWindows // by producer; only leaders use it
	swept   int64                  // the leader's clock when old senders were last forgotten
	since   int64                  // the leader's clock at this process's first windows; `senders` has no earlier time

	events      []*Events // that wait for the event log, by index
	eventsWork  *Work     // under way, or nil
	eventsBytes int64     // of the entries of all waiting events

	requestsBytes int64 // of the entries of all waiting requests
	tilesBytes    int64 // of all waiting tiles
	marks         marks.Marks
	begun         uint64 // entries up to this one had their effect before this process started

	// For a restored state: entries up to these indexes have had their effect.
	restored [series.Shards]uint64
	newest   uint64            // the largest of them
	stored   map[string]uint64 // by tenant: see Restored
}

// New returns the state of a new member of a group, before the first entry. Queries of open tiles
// use the times to live in config; entries bring their own.
func New(group uint64, config *tile.Config) *Member {
	m := &Member{
		config: config, group: group, shards: tile.NewShards(config),
		knows:   entry.Version{Format: Format, Semantics: Semantics},
		tenants: map[string]*tenant{}, senders: map[uint64]lastWindows{}, digests: map[string]*Digest{},
		names: catalogue.NewShared(), sets: ruleset.NewKept(), imports: imports.NewKept(),
	}
	m.version = m.knows
	return m
}

// Applied is the effect of one entry.
type Applied struct {
	Index uint64
	Kind  entry.Kind

	// Moved says that the entry was made for other shards than the group has now. It did nothing,
	// and its proposer must send it again.
	Moved bool

	Windows Windows          // of KindWindows and KindDeltas
	Closed  Closed           // of KindBoundary
	Names   []Conflict       // of KindNames: claims that got another name
	Request *Request         // of KindRequest: the outcome is known once Done gets the work; nil if Outcome is set
	Outcome *outcome.Outcome // of a request that no store needs to see, and of events, each of which counts as a sample
	Deltas  *Deltas          // of KindDeltas; points into the entry
	Refused error            // of KindRuleSet and KindImport: why it changes nothing; see ruleset.Kept and imports.Kept
	Skipped *skip.Entry      // the entry was left out: it did nothing
	Elected *Elected         // the request elected its sender, the other replica of its HA pair; points into the entry
}

// Elected is the replica of an HA pair whose requests are taken from now on.
type Elected struct{ Tenant, Cluster, Replica string }

// Apply applies the entry at an index, which must be the next one. The data must never change
// afterwards. The error is ErrEntry.
func (m *Member) Apply(index uint64, data []byte) (done Applied, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &EntryError{index, fmt.Errorf("%v\n%s", cause, debug.Stack())}
		}
	}()
	if index <= m.applied {
		return done, fmt.Errorf("%w: entry %d comes when entry %d is already applied", ErrEntry, index, m.applied)
	}
	done.Index = index
	if len(data) == 0 { // the entry only concerns the order: a new leader's first entry, or a change of the members
		m.applied = index
		m.mark()
		return done, nil
	}
	if done.Skipped = m.skips.Find(index, data); done.Skipped == nil {
		fault.Entry(data)
		if err := m.apply(index, data, &done); err != nil {
			return done, &EntryError{index, err}
		}
	}
	m.applied = index
	m.mark()
	return done, nil
}

func (m *Member) apply(index uint64, data []byte, done *Applied) (err error) {
	var e entry.Entry
	if err := e.Parse(data); err != nil {
		return err
	}
	if e.Group != m.group {
		return fmt.Errorf("it is of group %d, and this is group %d", e.Group, m.group)
	}
	done.Kind = e.Kind
	if e.Shape != shape {
		done.Moved = true
		return nil
	}
	switch e.Kind {
	case entry.KindWindows:
		done.Windows, err = m.applyWindows(index, &e.Windows)
	case entry.KindBoundary:
		done.Closed = m.applyBoundary(index, &e.Boundary)
	case entry.KindRequest:
		err = m.applyRequest(index, data, &e.Request, done)
	case entry.KindDeltas:
		err = m.applyDeltas(index, &e.Request, done)
	case entry.KindEvents:
		err = m.applyEvents(index, data, &e.Events, done)
	case entry.KindNames:
		done.Names, err = m.applyNames(&e.Names)
	case entry.KindVersion:
		err = m.applyVersion(e.Version)
	case entry.KindNode:
		m.nodes.Name(e.Node.Name, e.Node.Member, e.Node.Replaces)
	case entry.KindForwarded:
		m.sent.Raise(e.Forwarded)
	case entry.KindDrain:
		m.nodes.Drain(e.Drain.Name, e.Drain.Until)
	case entry.KindRules:
		m.rules.Fold(&e.Rules)
	case entry.KindRuleSet:
		done.Refused, done.Outcome = m.sets.Fold(&e.RuleSet), new(outcome.Outcome)
	case entry.KindImport:
		done.Refused, done.Outcome = m.applyImport(&e.Import), new(outcome.Outcome)
	default:
		err = fmt.Errorf("its kind %d is not known", e.Kind)
	}
	return err
}

// Skip makes the member leave out entries that cannot be applied. All members of the group must leave out the same
// ones: see skip.
func (m *Member) Skip(all skip.List) { m.skips = all }

// Index returns the index of the last entry that was applied.
func (m *Member) Index() uint64 { return m.applied }

// Marks returns hashes of the state after some of the last entries, which members compare.
func (m *Member) Marks() []marks.Mark { return m.marks.All() }

// Forgotten returns how many requests of deltas were forgotten early since the start: see seen.Seen.
func (m *Member) Forgotten() (requests, refusals uint64) {
	return m.deltas.seen.Early, m.deltas.seen.EarlyRefused
}

// mark begins a mark if the index of the last entry is a multiple of marks.Every. There is no mark if a
// restart may have restored the effect of some entries since the previous mark.
func (m *Member) mark() {
	if m.applied%marks.Every != 0 {
		return
	}
	whole := m.applied >= max(m.begun, m.newest)+marks.Every
	for _, t := range m.tenants {
		whole = whole && t.written <= m.applied
	}
	o := m.marks.Begin(m.applied, whole)
	if o == nil {
		return
	}
	for name, d := range m.digests {
		o.Add(name, d.Index, d.Hash)
	}
	for _, t := range m.tenants {
		if len(t.requests) > 0 {
			m.marks.Wait(o, t.name)
		} else {
			o.Add(t.name, t.digest.Index, t.digest.Hash)
		}
	}
	if !m.sets.Empty() {
		o.Add(ruleSets, 1, m.sets.Hash())
	}
	if !m.imports.Empty() {
		o.Add(imported, 1, m.imports.Hash())
	}
	m.marks.End(o)
}

// These take the place of a tenant's name in marks, which no tenant can have.
const (
	ruleSets = "\x00rules"
	imported = "\x00imports"
)

// Visible returns the index up to which a tenant's stores have what the entries brought. A read of
// the tenant that must see an entry waits until its index is visible.
func (m *Member) Visible(tenant string) uint64 {
	visible := m.applied
	for _, queue := range [...]string{tenant, write.QueueOf(tenant, true)} {
		if t := m.tenants[queue]; t != nil {
			visible = min(visible, t.first()-1)
		}
	}
	return visible
}

// VisibleTiles is Visible for closed tiles alone.
func (m *Member) VisibleTiles(tenant string) uint64 {
	t := m.tenants[tenant]
	if t == nil {
		return m.applied
	}
	return min(t.firstTile()-1, m.applied)
}

// Shards returns the tiles. Other goroutines may query them while the member changes them.
func (m *Member) Shards() *tile.Shards { return m.shards }

// Names returns the names of DogStatsD metrics. Other goroutines may call its Peek and Metadata.
func (m *Member) Names() *catalogue.Shared { return m.names }

// Nodes returns the member of each node that ever joined, by the node's name. The member of a removed node is 0.
func (m *Member) Nodes() map[string]uint64 { return m.nodes.All() }

// Drained returns until when nodes must not lead, in Unix ms, by their names; nil if there are none.
func (m *Member) Drained() map[string]int64 { return maps.Clone(m.nodes.Drained()) }

// Forwarded returns the index of the last entry whose samples the named backend has: see
// entry.KindForwarded. It is 0 for an unknown backend.
func (m *Member) Forwarded(backend string) uint64 { return m.sent.Of(backend) }

// Rules returns the encoded states of a tenant's groups of rules: see package rulestate.
func (m *Member) Rules(tenant string) [][]byte { return m.rules.Of(tenant) }

// Imports returns the imported blocks. Other goroutines may read them: see imports.Kept.
func (m *Member) Imports() *imports.Kept { return m.imports }

// RuleSets returns the rules set by the API. Other goroutines may read them: see ruleset.Kept.
func (m *Member) RuleSets() *ruleset.Kept { return m.sets }

// Version returns the version that entries may use.
func (m *Member) Version() entry.Version { return m.version }

// Knows returns the newest version that this program knows.
func (m *Member) Knows() entry.Version { return m.knows }

// applyVersion raises the version. It never falls.
func (m *Member) applyVersion(v entry.Version) error {
	if err := m.readable(v); err != nil {
		return err
	}
	m.version.Format = max(m.version.Format, v.Format)
	m.version.Semantics = max(m.version.Semantics, v.Semantics)
	return nil
}

// readable returns an error if this program is too old for a version.
func (m *Member) readable(v entry.Version) error {
	if v.Format <= m.knows.Format && v.Semantics <= m.knows.Semantics {
		return nil
	}
	return fmt.Errorf("the cluster uses format %d and semantics %d, but this program knows only %d and %d: "+
		"start the newer version of freshet that this node had: %w",
		v.Format, v.Semantics, m.knows.Format, m.knows.Semantics, entry.ErrNewer)
}

// tenant returns the queue of a tenant, or of its results of rules, and makes it if it is new: see write.QueueOf.
func (m *Member) tenant(name string) *tenant {
	t := m.tenants[name]
	if t == nil {
		t = &tenant{name: strings.Clone(name)} // not in the memory of an entry
		t.of = write.TenantOf(t.name)
		t.setState(new(write.State))
		m.tenants[t.name] = t
	}
	return t
}

const never = uint64(math.MaxUint64)
