package member

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/imports"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/seen"
	tenantname "github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/buf"
	"github.com/freshet-io/freshet/internal/lib/fields"
)

// Request is a request of the log that waits for its tenant's store.
type Request struct {
	Index uint64
	Write write.Request // Decode sets its body; the store sets its Outcome

	data    []byte // the whole entry
	entry   entry.Request
	decoded *write.Incoming // the body; nil after Release, and before Decode unless the caller of Node.Write gave it
}

// maxDecoded bounds the entries of waiting requests, in bytes, of which a leader keeps the decoded bodies that
// its callers gave. A decoded body takes several times as much memory as its entry. If more waits, the
// stores are slow, and it costs little to decode the bodies again.
const maxDecoded = 4 << 20

// applyRequest puts a request into its tenant's queue if the tenant is admitted and the request is
// taken: its sender is in no HA pair, or is the elected replica of its pair.
func (m *Member) applyRequest(index uint64, data []byte, e *entry.Request, done *Applied) (err error) {
	if !m.has.Has(e.Tenant) {
		if done.Outcome, err = m.admit(index, e); err != nil || done.Outcome != nil {
			return err
		}
	}
	if !m.takes(e, done) {
		done.Outcome = m.notTaken(e)
		m.note(e.Tenant, index, done.Outcome)
		return nil
	}
	t := m.tenant(write.QueueOf(e.Tenant, e.Results))
	if index <= t.written {
		return nil // the restored state has it
	}
	done.Request = &Request{Index: index, data: data, entry: *e}
	m.addRequest(t, done.Request)
	return nil
}

func (m *Member) addRequest(t *tenant, r *Request) {
	t.requests = append(t.requests, r)
	t.requestsBytes += int64(len(r.data))
	m.requestsBytes += int64(len(r.data))
}

// dropRequests removes the first n requests of a queue. The store has these requests.
func (m *Member) dropRequests(t *tenant, n int) {
	for _, r := range t.requests[:n] {
		t.requestsBytes -= int64(len(r.data))
		m.requestsBytes -= int64(len(r.data))
	}
	t.requests = append([]*Request(nil), t.requests[n:]...) // a copy, which frees the dropped requests
}

// parseRequest reads a request that was saved while it waited.
func (m *Member) parseRequest(index uint64, data []byte) (*Request, error) {
	var e entry.Entry
	if err := e.Parse(data); err != nil {
		return nil, err
	}
	if e.Kind != entry.KindRequest || e.Group != m.group {
		return nil, fmt.Errorf("entry %d has kind %d and group %d, not kind %d and group %d",
			index, e.Kind, e.Group, entry.KindRequest, m.group)
	}
	return &Request{Index: index, data: data, entry: e.Request}, nil
}

// admit admits the tenant of a request and returns nil, or returns the outcome of the request. If there is no
// place for the tenant, the whole request is refused. A request with metadata alone is dropped: a write would
// make a store, and senders repeat metadata.
func (m *Member) admit(index uint64, e *entry.Request) (*outcome.Outcome, error) {
	r := Request{Index: index, entry: *e}
	if err := r.Decode(); err != nil {
		return nil, err
	}
	defer r.Release()
	o := &r.Write.Outcome
	switch {
	case len(r.decoded.Series) == 0:
		o.Dropped.Series = len(r.decoded.Families)
	case m.has.Admit(e.Tenant, e.MaxTenants):
		return nil, nil
	default:
		r.Write.RefuseAll(outcome.TooManyTenants, m.has.Refusal(e.Tenant, e.MaxTenants))
	}
	m.note(refusedTenants, index, o)
	return o, nil
}

// refusedTenants takes the place of a name in the digests: all tenants that are not admitted share one
// digest, so that senders who invent names cannot make the state grow.
const refusedTenants = ""

// takes reports whether a request is taken: its sender is in no HA pair, or is the elected replica of
// its pair.
func (m *Member) takes(e *entry.Request, done *Applied) (taken bool) {
	p := &e.Pair
	if *p == (entry.Pair{}) {
		return true
	}
	taken, elected := m.pairs.Accept(e.Tenant, p.Cluster, p.Replica, e.Arrival, p.Timeout)
	if elected {
		done.Elected = &Elected{e.Tenant, p.Cluster, p.Replica}
	}
	return taken
}

