package member

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/replica"
)

const (
	// maxSkew is how far, in milliseconds, a clock may be off the median of the members' clocks. A
	// member whose clock is further off must not lead: it would close tiles of the future.
	maxSkew = 2000

	// maxAhead bounds how far, in milliseconds, a leader's time may be ahead of the median.
	maxAhead = 1000

	// maxApart is how far, in milliseconds, two clocks may be apart if no third one is known. A shard closes a
	// tile at most 44 s after the tile began: 10 s of width, 30 s of lateness and 4 s of spread. If the leader's
	// clock is 5 s slow, a window of the present still lies in one of tile.MaxAhead open tiles.
	maxApart = 5000

	// leapt is the longest step of our clock between two events, in milliseconds, that does not count as
	// a leap.
	leapt = 1000

	// fresh is how long, in milliseconds, a reading of another member's clock may be used.
	fresh = 10_000
)

// clocks are the members' clocks, as distances from ours in milliseconds. A delayed message makes its
// sender's clock look slower than it is, never faster. So of a member's last messages, the one that
// makes its clock look fastest counts.
type clocks struct {
	now    int64 // by our clock
	others map[uint64]clock
}

type clock struct {
	off  int64 // ahead of ours
	at   int64 // when the message came from which `off` was computed
	last int64 // when the member's last message came
}

// tell notes what our own clock shows, and returns how far it leapt. A pause of this process looks
// like a leap until the next messages come.
func (c *clocks) tell(now int64) (by int64) {
	by = now - c.now
	if c.now == 0 || by <= leapt && by >= -leapt {
		by = 0
	}
	for id, x := range c.others {
		c.others[id] = clock{x.off - by, x.at + by, x.last + by}
	}
	c.now = now
	return by
}

// heard is called with what another member's clock showed a moment ago.
func (c *clocks) heard(member uint64, shown int64) {
	if c.others == nil {
		c.others = map[uint64]clock{}
	}
	x, known := c.others[member]
	if off := shown - c.now; !known || off >= x.off || c.now-x.at > fresh/2 {
		x.off, x.at = off, c.now
	}
	x.last = c.now
	c.others[member] = x
}

// old is true if the reading must no longer be used. If all members believe that their clocks are
// wrong, none sends anything. They can campaign again once the readings are old.
func (c *clocks) old(x clock) bool { return c.now-x.last > fresh }

// ahead returns how far each known clock is ahead of ours, ascending. Ours is one of them.
func (c *clocks) ahead() []int64 {
	all := []int64{0}
	for _, x := range c.others {
		if !c.old(x) {
			all = append(all, x.off)
		}
	}
	slices.Sort(all)
	return all
}

// median returns how far the median of all clocks is ahead of ours. With two clocks it is
// not known, since either clock may be wrong.
func (c *clocks) median() (off int64, known bool) {
	all := c.ahead()
	return all[len(all)/2], len(all) >= 3
}

// wrong is true if our clock is too far off.
func (c *clocks) wrong() bool {
	off, known := c.median()
	return known && !mutant.WrongClock && (off > maxSkew || off < -maxSkew)
}

// trusts reports whether another member was heard lately, and its clock is not too far off.
func (c *clocks) trusts(member uint64) bool {
	x, heard := c.others[member]
	median, known := c.median()
	return heard && !c.old(x) && (!known || x.off-median <= maxSkew && x.off-median >= -maxSkew)
}

// right returns our time, or the median if our clock is wrong.
func (c *clocks) right() int64 {
	if off, _ := c.median(); c.wrong() {
		return c.now + off
	}
	return c.now
}

// bounded returns our time, bounded by the median. If only two clocks are known, the slower one is the
// bound: if it is wrong, tiles only close late. A tile that closed too early would refuse its gauges for
// good.
func (c *clocks) bounded() int64 {
	if mutant.WrongClock {
		return c.now
	}
	all := c.ahead()
	return min(c.now, c.now+all[(len(all)-1)/2]+maxAhead)
}

// arrival returns the time at which a request comes in: our time, bounded by the median on both sides. If our clock
// leaps back, samples of the present must not be refused as too far ahead until another member leads.
func (c *clocks) arrival() int64 {
	if off, known := c.median(); known {
		return max(c.bounded(), c.now+off-maxSkew)
	}
	return c.bounded()
}

// latest returns the latest possible time. Of two clocks, the faster one shows this time. With any other
// number of clocks, it is the bounded time.
func (c *clocks) latest() int64 {
	if all := c.ahead(); len(all) == 2 {
		return c.now + all[1]
	}
	return c.bounded()
}

// apart returns how far two clocks are apart if nobody can tell what time it is: only two are known, and
// they are too far apart. It returns 0 otherwise.
func (c *clocks) apart() int64 {
	if all := c.ahead(); len(all) == 2 && all[1]-all[0] > maxApart && !mutant.WrongClock {
		return all[1] - all[0]
	}
	return 0
}

