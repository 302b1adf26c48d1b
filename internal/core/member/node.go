package member

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

var (
	// ErrLost means that the leader changed before the answer was known. The request or window
	// may count or not. It must be sent again: if it counts already, the new copy is a repeat.
	ErrLost = errors.New("the leader of the group changed before the answer was known")

	// ErrUnknown means that a request or deltas may count or not, and that only their sender tries them
	// again. If they count already, the new copy is a repeat: deltas are recognised by their hash.
	ErrUnknown = errors.New("it may count already")

	// ErrMoved means that the entry was made for other shards than the group has.
	ErrMoved = errors.New("the shards of the group have changed; send the windows again")

	// ErrFull means that too much waits already: for the other members, or for the stores. Nothing was
	// done.
	ErrFull = errors.New("too much already waits for the group's other members or for the stores")

	// ErrBehind is the ErrFull of a leader if the other members still have much of the log to apply.
	ErrBehind = fmt.Errorf("%w: most nodes lag", ErrFull)
)

// fullDisks is the ErrFull of a leader while the disks of too many nodes are nearly full.
type fullDisks struct{ nodes []string }

// Error names the nodes, and the way out.
func (e *fullDisks) Error() string {
	return fmt.Sprintf("the cluster takes no more data, since too many disks are nearly full: less than cluster.min_free "+
		"is left at %s; free space there, or shorten store.retention", strings.Join(e.nodes, " and "))
}

// Is makes it an ErrFull.
func (e *fullDisks) Is(target error) bool { return target == ErrFull }

// Settings of a node. Only a leader uses them: they become part of its entries.
type Settings struct {
	Lateness   time.Duration // how long a tile stays open after its end
	Tiles      tile.Config   // times to live, and the window of stamped gauges
	MaxPending int64         // bytes of tiles that may wait for a tenant's stores
	MaxTenants int           // how many tenants may have stores; 0 for no limit

	Self entry.Node // this node; zero for a group that no other node joins

	// MaxQueued and MaxQueuedSum bound the bytes of requests that wait for stores: of one tenant, and
	// of all tenants. Requests that are not applied yet, at most 32 MiB, do not count.
	MaxQueued, MaxQueuedSum int64

	MaxBehind int64 // bytes of entries that a quorum may not have applied yet

	ReplaceAfter time.Duration // how long a member must be lost before another one may take its node's name
	UpgradeAfter time.Duration // how long all members must know a newer version before the group uses it

	// Names returns the limits for the names of DogStatsD metrics, without Clock, MaxTenants and Claims. If it is nil,
	// series are stored under the names that they have in pushes.
	Names func() entry.Names
}

const (
	// maxPushes bounds the bytes of pushes that wait for the leader's next entry, while the disk or the
	// other members are slow.
	maxPushes = 64 << 20

	// maxReads bounds the barriers that wait for a leader or for stores.
	maxReads = 1 << 14
)

// Node is a whole member. It has the replica, which takes part in the order of the log; the state, which
// results from the entries; and the leader's work while this member leads. Like its parts, it has no
// goroutine, no clock and no I/O. Times are Unix milliseconds of this machine's clock.
//
//	for each event {
//		n.Tick(now), n.Step(now, message), n.Push(now, …), n.Write(now, …), n.Barrier(…),
//		n.Cancel(…), n.Stored(number) or n.Done(work)
//		out, err := n.Take()
//		// send out.Messages; hand out.Writes to the log, out.Work to the stores, out.Answers to callers
//	}
type Node struct {
	settings Settings
	replica  *replica.Replica
	state    *Member
	out      Output
	failed   error

	now        int64  // the time of the last event that came with a time
	term       uint64 // of the last entry in the state
	leadership replica.Leadership
	members    replica.Members
	leader     leader
	rest       rest // after a yield
	demoted    bool // see Demote
	leaderless int  // ticks for which this member has known no leader

	held       []replica.Committed         // entries that are not applied yet, since too much waits: see overfull
	windows    map[uint64][]push           // pushes that wait for an entry with windows, by its index
	requests   map[uint64]asked            // callers that wait for a request's outcome, by its index
	storesFail bool                        // see StoresFail
	reads      map[ID]*read                // barriers that have not ended
	asked      map[uint64]*read            // barriers whose index is not known yet, by the replica's number
	unstored   map[string]map[uint64]*read // barriers whose index is known, by tenant and the replica's number
}