// notTaken returns the outcome of a request that is not taken: all of it is dropped.
func (m *Member) notTaken(e *entry.Request) *outcome.Outcome {
	r := Request{entry: *e}
	o := new(outcome.Outcome)
	if err := r.Decode(); err != nil {
		panic(err.Error())
	}
	defer r.Release()
	o.Dropped = r.decoded.Counts()
	return o
}

// decoded has the terms for every request of the log. The terms have no rules, since the request's
// proposer has applied them.
var decoded = &write.Terms{Generation: 1, Rules: labelrules.Rules{}}

// maxBody bounds a decompressed body, in bytes. No proposer makes a larger one: see rewrite.
const maxBody = 1 << 30

// Decode reads the body, unless the caller of Node.Write gave it. It may run in any goroutine, but only once.
func (r *Request) Decode() error {
	if r.decoded == nil {
		if err := r.decode(); err != nil {
			r.Release()
			return fmt.Errorf("%w: the body of entry %d: %w", ErrEntry, r.Index, err)
		}
	}
	r.Write = write.Request{
		Request: &r.decoded.Request, Tenant: r.entry.Tenant, Sender: r.entry.Sender, Terms: decoded,
		Arrival: r.entry.Arrival, Window: time.Duration(r.entry.Window) * time.Millisecond,
		MaxSeries: r.entry.MaxSeries, Results: r.entry.Results,
		Pair: write.Pair{Cluster: r.entry.Pair.Cluster, Replica: r.entry.Pair.Replica,
			Timeout: time.Duration(r.entry.Pair.Timeout) * time.Millisecond},
	}
	return nil
}

func (r *Request) decode() (err error) {
	r.decoded = write.NewIncoming()
	body := buf.Get()
	r.decoded.Body = body
	if body.B, err = remotewrite.Decompress(body.B, r.entry.Body, maxBody); err != nil {
		return err
	}
	if r.entry.Form == entry.RemoteWrite2 {
		return r.decoded.DecodeV2(body.B)
	}
	return r.decoded.DecodeV1(body.B)
}

// Body returns the form and the bytes of the body, as they are in the log. They must not change.
func (r *Request) Body() (entry.Form, []byte) { return r.entry.Form, r.entry.Body }

// Release gives back the memory of the body for the next request. The caller must not read Write after that,
// except for its Outcome. Without Release, the garbage collector frees the memory.
func (r *Request) Release() {
	if r.decoded == nil {
		return
	}
	r.decoded.Release()
	r.decoded, r.Write.Request, r.Write.Described = nil, nil, nil
}

// KeepRules asks the leader to put the states of groups of rules into the log. `groups` are of
// entry.AppendRuleGroup. The answer comes once all members will know. The error is ErrOlder, ErrFull or
// replica.ErrNotLeader.
func (n *Node) KeepRules(id ID, tenant string, groups entry.List) {
	switch {
	case !n.Sends():
		n.answer(id, replica.ErrNotLeader)
	case n.state.version.Format < withRules:
		n.answer(id, ErrOlder)
	case len(n.leader.drains.waiting) >= maxDrains:
		n.answer(id, ErrFull)
	default:
		e := entry.Entry{Kind: entry.KindRules, Group: n.state.group, Shape: shape,
			Rules: entry.Rules{Tenant: tenant, Groups: groups}}
		index, err := n.replica.Propose(e.Append(nil))
		if err != nil {
			n.answer(id, refused(err))
			return
		}
		n.leader.drains.waiting = append(n.leader.drains.waiting, drain{id, index})
	}
}

// noRuleSet returns why a rule set is not proposed now: ErrOlder, or what the entry itself would lead to as of now.
func (n *Node) noRuleSet(e *entry.Entry) error {
	switch {
	case e.Kind != entry.KindRuleSet:
		return nil
	case n.state.version.Format < withRuleSets:
		return ErrOlder
	}
	return n.state.sets.Check(&e.RuleSet)
}

// noImport returns why a step of an import is not proposed now: ErrOlder, or what the entry itself would lead to.
func (n *Node) noImport(e *entry.Entry) error {
	switch {
	case e.Kind != entry.KindImport:
		return nil
	case n.state.version.Format < withImports:
		return ErrOlder
	}
	return n.state.imports.Check(&e.Import)
}