// versions are the newest versions that the programs of the other members know.
type versions map[uint64]entry.Version

// heard is called with what another member's message says.
func (v *versions) heard(member uint64, knows entry.Version) {
	if *v == nil {
		*v = versions{}
	}
	(*v)[member] = knows
}

// raiseVersion lets the group use a newer version once the programs of all members have known it for
// Settings.UpgradeAfter. Until then, each node can go back to its older program. Afterwards, that program would
// stop at the first entry of the newer version.
func (n *Node) raiseVersion() {
	l := &n.leader
	if n.term != n.leadership.Term || l.raises > n.state.Index() {
		return // an entry under way may raise it
	}
	to := n.commonVersion()
	if to != l.raisesTo {
		l.raisesTo, l.raisesAt = to, l.ticks
	}
	agreed := time.Duration(l.ticks-l.raisesAt) * replica.TickEvery
	if to == n.state.version || agreed < n.settings.UpgradeAfter {
		return
	}
	e := entry.Entry{Kind: entry.KindVersion, Group: n.state.group, Shape: shape, Version: to}
	if index, err := n.replica.Propose(e.Append(nil)); err == nil {
		l.raises = index
	}
}

// commonVersion returns the newest version that the programs of all members know. It is the group's present
// version while some member was not heard lately, since nobody knows with which program that member comes back.
func (n *Node) commonVersion() entry.Version {
	common, now := n.state.knows, n.state.version
	for _, id := range slices.Concat(n.members.Voters, n.members.Learners, n.members.Leaving) {
		if id == n.settings.Self.Member {
			continue
		}
		knows, heard := n.leader.versions[id]
		if x, recently := n.leader.clocks.others[id]; !heard || !recently || n.leader.clocks.old(x) {
			return now
		}
		common.Format = min(common.Format, knows.Format)
		common.Semantics = min(common.Semantics, knows.Semantics)
	}
	common.Format = max(common.Format, now.Format)
	common.Semantics = max(common.Semantics, now.Semantics)
	return common
}

// ErrNobodyElse means that a node cannot be drained, since no other node could lead.
var ErrNobodyElse = errors.New("no other node could lead: none votes, answers and is not drained")

const (
	// patience is how long, in ticks, a drained member without a leader waits for another one to campaign: 10 s. A
	// drained leader is better than none.
	patience = 100

	// passTicks is how long, in ticks, a drained leader waits before it asks another member to lead again: 2 s. While
	// it asks, nothing is proposed.
	passTicks = 20

	// maxDrains bounds the calls of Drain and KeepRules that wait.
	maxDrains = 64
)

// drains is what a leader knows of drains.
type drains struct {
	waiting []drain
	last    uint64 // index of the last entry under way that begins or ends a drain
	passes  int    // ticks until passLead asks again
}

// drain is a caller that waits until an entry is applied.
type drain struct {
	id    ID
	index uint64
}

// Drain makes a node lead no more for so long, or for ever if `lasts` is 0. It votes and applies as before. The answer
// comes once all members will know. The error is ErrUnknownNode, ErrNobodyElse or ErrOlder.
func (n *Node) Drain(now int64, id ID, node string, lasts time.Duration) {
	n.tell(now)
	until := int64(entry.Forever)
	if lasts > 0 {
		until = min(entry.Forever, n.leader.clocks.right()+lasts.Milliseconds())
	}
	n.proposeDrain(id, entry.Drain{Name: node, Until: until})
}

// Undrain ends a drain. The error is ErrUnknownNode or ErrOlder.
func (n *Node) Undrain(now int64, id ID, node string) {
	n.tell(now)
	n.proposeDrain(id, entry.Drain{Name: node})
}

func (n *Node) proposeDrain(id ID, d entry.Drain) {
	member, _ := n.state.nodes.Member(d.Name)
	switch {
	case !n.leadership.Leads || n.term != n.leadership.Term:
		n.answer(id, replica.ErrNotLeader)
	case n.state.version.Format < withDrains:
		n.answer(id, ErrOlder)
	case member == 0:
		n.answer(id, ErrUnknownNode)
	case d.Until != 0 && !n.canPass(member):
		n.answer(id, ErrNobodyElse)
	case len(n.leader.drains.waiting) >= maxDrains:
		n.answer(id, ErrFull)
	default:
		index, err := n.noteDrain(d)
		if err != nil {
			n.answer(id, refused(err))
			return
		}
		n.leader.drains.waiting = append(n.leader.drains.waiting, drain{id, index})
	}
}

func (n *Node) noteDrain(d entry.Drain) (index uint64, err error) {
	e := entry.Entry{Kind: entry.KindDrain, Group: n.state.group, Shape: shape, Drain: d}
	index, err = n.replica.Propose(e.Append(nil))
	if err == nil {
		n.leader.drains.last = index
	}
	return index, err
}

// canPass reports whether another voter than this member answers and may lead.
func (n *Node) canPass(member uint64) bool {
	return slices.ContainsFunc(n.members.Voters, func(id uint64) bool {
		return id != member && n.answers(id) && !n.drained(id)
	})
}

