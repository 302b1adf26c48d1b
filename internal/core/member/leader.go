package member

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/backlog"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/naming"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/space"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// leader is the state that a member needs while it leads. All fields except the first four belong
// to one term.
type leader struct {
	clocks   clocks
	backlog  backlog.Backlog
	versions versions
	short    space.Short

	since   int64           // when it was elected, or earlier if our clock has leapt; 0 if it is not known yet
	ticks   int64           // number of ticks since then, which a leap of the clock does not change
	heard   map[uint64]bool // senders whose windows have come since the election
	queue   []push          // not proposed yet
	queued  int64           // bytes of these pushes
	writes  []proposal      // not proposed yet
	writing uint64          // index of the last entry of writes that was proposed, or 0
	flying  uint64          // index of the windows under way, or 0
	closes  uint64          // index of the last boundary under way, or 0
	begun   int64           // when beginEmpty last looked
	joins   []join          // nodes that wait to become learners
	removes []join          // nodes that are to leave the group
	early   []join          // such nodes, of which a new leader does not know yet whether the others can spare them
	names   uint64          // index of the last entry under way that names a node
	notes   uint64          // index of the last entry under way that says what is forwarded
	claims  uint64          // index of the last entry under way that claims names for which pushes wait
	raises  uint64          // index of the last entry under way that raises the version
	stall   stall
	drains  drains

	raisesTo entry.Version // the newest version that all members know; raisesAt is the tick since when
	raisesAt int64

	replaced map[string]int64 // by node, the tick until which another member may take its name
}

// push is a push that waits to be proposed.
type push struct {
	id      ID
	bytes   []byte
	named   bool  // its series have the names under which they are stored
	refused error // the *batch.FullError for the batches that were taken out of the field bytes
}

// reset ends a term, and returns what was not proposed and the nodes that wait to join, to leave or for a drain.
func (l *leader) reset() ([]push, []proposal, []join) {
	queue, writes, joins := l.queue, l.writes, slices.Concat(l.joins, l.removes, l.early)
	for _, d := range l.drains.waiting {
		joins = append(joins, join{id: d.id})
	}
	*l = leader{clocks: l.clocks, backlog: l.backlog, versions: l.versions, short: l.short, heard: map[uint64]bool{}}
	return queue, writes, joins
}

// applied is called when an entry is applied.
func (l *leader) applied(index uint64) {
	if index >= l.flying {
		l.flying = 0
	}
	if index >= l.closes {
		l.closes = 0
	}
}

// lead does what a leader has to do now.
func (n *Node) lead() {
	if !n.leadership.Leads {
		return
	}
	if n.leader.since == 0 {
		n.leader.since = n.now
	}
	n.leader.ticks++
	if n.leader.clocks.wrong() || n.demoted {
		n.handOver()
	}
	n.yieldIfStuck()
	n.proposeWindows()
	n.proposeBoundaries()
	n.changeNodes()
	n.tendDrains()
	n.raiseVersion()
}

// handOver asks the voter that was heard last to lead.
func (n *Node) handOver() {
	to, last := uint64(0), int64(math.MinInt64)
	for _, id := range n.members.Voters {
		if x, heard := n.leader.clocks.others[id]; heard && x.last > last {
			to, last = id, x.last
		}
	}
	if to != 0 {
		_ = n.replica.Transfer(to) // the next tick asks again
	}
}

// stall finds out whether a leader is stuck: its heartbeats pass, but its entries do not get through its
// slow link or onto its slow disk.
type stall struct {
	at    int
	ends  [stallTicks]uint64 // where the log ended at each of the last ticks; 0 before the election
	asked []uint64           // members that were asked to lead, each once
	wait  int                // ticks until the next member is asked
	began bool               // one was asked
}

const (
	// stallTicks is how old, in ticks of replica.TickEvery, an entry may become before the leader has applied it: 2 s.
	stallTicks = 20

	// restTicks is how long, in ticks, a member that has yielded does not yield again: 5 s.
	restTicks = 50

	// maxRestTicks is the longest rest: 60 s. A member that does not yield for as long after a rest begins anew.
	maxRestTicks = 600
)

// rest is the time after a yield in which a member does not yield again. Each further yield doubles it. So if all
// members are slow, elections cost little, and a member that is stuck now and then yields each time.
type rest struct{ left, length, calm int } // ticks

func (r *rest) begin() {
	r.length = min(max(2*r.length, restTicks), maxRestTicks)
	r.left, r.calm = r.length, 0
}