// ID is a caller's own name for a push, a write or a barrier. The answer has it.
type ID uint64

// Answer ends a push, a write or a barrier.
type Answer struct {
	ID      ID
	Err     error
	Outcome *outcome.Outcome // of a request
}

// Output is what a node has for its caller.
type Output struct {
	Messages   []replica.Message // the caller adds the time
	Writes     []*replica.Write  // to be stored in this order
	Work       []*Work           // for the stores; Done takes it back
	Answers    []Answer
	Applied    []Applied // for the books
	Leadership replica.Leadership
	Members    *replica.Members
	YieldsTo   uint64 // the member that this leader asks to lead, since its own entries are stuck; 0 for none
}

// read is a barrier of a tenant.
type read struct {
	id     ID
	tenant string
	events bool   // the barrier waits for the event log alone
	number uint64 // the barrier's number in the replica
	index  uint64 // the index that the tenant's stores must have; 0 if it is not known yet
}

// NewNode returns the node of a member. The replica and the state must have the same last entry.
func NewNode(r *replica.Replica, state *Member, s Settings) *Node {
	return &Node{
		settings: s, replica: r, state: state,
		windows: map[uint64][]push{}, requests: map[uint64]asked{},
		reads: map[ID]*read{}, asked: map[uint64]*read{}, unstored: map[string]map[uint64]*read{},
	}
}

// State returns the member's state, for saving sections and for queries.
func (n *Node) State() *Member { return n.state }

// Committed returns the index up to which entries are known to be committed.
func (n *Node) Committed() uint64 { return n.replica.Committed() }

// Progress returns how far the log of each member reaches, if this member leads.
func (n *Node) Progress() []replica.Progress { return n.replica.Progress() }

// Tick tells the node the time. Call it every replica.TickEvery. The leader proposes to close the tiles that
// are due.
func (n *Node) Tick(now int64) {
	n.tell(now)
	if n.leaderless++; n.leadership.Leader != 0 {
		n.leaderless = 0
	}
	n.replica.Candidate(!n.leader.clocks.wrong() && len(n.held) == 0 && !n.demoted && !n.rests())
	n.replica.Tick()
	n.rest.tick()
	n.lead()
}

// tell notes what our clock shows.
func (n *Node) tell(now int64) {
	leap := n.leader.clocks.tell(now)
	if n.now = now; n.leader.since != 0 {
		// The time of the election is compared with times in the log. If our clock leaps ahead, it may
		// be wrong from now on, but the times in the log stay right. So only a leap back moves the
		// election. An election that seems too early only makes the leader wait longer.
		n.leader.since += min(leap, 0)
	}
}

// Message goes from one member to another.
type Message struct {
	replica.Message
	Sent    int64  // Unix ms by the sender's clock
	Applied uint64 // the last entry that the sender has applied

	Knows entry.Version // the newest version that the sender's program knows
	Short bool          // the sender's disk is nearly full
}

// Step takes a message from another member.
func (n *Node) Step(now int64, m Message) error {
	n.tell(now)
	n.leader.clocks.heard(m.From, m.Sent)
	n.leader.backlog.Heard(m.From, m.Applied)
	n.leader.versions.heard(m.From, m.Knows)
	n.leader.short.Heard(m.From, m.Short)
	if m.Campaigns() && !n.leader.clocks.trusts(m.From) && !mutant.WrongClock {
		// Followers hear the leader alone. So the sender knew only two clocks, and cannot tell that its own is wrong.
		return nil
	}
	return n.replica.Step(m.Message)
}

