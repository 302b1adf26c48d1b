package member

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// leader is the state that a member needs while it leads. All fields except the first three belong
// to one term.
type leader struct {
	clocks   clocks
	backlog  backlog
	versions versions

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
	names   uint64          // index of the last entry under way that names a node
	notes   uint64          // index of the last entry under way that says what is forwarded
	claims  uint64          // index of the last entry under way that claims names for which pushes wait
	raises  uint64          // index of the last entry under way that raises the version
	stall   stall

	raisesTo entry.Version // the newest version that all members know; raisesAt is the tick since when
	raisesAt int64
}

// push is a push that waits to be proposed.
type push struct {
	id      ID
	bytes   []byte
	named   bool  // its series have the names under which they are stored
	refused error // the *batch.FullError for the batches that were taken out of the field bytes
}

const (
	// cautious is how long a new leader closes no tile, unless all senders were heard. In that time the
	// windows that the last leader did not take come again, and their gauges must not be too late.
	cautious = 5000 // ms

	// recently is how far back from its election a new leader looks: it waits for the senders whose
	// windows came in that time.
	recently = 10_000 // ms

	// spread is the time over which the shards close the same tile, one after the other, so that a
	// flush of many series is not a burst.
	spread = 4000 // ms

	// leap is how far behind at least one shard must be before all shards leap over the tiles in
	// between. Otherwise they close every tile and repeat their totals as usual. It equals the
	// lookback of PromQL.
	leap = 5 * 60_000 // ms
)

// reset ends a term, and returns what was not proposed and the nodes that wait to join.
func (l *leader) reset() ([]push, []proposal, []join) {
	queue, writes, joins := l.queue, l.writes, l.joins
	*l = leader{clocks: l.clocks, backlog: l.backlog, versions: l.versions, heard: map[uint64]bool{}}
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
	if n.leader.clocks.wrong() {
		n.handOver()
	}
	n.yieldIfStuck()
	n.proposeWindows()
	n.proposeBoundaries()
	n.admitNodes()
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

	// restTicks is how long, in ticks, a member that has yielded does not yield again: 60 s. Then elections
	// cost little even if all members are slow.
	restTicks = 600
)

// tick notes where the log ends, and returns where it ended 2 s ago.
func (s *stall) tick(end uint64) (before uint64) {
	before = s.ends[s.at]
	s.ends[s.at] = end
	s.at = (s.at + 1) % stallTicks
	return before
}