// answers reports whether a member is this one, or was heard lately.
func (n *Node) answers(member uint64) bool {
	x, heard := n.leader.clocks.others[member]
	return member == n.settings.Self.Member || heard && !n.leader.clocks.old(x)
}

// drained reports whether the node of a member is drained.
func (n *Node) drained(member uint64) bool {
	for node := range n.state.nodes.Drained() {
		if of, _ := n.state.nodes.Member(node); of == member {
			return true
		}
	}
	return false
}

// rests reports whether this member leaves the lead to others.
func (n *Node) rests() bool {
	return n.leaderless < patience && n.drained(n.settings.Self.Member)
}

// tendDrains ends drains whose time is over, and answers callers. A drained leader asks another member to lead.
func (n *Node) tendDrains() {
	d := &n.leader.drains
	d.passes = max(0, d.passes-1)
	d.waiting = slices.DeleteFunc(d.waiting, func(w drain) bool {
		if w.index > n.state.Index() {
			return false
		}
		n.answer(w.id, nil)
		return true
	})
	if n.term != n.leadership.Term || d.last > n.state.Index() {
		return // an entry under way may end the drain, or begin another one
	}
	all := n.state.nodes.Drained()
	for _, node := range slices.Sorted(maps.Keys(all)) {
		if all[node] <= n.leader.clocks.right() {
			_, _ = n.noteDrain(entry.Drain{Name: node}) // the next tick tries again if there was no room
			return
		}
	}
	n.passLead()
}

// passLead asks another member to lead if this one is drained: the one whose log is furthest, of those that have
// applied almost all of it.
func (n *Node) passLead() {
	if !n.rests() || n.leader.drains.passes > 0 {
		return
	}
	to, match := uint64(0), uint64(0)
	for _, p := range n.replica.Progress() {
		if p.Member != n.settings.Self.Member && p.Match > match && slices.Contains(n.members.Voters, p.Member) &&
			!n.drained(p.Member) && n.leader.clocks.trusts(p.Member) && n.leader.backlog.Of(p.Member) == 0 {
			to, match = p.Member, p.Match
		}
	}
	if to != 0 {
		n.leader.drains.passes = passTicks
		_ = n.replica.Transfer(to) // the error says that this member no longer leads
	}
}

// spare returns the learner that votes next: one whose log has almost all entries, if possible of a node that is not
// drained. It returns 0 if there is none.
func (n *Node) spare() (member uint64) {
	if len(n.members.Learners) == 0 {
		return 0
	}
	learners := n.named(n.members.Learners)
	for _, p := range n.replica.Progress() {
		if slices.Contains(learners, p.Member) && n.answers(p.Member) && hasLog(p, n.state.Index()) &&
			(member == 0 || n.drained(member)) {
			member = p.Member
		}
	}
	return member
}

// hasLog reports whether a member's log has almost all entries up to the last one.
func hasLog(p replica.Progress, last uint64) bool { return p.Match > 0 && p.Match+caughtUp >= last }

// mostHaveLog reports whether most of these voters are there and have almost all entries. The group goes on without a
// pause if they are to vote.
func (n *Node) mostHaveLog(voters []uint64) bool {
	have := 0
	for _, p := range n.replica.Progress() {
		if slices.Contains(voters, p.Member) && p.Active && hasLog(p, n.state.Index()) {
			have++
		}
	}
	return 2*have > len(voters)
}

// left returns the members that are left when one leaves, and with it a voter that it was to replace. If one of them
// votes, a spare votes in its place from the same change on.
func (n *Node) left(member uint64) (voters, learners []uint64) {
	voters, learners = n.named(without(n.members.Voters, member)), without(n.members.Learners, member)
	spare := n.spare()
	if spare != 0 && spare != member && len(voters) < min(MaxVoters, len(n.members.Voters)) {
		return append(voters, spare), without(learners, spare)
	}
	return voters, learners
}

// replaceLost takes the name of a voter that was not heard for Settings.ReplaceAfter, if there is a spare: promote then
// lets the spare vote in its place, in one change. From then on the other nodes refuse the lost one. A drained node
// keeps its place: it is away on purpose, or soon will be.
func (n *Node) replaceLost() {
	voters, spare := n.named(n.members.Voters), n.spare()
	if spare == 0 || n.drained(spare) || n.state.version.Format < withReplacements || len(voters) < MaxVoters ||
		len(voters) < len(n.members.Voters) || len(n.members.Leaving) > 0 { // one is being replaced already
		return
	}
	nodes := n.state.nodes.All()
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		member := nodes[node]
		if slices.Contains(voters, member) && !n.answers(member) && !n.drained(member) &&
			n.unheard(member) >= n.settings.ReplaceAfter && n.canSpare(member) {
			n.nameNode(entry.Node{Name: node, Replaces: member})
			return
		}
	}
}