// Push puts a push of a collector into the log. The bytes are encoded by entry.AppendPush, the caller
// has checked them, and they must never change afterwards. The answer has a *batch.FullError for batches that are
// refused because too much waits for their tenant's stores.
//
// Batches of different tenants must have different producers. If the batches of one tenant were
// refused, and the answer was lost, the push may come again when there is room. By then a shard may
// have a later batch of the same producer, and would treat the refused batch as a repeat.
func (n *Node) Push(now int64, id ID, bytes []byte) {
	n.tell(now)
	if !n.leadership.Leads {
		n.answer(id, replica.ErrNotLeader)
		return
	}
	if n.leader.queued+int64(len(bytes)) > maxPushes {
		n.answer(id, fmt.Errorf("%w: %d bytes of pushes wait for the log, and %d are allowed",
			ErrFull, n.leader.queued, maxPushes))
		return
	}
	if err := cmp.Or(n.lagging(), n.nearlyFull()); err != nil {
		n.answer(id, err)
		return
	}
	n.leader.queued += int64(len(bytes))
	n.leader.queue = append(n.leader.queue, push{id: id, bytes: bytes})
	n.proposeWindows()
}

// Write proposes an entry of another kind: a request, deltas, events, a rule set or an import. The answer has its
// outcome. The leader sets the entry's Arrival by its own clock, since the clock of the node where the request came in
// may be wrong.
func (n *Node) Write(now int64, id ID, e *entry.Entry) {
	n.tell(now)
	if !n.leadership.Leads {
		n.answer(id, replica.ErrNotLeader)
		return
	}
	if err := cmp.Or(n.noRuleSet(e), n.noImport(e), n.timeless(e), n.room(e), n.lagging(), n.nearlyFull()); err != nil {
		n.answer(id, err)
		return
	}
	if e.Kind == entry.KindDeltas {
		n.beginEmpty()
	}
	e.Group, e.Shape = n.state.group, shape
	e.Request.Results = e.Request.Results && n.state.version.Format >= withRuleSets
	arrival := max(0, n.leader.clocks.arrival())
	e.Request.Arrival, e.Events.Arrival = arrival, arrival
	e.Request.MaxTenants, e.Events.MaxTenants = n.settings.MaxTenants, n.settings.MaxTenants
	e.Import.MaxTenants = n.settings.MaxTenants
	n.leader.writes = append(n.leader.writes, proposal{asked{id, e.Request.Offer}, e.Append(make([]byte, 0, e.Size()))})
}

// Writing reports whether this leader has taken entries from Write that it has not applied yet.
func (n *Node) Writing() bool {
	return len(n.leader.writes) > 0 || n.leader.writing > n.state.Index()
}

// timeless returns why an entry that needs the time of its arrival is not proposed now: of two clocks nobody
// can tell which one is wrong. With a slow clock, samples of the present would be refused as too far ahead.
// With a fast clock, samples of the future would be stored, and samples of the present would be too old from
// then on.
func (n *Node) timeless(e *entry.Entry) error {
	apart := n.leader.clocks.apart()
	if apart == 0 || e.Kind != entry.KindRequest && e.Kind != entry.KindDeltas && e.Kind != entry.KindEvents {
		return nil
	}
	return fmt.Errorf("the clocks of the only two nodes that hear each other are %v apart, and either may be wrong; "+
		"set the wrong clock, or start a third node", (time.Duration(apart) * time.Millisecond).Round(time.Second))
}

// room returns why an entry is not proposed now: too much of its tenant, or of all tenants, waits for
// stores. The error is ErrFull.
func (n *Node) room(e *entry.Entry) error {
	tenant := e.Request.Tenant
	switch w := n.state.Waiting(write.QueueOf(tenant, e.Request.Results)); {
	case e.Kind == entry.KindDeltas && w.Bytes >= n.settings.MaxPending:
		return fmt.Errorf("%w: %d bytes of tiles of tenant %.80q wait for its stores, and %d are allowed", ErrFull,
			w.Bytes, tenant, n.settings.MaxPending)
	case e.Kind == entry.KindRequest && w.RequestsBytes >= n.settings.MaxQueued:
		return fmt.Errorf("%w: %d bytes of requests of tenant %.80q wait for its store, and %d are allowed", ErrFull,
			w.RequestsBytes, tenant, n.settings.MaxQueued)
	case e.Kind == entry.KindRequest && n.state.requestsBytes >= n.settings.MaxQueuedSum:
		return fmt.Errorf("%w: %d bytes of requests of all tenants wait for their stores, and %d are allowed", ErrFull,
			n.state.requestsBytes, n.settings.MaxQueuedSum)
	case e.Kind == entry.KindEvents && n.state.eventsBytes >= n.settings.MaxQueued:
		return fmt.Errorf("%w: %d bytes of events wait for the event log, and %d are allowed", ErrFull,
			n.state.eventsBytes, n.settings.MaxQueued)
	}
	return nil
}