// applyImport admits the tenant of an import, since its samples come into a store.
func (m *Member) applyImport(e *entry.Import) error {
	if err := m.imports.Check(e); err != nil {
		return err
	}
	if e.Step == entry.ImportOffered && !m.has.Admit(e.Tenant, e.MaxTenants) {
		return fmt.Errorf("%w: %w", imports.ErrTooMany, m.has.Refusal(e.Tenant, e.MaxTenants))
	}
	return m.imports.Fold(e)
}

// MaxEvents bounds the events of an entry.
const MaxEvents = 1000

// Events are the events of one entry. They wait for the event log.
type Events struct {
	Index uint64
	entry.Events

	data []byte // the whole entry
}

// CheckEvents reports whether events can be proposed. No member can apply events that CheckEvents
// refuses.
func CheckEvents(e *entry.Events) error {
	if err := tenantname.Check(e.Tenant); err != nil {
		return err
	}
	n := 0
	for part := range e.List.All() {
		if n++; n > MaxEvents {
			return fmt.Errorf("an entry has more than %d events", MaxEvents)
		}
		if err := new(event.Event).ParseDated(part); err != nil {
			return fmt.Errorf("event %d of an entry: %w", n, err)
		}
	}
	if n == 0 {
		return errors.New("an entry has no events")
	}
	return nil
}

// applyEvents puts events into the queue of the event log, unless the tenant is not admitted. Events that come
// again, perhaps by way of another node, count once.
func (m *Member) applyEvents(index uint64, data []byte, e *entry.Events, done *Applied) error {
	if err := CheckEvents(e); err != nil {
		return err
	}
	n := 0
	for range e.List.All() {
		n++
	}
	m.deltas.seen.Advance(e.Arrival)
	done.Outcome = new(outcome.Outcome)
	if !m.has.Admit(e.Tenant, e.MaxTenants) {
		done.Outcome.Refuse(outcome.TooManyTenants, outcome.Counts{Samples: n})
		m.note(refusedTenants, index, done.Outcome)
		return nil
	}
	done.Outcome.Written.Samples = n
	m.note(e.Tenant, index, done.Outcome)
	if hash := seen.Hash(e.Hash); !m.deltas.seen.Has(e.Tenant, hash) {
		m.deltas.seen.Add(e.Tenant, hash, done.Outcome)
		m.addEvents(&Events{Index: index, Events: *e, data: data})
	}
	return nil
}

func (m *Member) addEvents(e *Events) {
	m.events = append(m.events, e)
	m.eventsBytes += int64(len(e.data))
}

// workEvents bounds the number of entries with events in one Work.
const workEvents = 64

// takeEvents returns the next events for the event log, unless it has some under way.
func (m *Member) takeEvents() *Work {
	if len(m.events) == 0 || m.eventsWork != nil {
		return nil
	}
	n := min(len(m.events), workEvents)
	m.eventsWork = &Work{Events: m.events[:n:n]}
	return m.eventsWork
}

// doneEvents takes back events that the event log has.
func (m *Member) doneEvents(w *Work) {
	m.eventsWork = nil
	for _, e := range w.Events {
		m.eventsBytes -= int64(len(e.data))
	}
	m.events = append([]*Events(nil), m.events[len(w.Events):]...) // a copy, which frees the stored events
}

// VisibleEvents returns the index up to which the event log has the events of all entries.
func (m *Member) VisibleEvents() uint64 {
	if len(m.events) == 0 {
		return m.applied
	}
	return min(m.events[0].Index-1, m.applied)
}

// appendEvents appends the events that wait to the section of the group.
func (m *Member) appendEvents(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(m.events)))
	for _, e := range m.events {
		dst = binary.AppendUvarint(dst, e.Index)
		dst = fields.AppendBytes(dst, e.data)
	}
	return dst
}

// parseEvents takes what appendEvents appended.
func (m *Member) parseEvents(d *fields.Reader) {
	last := uint64(0)
	for range d.Count() {
		index, data := d.Uvarint(), slices.Clone(d.Bytes())
		var e entry.Entry
		err := e.Parse(data)
		if err != nil || e.Kind != entry.KindEvents || e.Group != m.group || index <= last || index > m.applied ||
			CheckEvents(&e.Events) != nil {
			d.Bad = true
			return
		}
		last = index
		m.addEvents(&Events{Index: index, Events: e.Events, data: data})
	}
}