func (r *rest) tick() {
	if r.left > 0 {
		r.left--
	} else if r.calm++; r.calm >= maxRestTicks {
		r.length = 0
	}
}

// tick notes where the log ends, and returns where it ended 2 s ago.
func (s *stall) tick(end uint64) (before uint64) {
	before = s.ends[s.at]
	s.ends[s.at] = end
	s.at = (s.at + 1) % stallTicks
	return before
}

// StoresFail says whether a store of this member refuses requests. A leader then asks another member to lead, whose
// stores may take them, as if its log were stuck.
func (n *Node) StoresFail(fail bool) { n.storesFail = fail }

// yieldIfStuck asks another member to lead if this leader is stuck. After 2 s it asks the next member,
// since the first may be stuck, too, or the message may be lost.
func (n *Node) yieldIfStuck() {
	s := &n.leader.stall
	s.wait = max(0, s.wait-1)
	stuck := s.tick(n.replica.Last()) > n.state.Index() || n.storesFail
	if !stuck || s.wait > 0 || !s.began && n.rest.left > 0 {
		return
	}
	to := n.successor()
	if to == 0 {
		s.asked = nil // all were asked
		to = n.successor()
	}
	if to != 0 {
		if !s.began {
			n.rest.begin()
		}
		s.asked, s.began, s.wait = append(s.asked, to), true, stallTicks
		n.out.YieldsTo = to
		_ = n.replica.Yield(to) // the error says that this member no longer leads
	}
}

// successor returns a voter that was not asked yet, that answers, and whose clock is right: the one whose log
// has most of this leader's entries. It returns 0 if there is none.
func (n *Node) successor() (to uint64) {
	match := uint64(0)
	for _, p := range n.replica.Progress() {
		if p.Active && p.Match > match && slices.Contains(n.members.Voters, p.Member) &&
			!slices.Contains(n.leader.stall.asked, p.Member) && n.leader.clocks.trusts(p.Member) {
			to, match = p.Member, p.Match
		}
	}
	return to
}

// asked is a caller that waits for a request's outcome, and the request itself if the caller gave it.
type asked struct {
	id    ID
	offer *write.Offer
}

// proposal is an entry that the next Take proposes.
type proposal struct {
	asked
	data []byte
}

// proposeWrites proposes the entries of all calls of Write since the last Take at once, so that they share
// messages and a write to the log.
func (n *Node) proposeWrites() {
	writes := n.leader.writes
	n.leader.writes = nil
	for len(writes) > 0 {
		var all [][]byte
		size := 0
		for len(all) < len(writes) && (len(all) == 0 || size+len(writes[len(all)].data) <= entry.TargetSize) {
			size += len(writes[len(all)].data)
			all = append(all, writes[len(all)].data)
		}
		first, err := n.replica.ProposeAll(all)
		for i, w := range writes[:len(all)] {
			if err != nil {
				n.answer(w.id, refused(err))
				continue
			}
			n.leader.writing = first + uint64(i)
			n.requests[n.leader.writing] = w.asked
		}
		writes = writes[len(all):]
	}
}

// proposeWindows makes one entry of the pushes that came while the last entry was under way: group
// commit.
func (n *Node) proposeWindows() {
	l := &n.leader
	if !n.leadership.Leads || len(l.queue) == 0 || !n.current() && !mutant.BesideFlight || n.behind() {
		return
	}
	took, size := 0, n.nameQueue()
	if size == 0 {
		return
	}
	e := entry.Entry{Kind: entry.KindWindows, Group: n.state.group, Shape: shape}
	e.Windows.Clock = max(0, n.leader.clocks.right())
	e.Windows.MaxTenants = n.settings.MaxTenants
	e.Windows.Pushes = make(entry.List, 0, size)
	var begin entry.Shards
	for i := range l.queue {
		p := &l.queue[i]
		if took > 0 && (len(e.Windows.Pushes)+len(p.bytes) > entry.TargetSize || !p.named) {
			break
		}
		l.queued -= int64(len(p.bytes))
		n.admit(p)
		e.Windows.Pushes = e.Windows.Pushes.Append(p.bytes)
		n.note(p.bytes, &begin)
		took++
	}
	n.beginShards(&begin)
	index, err := n.replica.Propose(e.Append(make([]byte, 0, size+64)))
	pushes := l.queue[:took:took]
	l.queue = slices.Clone(l.queue[took:])
	if err != nil {
		for _, p := range pushes {
			n.answer(p.id, refused(err))
		}
		return
	}
	l.flying = index
	n.windows[index] = pushes
	for _, p := range pushes { // only now: Propose fails while the leader hands over
		if p, err := entry.ParsePush(p.bytes); err == nil && !p.Leaves { // its next incarnation may have begun
			l.heard[p.Producer] = true
		}
	}
}