// yieldIfStuck asks another member to lead if this leader is stuck. After 2 s it asks the next member,
// since the first may be stuck, too, or the message may be lost.
func (n *Node) yieldIfStuck() {
	s := &n.leader.stall
	s.wait = max(0, s.wait-1)
	stuck := s.tick(n.replica.Last()) > n.state.Index()
	if !stuck || s.wait > 0 || !s.began && n.rest > 0 {
		return
	}
	to := n.successor()
	if to == 0 {
		s.asked = nil // all were asked
		to = n.successor()
	}
	if to != 0 {
		s.asked, s.began, s.wait, n.rest = append(s.asked, to), true, stallTicks, restTicks
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
	x := naming{names: n.state.names}
	if n.settings.Names != nil {
		x.entry = n.settings.Names()
		x.entry.Clock, x.entry.MaxTenants = max(0, l.clocks.right()), n.settings.MaxTenants
		x.terms = termsOf(&x.entry)
	}
	var all, rename []*push
	for i := range l.queue {
		p := &l.queue[i]
		if size > 0 && size+len(p.bytes) > entry.TargetSize {
			break
		}
		size += len(p.bytes) + 10
		all = append(all, p)
		if !p.named && n.settings.Names != nil && n.findNames(&x, p.bytes) {
			rename = append(rename, p)
		}
	}
	if len(x.claimed) > 0 {
		x.entry.Claims = x.sorted()
		e := entry.Entry{Kind: entry.KindNames, Group: n.state.group, Shape: shape, Names: x.entry}
		index, err := n.replica.Propose(e.Append(nil))
		if x.unknown {
			if err == nil {
				l.claims = index
			}
			return 0 // the next tick tries again if there was no room
		}
	}
	for _, p := range rename {
		p.bytes = x.rename(p.bytes)
	}
	for _, p := range all {
		p.named = true
	}
	return size
}

// naming finds the names of the series in pushes.
type naming struct {
	names   *catalogue.Shared
	terms   catalogue.Terms
	entry   entry.Names
	claimed map[entry.Claim]struct{} // claims by owners without a name, and claims of names not claimed lately
	bytes   int                      // of the names in these claims
	unknown bool                     // an owner has no name
	buckets map[string]string        // as text, by the encoded policy
}

// findNames looks for the names of the series of a push, adds claims, and reports whether a series is stored under
// another name than it has in the push. Series of tenants that are not admitted need no names.
func (n *Node) findNames(x *naming, bytes []byte) (renames bool) {
	p, err := entry.ParsePush(bytes)
	if err != nil {
		return false // CheckPush has refused it
	}
	tenant, fits := "", false
	var names catalogue.Names
	for b := range p.Batches.All() {
		h, err := batch.ParseHeader(b)
		if err != nil {
			continue
		}
		if tenant != string(h.Tenant) {
			tenant = string(h.Tenant)
			names, fits = x.names.Of(tenant), n.state.has.Fits(tenant, n.settings.MaxTenants)
		}
		if !fits {
			continue
		}
		for key, policy := range batch.Series(b) {
			name := series.Name(key)
			if len(name) > 0 {
				stored := x.find(names, tenant, series.Kind(key[0]), name, policy)
				renames = renames || stored != string(name) && stored != ""
			}
		}
	}
	return renames
}

// find returns the name under which a series is stored. If its owner has no name yet, find claims one, and returns "".
func (x *naming) find(names catalogue.Names, tenant string, kind series.Kind, name, policy []byte) (stored string) {
	buckets := x.bucketsOf(kind, policy)
	stored, seen, known := names.Find(name, kind, buckets)
	if known && x.terms.Now-seen < catalogue.ClaimAgain {
		return stored
	}
	claim := catalogue.Claim{Tenant: tenant, Name: string(name), Kind: kind, Buckets: buckets}
	if !known {
		if stored, full := names.Full(&x.terms, &claim); full {
			return stored
		}
	}
	x.unknown = x.unknown || !known
	item := entry.Claim{Tenant: tenant, Kind: byte(kind), Name: claim.Name, Buckets: buckets}
	if _, has := x.claimed[item]; !has && x.bytes < entry.TargetSize {
		if x.claimed == nil {
			x.claimed = map[entry.Claim]struct{}{}
		}
		x.claimed[item] = struct{}{}
		x.bytes += len(item.Name) + len(buckets) + 32
	}
	return stored
}

// sorted returns the claims in order. If several kinds claim a name in the same windows, nobody knows
// which one came first. Then the order of the kinds decides, counters first, and native timers before
// other timers.
func (x *naming) sorted() (all entry.List) {
	claims := slices.SortedFunc(maps.Keys(x.claimed), func(a, b entry.Claim) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Buckets, b.Buckets))
	})
	for i := range claims {
		all = all.Append(entry.AppendClaim(nil, &claims[i]))
	}
	return all
}

// bucketsOf returns the upper bounds of a timer with classic buckets, as text.
func (x *naming) bucketsOf(kind series.Kind, policy []byte) string {
	if kind != series.Timer || len(policy) == 0 {
		return ""
	}
	text, known := x.buckets[string(policy)]
	if !known {
		if p, err := series.ParsePolicy(policy); err == nil {
			text = p.Buckets()
		}
		if x.buckets == nil {
			x.buckets = map[string]string{}
		}
		x.buckets[string(policy)] = text
	}
	return text
}