// refused returns the error for a proposal that the replica did not take.
func refused(err error) error {
	if errors.Is(err, replica.ErrFull) {
		return ErrFull
	}
	return err
}

// Barrier begins a barrier. Its answer comes when the tenant's stores and the open tiles on this
// member have everything that any member acknowledged before the call.
func (n *Node) Barrier(id ID, tenant string) { n.barrier(id, tenant, false) }

// EventsBarrier is Barrier for the event log instead of the stores and the open tiles.
func (n *Node) EventsBarrier(id ID, tenant string) { n.barrier(id, tenant, true) }

func (n *Node) barrier(id ID, tenant string, events bool) {
	if len(n.reads) >= maxReads {
		n.answer(id, fmt.Errorf("%w: %d reads wait for a leader or for stores", ErrFull, len(n.reads)))
		return
	}
	number, err := n.replica.Barrier()
	if err != nil {
		n.answer(id, refused(err))
		return
	}
	r := &read{id: id, tenant: tenant, events: events, number: number}
	n.reads[id], n.asked[number] = r, r
}

// Cancel ends a barrier without an answer, since its caller has given up. It does nothing if the barrier
// is answered already.
func (n *Node) Cancel(id ID) {
	r := n.reads[id]
	if r == nil {
		return
	}
	if r.index == 0 {
		n.replica.Cancel(r.number)
	}
	n.forget(r)
}

// forget removes a barrier that has ended.
func (n *Node) forget(r *read) {
	delete(n.reads, r.id)
	delete(n.asked, r.number)
	delete(n.unstored[r.tenant], r.number)
	if len(n.unstored[r.tenant]) == 0 {
		delete(n.unstored, r.tenant)
	}
}

// Transfer asks another member to lead.
func (n *Node) Transfer(to uint64) error { return n.replica.Transfer(to) }

// Members asks for a change of the members: see replica.Group.
func (n *Node) Members(voters, learners []uint64) error { return n.replica.Members(voters, learners) }

// Short says whether the disk of this member is nearly full.
func (n *Node) Short(is bool) { n.leader.short.Heard(n.settings.Self.Member, is) }

// Demote sets whether this member must not lead, since some of its data are damaged. If it leads, the next tick hands
// over. It still votes and applies.
func (n *Node) Demote(is bool) { n.demoted = is }

// Stored says that a Write is stored, and so are all Writes before it.
func (n *Node) Stored(number uint64) { n.replica.Stored(number) }

// Done takes back work that the stores have: see Member.Done.
func (n *Node) Done(w *Work) (note []byte) {
	note = n.state.Done(w)
	for _, r := range w.Requests {
		if a, waits := n.requests[r.Index]; waits {
			delete(n.requests, r.Index)
			n.out.Answers = append(n.out.Answers, Answer{ID: a.id, Outcome: &r.Write.Outcome})
		}
	}
	if w.Events == nil {
		n.releaseReads(w.Tenant)
		return note
	}
	for _, tenant := range slices.Sorted(maps.Keys(n.unstored)) {
		n.releaseReads(tenant)
	}
	return note
}

// Take returns what has come up since the last Take. The error is permanent: replica.ErrDamaged, or
// ErrEntry if the member met an entry that it cannot apply.
func (n *Node) Take() (Output, error) {
	n.proposeWrites()
	for n.failed == nil && n.step() {
	}
	if n.failed != nil {
		return Output{}, n.failed
	}
	n.out.Work = n.state.Work()
	n.out.Leadership = n.leadership
	out := n.out
	n.out = Output{}
	return out, nil
}