// nameQueue gives the series of the first pushes the names under which they are stored, and returns the
// size of these pushes in bytes. It returns 0 if they must wait until names that are unknown yet are
// claimed. All windows that were ever proposed are applied, so the owners in the state are those that
// this leader's next entry will find.
func (n *Node) nameQueue() (size int) {
	l := &n.leader
	if l.claims > n.state.Index() {
		return 0
	}
	e := entry.Entry{Kind: entry.KindNames, Group: n.state.group, Shape: shape}
	x := naming.Finder{Names: n.state.names, Fits: func(tenant string) bool {
		return n.state.has.Fits(tenant, n.settings.MaxTenants)
	}}
	if n.settings.Names != nil {
		e.Names = n.settings.Names()
		e.Names.Clock, e.Names.MaxTenants = max(0, l.clocks.right()), n.settings.MaxTenants
		x.Terms = termsOf(&e.Names)
	}
	var all, rename []*push
	for i := range l.queue {
		p := &l.queue[i]
		if size > 0 && size+len(p.bytes) > entry.TargetSize {
			break
		}
		size += len(p.bytes) + 10
		all = append(all, p)
		if !p.named && n.settings.Names != nil && x.Find(p.bytes) {
			rename = append(rename, p)
		}
	}
	if claims, unknown := x.Claims(); len(claims) > 0 {
		e.Names.Claims = claims
		index, err := n.replica.Propose(e.Append(nil))
		if unknown {
			if err == nil {
				l.claims = index
			}
			return 0 // the next tick tries again if there was no room
		}
	}
	for _, p := range rename {
		p.bytes = x.Rename(p.bytes)
	}
	for _, p := range all {
		p.named = true
	}
	return size
}

// current is true if the state has all windows that were ever proposed, here or by an earlier
// leader: our own last windows and the first entry of our term are applied. Without this check, a
// window under way might be refused when it comes again, although it counts.
func (n *Node) current() bool { return n.leader.flying == 0 && n.term == n.leadership.Term }

// behind is true if a window of the present might lie beyond all open tiles of its shard, and so would join
// a tile of another time: the shard has many tiles to close, or nobody can tell what time it is. Windows
// wait meanwhile.
func (n *Node) behind() bool {
	if n.leader.clocks.apart() != 0 {
		return true // a shard that begins now might begin in the past
	}
	oldest := n.leader.clocks.latest() - (tile.MaxAhead-1)*tileMillis
	for number := range uint16(series.Shards) {
		if s := n.state.shards.Of(number); s != nil && s.Closed() < oldest && s.Len() > 0 {
			return true
		}
	}
	return false
}

// admit removes batches from a push if too much data of their tenant already waits for its stores.
// Repeated batches stay, since their samples were counted before.
func (n *Node) admit(one *push) {
	full := n.state.full(n.settings.MaxPending)
	p, err := entry.ParsePush(one.bytes)
	if len(full) == 0 || err != nil {
		return
	}
	var kept entry.List
	refused := &batch.FullError{Samples: map[string]uint64{}}
	for b := range p.Batches.All() {
		h, err := batch.ParseHeader(b)
		s := n.state.shards.Of(h.Shard)
		if err != nil || !slices.Contains(full, string(h.Tenant)) || s != nil && s.Knows(&h) {
			kept = kept.Append(b)
			continue
		}
		refused.Samples[string(h.Tenant)] += batch.Samples(b)
	}
	if len(refused.Samples) > 0 {
		p.Batches = kept
		one.bytes, one.refused = entry.AppendPush(nil, &p), refused
	}
}

var (
	// ErrKnown means that a node wants to join, but its name already belongs to another member: the node's
	// directory was emptied, or two nodes have the same name.
	ErrKnown = errors.New("the cluster knows another directory of this node")

	// ErrUnknownNode means that no node of this name ever joined.
	ErrUnknownNode = errors.New("the cluster knows no such node")

	// ErrAnswers means that a node is to be replaced that still takes part.
	ErrAnswers = errors.New("the node still answers")

	// ErrTooFew means that a node cannot be removed, since too few of the others answer.
	ErrTooFew = errors.New("too few of the other nodes answer")

	// ErrOlder means that some node does not know how nodes are replaced and removed.
	ErrOlder = errors.New("some node runs an older version, or ran it a few minutes ago")
)