// rename returns a push whose series have the names under which they are stored, each in the shard of its own key. The
// same push always becomes the same bytes, since owners keep their names. So the group still recognizes a repeat. A
// push with a damaged batch stays as it is.
func (x *naming) rename(bytes []byte) []byte {
	p, err := entry.ParsePush(bytes)
	if err != nil {
		return bytes
	}
	var renamed entry.List
	var writer batch.Writer
	var open batch.Header // header of the portion in the writer
	end := func() {
		for _, b := range writer.End() {
			renamed = renamed.Append(b.Bytes)
		}
	}
	var r batch.Reader
	for b := range p.Batches.All() {
		if r.Reset(b) != nil {
			return bytes
		}
		h := r.Header
		h.Sequence = batch.Portion(h.Sequence)
		if open.Tenant == nil || string(h.Tenant) != string(open.Tenant) || h.Producer != open.Producer ||
			h.Incarnation != open.Incarnation || h.Sequence != open.Sequence || h.Second != open.Second ||
			h.Birth != open.Birth {
			if open.Tenant != nil {
				end()
			}
			open = h
			writer.Begin(h)
		}
		tenant := string(h.Tenant)
		names := x.names.Of(tenant)
		for inc := r.Next(); inc != nil; inc = r.Next() {
			name := series.Name(inc.Key)
			one, shard := *inc, h.Shard
			if stored := x.find(names, tenant, inc.Kind(), name, inc.Policy); len(name) > 0 && stored != "" &&
				stored != string(name) {
				one.Key = series.Renamed(inc.Key, stored)
				shard = series.Shard(tenant, one.Key)
			}
			writer.Add(shard, &one)
		}
		if r.Err() != nil {
			return bytes
		}
	}
	if open.Tenant != nil {
		end()
	}
	p.Batches = renamed
	return entry.AppendPush(nil, &p)
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
		refused.Samples[string(h.Tenant)] += samplesIn(b)
	}
	if len(refused.Samples) > 0 {
		p.Batches = kept
		one.bytes, one.refused = entry.AppendPush(nil, &p), refused
	}
}

func samplesIn(b []byte) (n uint64) {
	var r batch.Reader
	if r.Reset(b) == nil {
		for inc := r.Next(); inc != nil; inc = r.Next() {
			n += uint64(inc.Samples)
		}
	}
	return n
}

// note adds to `begin` the shards of a push that hold no series.
func (n *Node) note(bytes []byte, begin *entry.Shards) {
	p, err := entry.ParsePush(bytes)
	if err != nil {
		return // CheckPush has refused it
	}
	for b := range p.Batches.All() {
		h, err := batch.ParseHeader(b)
		if err != nil {
			continue
		}
		if s := n.state.shards.Of(h.Shard); s == nil || s.Len() == 0 {
			begin.Add(h.Shard)
		}
	}
}

// beginShards moves shards without series to the present, since shards get no boundaries while they have
// no series. It also begins new shards: the first entry of a shard is a boundary. An entry under way may
// bring series to a shard. Then the boundary leaves this shard alone, since a new leader must not close
// its tiles before it has heard the senders.
func (n *Node) beginShards(begin *entry.Shards) {
	byEnd := map[int64]*entry.Shards{}
	for number := range uint16(series.Shards) {
		if !begin.Has(number) {
			continue
		}
		end := n.due(number)
		if s := n.state.shards.Of(number); s == nil || s.Closed() < end {
			add(byEnd, end, number)
		}
	}
	n.propose(byEnd, nil, true)
}

// beginEmpty moves all shards without series to the present, since it is not known which shards a
// request of deltas touches.
func (n *Node) beginEmpty() {
	if n.now-n.leader.begun < 1000 {
		return
	}
	n.leader.begun = n.now
	var begin entry.Shards
	for number := range uint16(series.Shards) {
		if s := n.state.shards.Of(number); s == nil || s.Len() == 0 {
			begin.Add(number)
		}
	}
	n.beginShards(&begin)
}

func add(byEnd map[int64]*entry.Shards, end int64, number uint16) {
	if byEnd[end] == nil {
		byEnd[end] = new(entry.Shards)
	}
	byEnd[end].Add(number)
}

// due returns the end of the last tile that a shard must have closed by now.
func (n *Node) due(number uint16) int64 {
	t := max(0, n.leader.clocks.bounded()-n.settings.Lateness.Milliseconds()-spread*int64(number)/series.Shards)
	return t - t%tileMillis
}

const tileMillis = 10_000