// step takes the replica's output, and reports whether this may have led to more output.
func (n *Node) step() (more bool) {
	out, err := n.replica.Take()
	if err != nil {
		n.failed = err
		return false
	}
	n.out.Messages = append(n.out.Messages, out.Messages...)
	if out.Write != nil {
		n.out.Writes = append(n.out.Writes, out.Write)
	}
	if out.Members != nil {
		n.out.Members, n.members = out.Members, *out.Members
	}
	applied := n.applyAll(out.Apply)
	if n.failed != nil {
		return false
	}
	for _, index := range out.Lost {
		n.lost(index)
	}
	n.follow(out.Leadership)
	n.proposeWindows()
	n.waitForStores(out.Reads)
	return applied || len(out.Lost) > 0 || len(out.Messages) > 0 || out.Write != nil
}

// waitForStores notes the indexes that barriers wait for.
func (n *Node) waitForStores(all []replica.Read) {
	var tenants []string
	for _, x := range all {
		r := n.asked[x.Barrier]
		if r == nil {
			continue // it was cancelled
		}
		delete(n.asked, x.Barrier)
		r.index = x.Index
		if n.unstored[r.tenant] == nil {
			n.unstored[r.tenant] = map[uint64]*read{}
		}
		n.unstored[r.tenant][r.number] = r
		if !slices.Contains(tenants, r.tenant) {
			tenants = append(tenants, r.tenant)
		}
	}
	for _, tenant := range tenants {
		n.releaseReads(tenant)
	}
}

// Held reports whether this member applies no entries because too much waits for stores, and the
// tenant of these stores.
func (n *Node) Held() (tenant string, held bool) {
	if len(n.held) == 0 {
		return "", false
	}
	return n.overfull(), true
}

// overfull returns a tenant for whose stores twice as much waits as a leader allows, or "". A leader refuses
// more for the tenant when its own stores do not keep up. The stores of another member may hang while the
// leader's do not. Then that member applies nothing more until there is room: it lags, its memory is bounded,
// and the replica hands out no more than 16 MiB of entries meanwhile. It does not campaign, because a leader
// that applies nothing stops the group.
func (n *Node) overfull() string {
	s, most := n.state, &n.settings
	if n.leadership.Leads ||
		s.requestsBytes+s.tilesBytes+s.eventsBytes < 2*min(most.MaxPending, most.MaxQueued, most.MaxQueuedSum) {
		return ""
	}
	if s.eventsBytes >= 2*most.MaxQueued {
		return s.events[0].Tenant
	}
	return s.overfull(2*most.MaxPending, 2*most.MaxQueued, 2*most.MaxQueuedSum)
}

// applyAll applies entries in order, if there is room for what they bring, and reports whether it applied any.
func (n *Node) applyAll(committed []replica.Committed) (applied bool) {
	n.held = append(n.held, committed...)
	for len(n.held) > 0 && n.overfull() == "" {
		if n.failed = n.apply(n.held[0]); n.failed != nil {
			return applied
		}
		n.held, applied = n.held[1:], true
	}
	if len(n.held) == 0 {
		n.held = nil // frees the entries
	}
	return applied
}

// apply applies a committed entry, and answers its proposer if this node proposed it.
func (n *Node) apply(c replica.Committed) error {
	done, err := n.state.Apply(c.Index, c.Data)
	if err != nil {
		return err
	}
	n.replica.Applied(c.Index)
	n.out.Applied = append(n.out.Applied, done)
	n.term = c.Term
	n.leader.applied(c.Index)
	n.leader.backlog.Applied(c.Index, len(c.Data), n.settings.MaxBehind)
	if !c.Own && !mutant.OldTerm {
		return nil
	}
	for _, p := range n.windows[c.Index] {
		n.answer(p.id, cmp.Or(moved(done), p.refused))
	}
	delete(n.windows, c.Index)
	switch a, waits := n.requests[c.Index]; {
	case !waits:
	case done.Request == nil:
		delete(n.requests, c.Index)
		n.out.Answers = append(n.out.Answers, Answer{ID: a.id, Err: cmp.Or(moved(done), done.Refused), Outcome: done.Outcome})
	case a.offer != nil && n.state.requestsBytes <= maxDecoded:
		done.Request.decoded = a.offer.Request
	}
	return nil
}