const (
	// MaxVoters is how many members vote at most. With a fourth voter, each write would wait for three members, and
	// still no more than one of them might be lost. Further members are spares.
	MaxVoters = 3

	// caughtUp is how many entries a learner's log may lack when the learner becomes a voter. Under load it
	// always lacks the newest.
	caughtUp = 100

	// maxJoins bounds the nodes that wait to become learners, or to leave.
	maxJoins = 64

	// replaceTicks is how long after Replace another member may take a node's name: 10 min.
	replaceTicks = 6000
)

// join is a node that waits to become a learner, to have its name, or to leave.
type join struct {
	id ID
	entry.Node
	claims bool // only its name
}

// Join asks the group to take in the member of a node. The answer comes once the member is a learner or
// a voter. A learner becomes a voter by itself when its log has almost all entries and fewer than MaxVoters vote. The
// error is ErrKnown if the node's name belongs to another member that must not be replaced: see replaceable.
func (n *Node) Join(now int64, id ID, node entry.Node) {
	n.tell(now)
	n.join(join{id: id, Node: node})
}

// Claim lets the member of a node have the node's name, if another member has it. Join follows once the node is filled,
// which may take hours: until then, neither the time since Replace nor another leader matters. A free name stays free.
// The error is one of Join's.
func (n *Node) Claim(now int64, id ID, node entry.Node) {
	n.tell(now)
	if member, _ := n.state.nodes.Member(node.Name); member == 0 && n.leadership.Leads {
		n.answer(id, nil)
		return
	}
	n.join(join{id, node, true})
}

func (n *Node) join(j join) {
	switch {
	case !n.leadership.Leads:
		n.answer(j.id, replica.ErrNotLeader)
	case len(n.leader.joins) >= maxJoins:
		n.answer(j.id, fmt.Errorf("%w: %d nodes wait to join", ErrFull, maxJoins))
	default:
		n.leader.joins = append(n.leader.joins, j)
	}
}

// Replace lets another member take a node's name for the next 10 minutes, while this member leads: the node's
// directory is lost. The error is ErrUnknownNode, ErrAnswers or ErrOlder.
func (n *Node) Replace(now int64, id ID, node string) {
	n.tell(now)
	member, known := n.state.nodes.Member(node)
	switch {
	case !n.leadership.Leads:
		n.answer(id, replica.ErrNotLeader)
	case n.state.version.Format < withReplacements:
		n.answer(id, ErrOlder)
	case !known:
		n.answer(id, ErrUnknownNode)
	case n.answers(member):
		n.answer(id, ErrAnswers)
	default:
		if n.leader.replaced == nil {
			n.leader.replaced = map[string]int64{}
		}
		n.leader.replaced[node] = n.leader.ticks + replaceTicks
		n.answer(id, nil)
	}
}

// Remove makes a node leave the group for good. The answer comes once its member is no member any more, and its
// name is free for another directory. The error is ErrUnknownNode, ErrTooFew or ErrOlder. It is
// replica.ErrNotLeader if the node itself leads: it then lets another one lead, which can remove it.
func (n *Node) Remove(now int64, id ID, node string) {
	n.tell(now)
	n.remove(id, node)
}

func (n *Node) remove(id ID, node string) {
	member, known := n.state.nodes.Member(node)
	switch {
	case !n.leadership.Leads:
		n.answer(id, replica.ErrNotLeader)
	case n.state.version.Format < withReplacements:
		n.answer(id, ErrOlder)
	case !known:
		n.answer(id, ErrUnknownNode)
	case member == 0:
		n.answer(id, nil) // it is removed already
	case len(n.leader.removes)+len(n.leader.early) >= maxJoins:
		n.answer(id, fmt.Errorf("%w: %d nodes wait to leave", ErrFull, maxJoins))
	case !n.canSpare(member) && n.leader.ticks*replica.TickEvery.Milliseconds() < fresh:
		// A follower hears its leader alone, so a new leader has not heard all others yet. The next tick asks again.
		n.leader.early = append(n.leader.early, join{id: id, Node: entry.Node{Name: node}})
	case !n.canSpare(member):
		n.answer(id, ErrTooFew)
	case member == n.settings.Self.Member:
		n.handOver()
		n.answer(id, replica.ErrNotLeader)
	default:
		n.leader.removes = append(n.leader.removes, join{id: id, Node: entry.Node{Name: node, Member: member}})
	}
}