// proposeBoundaries closes the tiles that are due, one of each shard. While nobody can tell what time it is,
// tiles stay open, since the windows of their time wait.
func (n *Node) proposeBoundaries() {
	l := &n.leader
	if l.closes != 0 || !n.settled() || l.clocks.apart() != 0 {
		return
	}
	byEnd := map[int64]*entry.Shards{}
	leaps := n.leaps()
	for number := range uint16(series.Shards) {
		s := n.state.shards.Of(number)
		if s == nil || s.Len() == 0 {
			continue
		}
		next, due := s.Closed()+tileMillis, n.due(number)
		if leaps {
			next = max(next, due)
		}
		if next <= due {
			add(byEnd, next, number)
		}
	}
	n.propose(byEnd, n.state.full(n.settings.MaxPending), false)
}

// settled is true if tiles may be closed after an election: all recent senders were heard, or
// enough time has passed.
func (n *Node) settled() bool {
	if n.term != n.leadership.Term && !mutant.Hasty {
		return false // some earlier windows may not be applied here yet
	}
	if n.leader.ticks*replica.TickEvery.Milliseconds() > cautious || mutant.Hasty {
		return true
	}
	if n.state.since == 0 || n.state.since > n.leader.since-recently {
		return false // a restart has forgotten some senders
	}
	known := false
	for producer, last := range n.state.senders {
		if last.clock < n.leader.since-recently {
			continue
		}
		if known = true; !n.leader.heard[producer] {
			return false
		}
	}
	return known
}

// leaps reports whether the shards skip the tiles of a downtime and go on at the present. They do if
// some shard is far behind and all shards rest: see tile.Shard.Rests.
func (n *Node) leaps() bool {
	far := false
	for number := range uint16(series.Shards) {
		s := n.state.shards.Of(number)
		far = far || s != nil && s.Len() > 0 && n.due(number)-s.Closed() > leap
	}
	for number := uint16(0); far && number < series.Shards; number++ {
		s := n.state.shards.Of(number)
		far = s == nil || s.Rests()
	}
	return far
}

// propose proposes boundaries, the earliest first.
func (n *Node) propose(byEnd map[int64]*entry.Shards, full []string, begins bool) {
	ends := make([]int64, 0, len(byEnd))
	for end := range byEnd {
		ends = append(ends, end)
	}
	slices.Sort(ends)
	for _, end := range ends {
		e := entry.Entry{Kind: entry.KindBoundary, Group: n.state.group, Shape: shape}
		e.Boundary = boundaryOf(end, *byEnd[end], &n.settings.Tiles, full)
		e.Boundary.Begins = begins
		index, err := n.replica.Propose(e.Append(nil))
		if err != nil {
			return // the next tick tries again
		}
		n.leader.closes = index
	}
}

func boundaryOf(end int64, shards entry.Shards, config *tile.Config, full []string) entry.Boundary {
	b := entry.Boundary{
		End: end, CounterTTL: config.CounterTTL.Milliseconds(), GaugeTTL: config.GaugeTTL.Milliseconds(),
		CheckTTL: config.CheckTTL.Milliseconds(), UpDownTTL: config.UpDownTTL.Milliseconds(),
		Timed: config.OutOfOrder.Milliseconds(), Shards: shards,
	}
	for _, tenant := range full {
		b.Full = b.Full.AppendText(tenant)
	}
	return b
}

// ErrKnown means that a node wants to join, but its name already belongs to another member: the node's
// directory was emptied, or two nodes have the same name.
var ErrKnown = errors.New("the cluster knows another directory of this node")

const (
	// caughtUp is how many entries a learner's log may lack when the learner becomes a voter. Under load it
	// always lacks the newest.
	caughtUp = 100

	// maxJoins bounds the nodes that wait to become learners.
	maxJoins = 64
)

// join is a node that waits to become a learner.
type join struct {
	id ID
	entry.Node
}

// Join asks the group to take in the member of a node. The answer comes once the member is a learner or
// a voter. The error is ErrKnown if the node's name belongs to another member. A learner becomes a voter
// by itself when its log has almost all entries.
func (n *Node) Join(now int64, id ID, node entry.Node) {
	n.tell(now)
	switch {
	case !n.leadership.Leads:
		n.answer(id, replica.ErrNotLeader)
	case len(n.leader.joins) >= maxJoins:
		n.answer(id, fmt.Errorf("%w: %d nodes wait to join", ErrFull, maxJoins))
	default:
		n.leader.joins = append(n.leader.joins, join{id, node})
	}
}