func moved(done Applied) error {
	if done.Moved {
		return ErrMoved
	}
	return nil
}

// lost is called for an entry that may never be applied. It answers the callers that wait for the
// entry.
func (n *Node) lost(index uint64) {
	if mutant.OldTerm {
		return
	}
	for _, p := range n.windows[index] {
		n.answer(p.id, ErrLost)
	}
	delete(n.windows, index)
	if a, waits := n.requests[index]; waits {
		delete(n.requests, index)
		n.answer(a.id, ErrLost)
	}
}

// follow notes who leads. A new leadership ends the queue, which belongs to one term.
func (n *Node) follow(l replica.Leadership) {
	if l == n.leadership {
		return
	}
	pushes, writes, joins := n.leader.reset()
	for _, p := range pushes {
		n.answer(p.id, ErrLost)
	}
	for _, w := range writes {
		n.answer(w.id, replica.ErrNotLeader)
	}
	for _, j := range joins {
		n.answer(j.id, replica.ErrNotLeader)
	}
	n.leadership = l
}

// releaseReads answers those barriers of a tenant whose indexes have become visible.
func (n *Node) releaseReads(tenant string) {
	visible, events := n.state.Visible(tenant), n.state.VisibleEvents()
	var ended []*read
	for _, r := range n.unstored[tenant] {
		if r.events && r.index <= events || !r.events && r.index <= visible {
			ended = append(ended, r)
		}
	}
	slices.SortFunc(ended, func(x, y *read) int { return cmp.Compare(x.number, y.number) })
	for _, r := range ended {
		n.forget(r)
		n.answer(r.id, nil)
	}
}

func (n *Node) answer(id ID, err error) {
	n.out.Answers = append(n.out.Answers, Answer{ID: id, Err: err})
}

// PushOf returns the push of one window's batches, in the form of entry.AppendPush. The error is
// batch.ErrRefused.
func PushOf(batches []batch.Batch) ([]byte, error) {
	size := 64
	for _, b := range batches {
		size += len(b.Bytes) + 10
	}
	h, err := batch.ParseHeader(batches[0].Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; upgrade the stores before the collectors", batch.ErrRefused, err)
	}
	list := entry.List(entry.AppendPush(make([]byte, 0, size), &entry.Push{
		Producer: h.Producer, Incarnation: h.Incarnation, Sequence: h.Sequence, Shape: shape,
	}))
	for _, b := range batches { // the batches are the last field
		list = list.Append(b.Bytes)
	}
	bytes := []byte(list)
	if len(bytes) > entry.MaxSize/2 {
		return nil, fmt.Errorf("%w: the push has %d bytes, and at most %d bytes are allowed",
			batch.ErrRefused, len(bytes), entry.MaxSize/2)
	}
	return bytes, CheckPush(bytes)
}

// LeaveOf returns the last push of a producer under its incarnation: see entry.Push. `last` is the push
// before it, which is acknowledged.
func LeaveOf(last entry.Push) []byte {
	return entry.AppendPush(nil, &entry.Push{Producer: last.Producer, Incarnation: last.Incarnation,
		Sequence: last.Sequence + 1, Stream: last.Stream, Shape: last.Shape, Leaves: true})
}

// CheckPush reports whether a push can be proposed.
func CheckPush(push []byte) error {
	p, err := entry.ParsePush(push)
	if err != nil {
		return fmt.Errorf("%w: %w", batch.ErrRefused, err)
	}
	for b := range p.Batches.All() {
		if _, err := batch.ParseHeader(b); err != nil {
			return fmt.Errorf("%w: %w; upgrade the stores before the collectors", batch.ErrRefused, err)
		}
	}
	return nil
}