// canSpare reports whether most of the voters answer that are left without a member, so that the group goes on.
func (n *Node) canSpare(member uint64) bool {
	others, _ := n.left(member)
	answer := 0
	for _, id := range others {
		if n.answers(id) {
			answer++
		}
	}
	return 2*answer > len(others)
}

// replaceable reports whether another member may take a node's name. It may if the node's member was not heard
// lately, and either an operator said so (see Replace) or the member is lost for Settings.ReplaceAfter. The old
// member can do nothing from then on, although it stays a voter until the new one has the log: the other nodes
// refuse it. So two processes never vote under one name.
func (n *Node) replaceable(node string, member uint64) bool {
	if n.state.version.Format < withReplacements || n.answers(member) {
		return false
	}
	return n.leader.ticks <= n.leader.replaced[node] || n.unheard(member) >= n.settings.ReplaceAfter
}

// unheard returns how long this leader has not heard another member.
func (n *Node) unheard(member uint64) time.Duration {
	since := time.Duration(n.leader.ticks) * replica.TickEvery // followers do not hear each other
	if x, heard := n.leader.clocks.others[member]; heard {
		since = min(since, time.Duration(n.now-x.last)*time.Millisecond)
	}
	return since
}

// changeNodes lets nodes join and leave, and makes learners voters. The next tick tries again each change that is
// not possible yet.
func (n *Node) changeNodes() {
	if n.term != n.leadership.Term {
		return // entries of earlier leaders may name nodes
	}
	n.nameSelf()
	early := n.leader.early
	n.leader.early = nil
	for _, r := range early {
		n.remove(r.id, r.Name)
	}
	n.removeNodes()
	joins := n.leader.joins
	n.leader.joins = nil
	for _, j := range joins {
		switch member, known := n.state.nodes.Member(j.Name); {
		case member != 0 && member != j.Member && !n.replaceable(j.Name, member):
			n.answer(j.id, fmt.Errorf("%w: %q is member %d", ErrKnown, j.Name, member))
			continue
		case member == j.Member && (j.claims || n.has(j.Member)):
			n.answer(j.id, nil)
			continue
		case member == j.Member:
			_ = n.replica.Members(n.members.Voters, append(n.named(n.members.Learners), j.Member))
		case known && member == 0 && n.state.version.Format < withReplacements:
			n.answer(j.id, ErrOlder)
			continue
		default:
			n.nameNode(entry.Node{Name: j.Name, Member: j.Member, Replaces: member})
		}
		n.leader.joins = append(n.leader.joins, j)
	}
	n.replaceLost()
	n.promote()
}

// nameSelf names this node in the log. In a log that was restored from a backup, its name may be another member's.
func (n *Node) nameSelf() {
	self := n.settings.Self
	member, _ := n.state.nodes.Member(self.Name)
	if self.Name == "" || member == self.Member || member != 0 && n.state.version.Format < withReplacements {
		return
	}
	self.Replaces = member
	n.nameNode(self)
}

// removeNodes lets nodes leave: first their members, then their names.
func (n *Node) removeNodes() {
	removes := n.leader.removes
	n.leader.removes = nil
	for _, r := range removes {
		member, _ := n.state.nodes.Member(r.Name)
		switch {
		case member != r.Member:
			n.answer(r.id, nil) // it is removed, or replaced
			continue
		case n.has(member) || len(n.named(n.members.Voters)) < len(n.members.Voters): // it was to replace a voter
			if voters, learners := n.left(member); n.mostHaveLog(voters) {
				_ = n.replica.Members(voters, learners)
			}
		default:
			n.nameNode(entry.Node{Name: r.Name, Replaces: member})
		}
		n.leader.removes = append(n.leader.removes, r)
	}
}

func without(all []uint64, one uint64) (rest []uint64) {
	for _, id := range all {
		if id != one {
			rest = append(rest, id)
		}
	}
	return rest
}

// named returns those members that are the member of a node, and not replaced. In a group whose nodes have no names,
// no member is ever replaced.
func (n *Node) named(all []uint64) (some []uint64) {
	nodes := n.state.nodes.All()
	if len(nodes) == 0 {
		return slices.Clone(all)
	}
	for _, member := range nodes {
		if slices.Contains(all, member) {
			some = append(some, member)
		}
	}
	slices.Sort(some)
	return some
}