// admitNodes lets nodes join, and makes learners voters. The next tick tries again each change that is not
// possible yet.
func (n *Node) admitNodes() {
	if n.term != n.leadership.Term {
		return // entries of earlier leaders may name nodes
	}
	if _, known := n.state.nodes.Member(n.settings.Self.Name); !known && n.settings.Self.Name != "" {
		n.nameNode(n.settings.Self)
	}
	joins := n.leader.joins
	n.leader.joins = nil
	for _, j := range joins {
		switch member, known := n.state.nodes.Member(j.Name); {
		case known && member != j.Member:
			n.answer(j.id, fmt.Errorf("%w: %q is member %d", ErrKnown, j.Name, member))
			continue
		case known && n.has(j.Member):
			n.answer(j.id, nil)
			continue
		case known:
			_ = n.replica.Members(n.members.Voters, append(slices.Clone(n.members.Learners), j.Member))
		default:
			n.nameNode(j.Node)
		}
		n.leader.joins = append(n.leader.joins, j)
	}
	n.promote()
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

// promote makes a voter of a learner whose log has almost all entries.
func (n *Node) promote() {
	if len(n.members.Learners) == 0 || len(n.members.Leaving) > 0 {
		return
	}
	for _, p := range n.replica.Progress() {
		at := slices.Index(n.members.Learners, p.Member)
		if at < 0 || !p.Active || p.Match == 0 || p.Match+caughtUp < n.state.Index() {
			continue
		}
		voters := append(slices.Clone(n.members.Voters), p.Member)
		_ = n.replica.Members(voters, slices.Delete(slices.Clone(n.members.Learners), at, at+1))
		return
	}
}

// MaxBehind is how far, in bytes of entries, a leader lets the other members lag. A new leader answers
// no write before it has applied all of these entries, which may take half a minute.
const MaxBehind = 256 << 20

// backlogSteps is how many places are remembered in the last MaxBehind bytes of the log, up to the last
// applied entry.
const backlogSteps = 64

// backlog knows, for each other member, how many bytes of entries it still has to apply. It counts only
// entries that this member has applied.
type backlog struct {
	sum    int64             // bytes of all entries that this member has applied
	places []place           // ascending, and at least `apart` bytes apart
	others map[uint64]uint64 // the last entry that each member is known to have applied
}

// place is an entry, and the bytes of all entries up to it.
type place struct {
	index uint64
	sum   int64
}

// applied is called with each entry that this member applies. The other members may be at most `most`
// bytes behind.
func (b *backlog) applied(index uint64, bytes int, most int64) {
	b.sum += int64(bytes)
	last := len(b.places) - 1
	if last >= 0 && b.sum-b.places[last].sum < most/backlogSteps {
		return
	}
	b.places = append(b.places, place{index, b.sum})
	if oldest := b.places[0].sum; b.sum-oldest > 2*most {
		b.places = slices.Delete(b.places, 0, 1)
	}
}

// heard is called with the last entry that another member has applied.
func (b *backlog) heard(member, applied uint64) {
	if b.others == nil {
		b.others = map[uint64]uint64{}
	}
	b.others[member] = applied
}

// of(member) returns a lower bound for how many bytes of entries the member is behind. The true number
// may be higher by the distance of two places, and entries from before the start of this process are not
// counted.
func (b *backlog) of(member uint64) int64 {
	applied := b.others[member]
	i := sort.Search(len(b.places), func(i int) bool { return b.places[i].index > applied })
	if i == len(b.places) {
		return 0
	}
	return b.sum - b.places[i].sum
}

// unapplied returns how many bytes of entries are not applied by a quorum yet. Members that are not heard do not
// count: without them there may be no quorum, and then nothing is committed anyway.
func (n *Node) unapplied() int64 {
	all := []int64{0} // this member's own
	for _, id := range n.members.Voters {
		if x, heard := n.leader.clocks.others[id]; heard && !n.leader.clocks.old(x) {
			all = append(all, n.leader.backlog.of(id))
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