// nameNode proposes an entry that names the member of a node, unless such an entry is under way.
func (n *Node) nameNode(node entry.Node) {
	if n.leader.names > n.state.Index() {
		return
	}
	e := entry.Entry{Kind: entry.KindNode, Group: n.state.group, Shape: shape, Node: node}
	if index, err := n.replica.Propose(e.Append(nil)); err == nil {
		n.leader.names = index
	}
}

// Sends reports whether this member sends the forwarded data to other servers: it leads, and it knows
// what earlier leaders have noted as sent.
func (n *Node) Sends() bool { return n.leadership.Leads && n.term == n.leadership.Term }

// Forwarded tells the leader up to which entry each backend has the forwarded data. It proposes an entry
// that notes this, unless the log already says so or such an entry is under way.
func (n *Node) Forwarded(reached map[string]uint64) {
	if !n.Sends() || n.leader.notes > n.state.Index() || n.state.version.Format < withForwardedEntries {
		return
	}
	e := entry.Entry{Kind: entry.KindForwarded, Group: n.state.group, Shape: shape}
	for _, backend := range slices.Sorted(maps.Keys(reached)) {
		if index := reached[backend]; index > n.state.Forwarded(backend) {
			e.Forwarded = entry.AppendForwarded(e.Forwarded, backend, index)
		}
	}
	if len(e.Forwarded) == 0 {
		return
	}
	if index, err := n.replica.Propose(e.Append(nil)); err == nil {
		n.leader.notes = index
	}
}

// has(member) reports whether the member gets all entries.
func (n *Node) has(member uint64) bool {
	return slices.Contains(n.members.Voters, member) || slices.Contains(n.members.Learners, member)
}

// promote makes a voter of a learner whose log has almost all entries, if fewer than MaxVoters members vote. If a voter
// is replaced, it leaves in the same change: at no time are there more voters, or fewer, whose logs have everything.
func (n *Node) promote() {
	spare := n.spare()
	voters := append(n.named(n.members.Voters), spare)
	if mutant.RemoveFirst && len(voters) == len(n.members.Voters) {
		_ = n.replica.Members(n.named(n.members.Voters), n.members.Learners)
		return
	}
	if spare == 0 || len(n.members.Leaving) > 0 || !n.mostHaveLog(voters) ||
		len(voters) > max(MaxVoters, len(n.members.Voters)) ||
		len(voters) < len(n.members.Voters) { // another replaced voter leaves only for a member of its own
		return
	}
	_ = n.replica.Members(voters, n.named(without(n.members.Learners, spare)))
}

// MaxBehind is how far, in bytes of entries, a leader lets the other members lag. A new leader answers
// no write before it has applied all of these entries, which may take half a minute.
const MaxBehind = 256 << 20

// unapplied returns how many bytes of entries are not applied by a quorum yet. Members that are not heard do not
// count: without them there may be no quorum, and then nothing is committed anyway.
func (n *Node) unapplied() int64 {
	all := []int64{0} // this member's own
	for _, id := range n.members.Voters {
		if x, heard := n.leader.clocks.others[id]; heard && !n.leader.clocks.old(x) {
			all = append(all, n.leader.backlog.Of(id))
		}
	}
	slices.Sort(all)
	if quorum := len(n.members.Voters)/2 + 1; quorum <= len(all) {
		return all[quorum-1]
	}
	return 0
}

// lagging returns why nothing is proposed now: so many members are so far behind that a new leader would
// answer only after a long time. A single slow member does not matter. The error is ErrBehind.
func (n *Node) lagging() error {
	behind := n.unapplied()
	if behind <= n.settings.MaxBehind {
		return nil
	}
	return fmt.Errorf("%w: each of them must still apply %d bytes of the log or more, and %d are allowed; "+
		"`freshet diagnose` finds slow nodes", ErrBehind, behind, n.settings.MaxBehind)
}

// nearlyFull returns why nothing is proposed now: the disks of so many members are nearly full that a quorum would
// take the room in which they recover, compact and delete. The log itself goes on: tiles close, and nodes join. The
// error is ErrFull.
func (n *Node) nearlyFull() error {
	elected := time.Duration(n.leader.ticks)*replica.TickEvery < time.Duration(fresh)*time.Millisecond
	short := n.leader.short.Stops(n.members.Voters, func(member uint64) bool {
		return elected || n.answers(member) // followers do not hear each other, so a new leader must wait
	})
	if len(short) == 0 {
		return nil
	}
	e := &fullDisks{}
	for node, member := range n.state.nodes.All() {
		if slices.Contains(short, member) {
			e.nodes = append(e.nodes, "node "+node)
		}
	}
	slices.Sort(e.nodes)
	return e
}
