package sim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/notes"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/world"
)

const (
	lateness     = 3 * time.Second
	segmentBytes = 32 << 10
	keepBytes    = 1 << 20 // bytes of log for members that were away
	maxPending   = 500     // bytes of tiles that may wait for a tenant's stores on the first node; more on others
)

// node is a machine and, if the node is up, its process.
type node struct {
	sim    *sim
	n      int
	id     uint64
	disk   *memfs.FS // the entry log, the checkpoints and the notes
	mark   uint32
	boots  int // of the machine
	stores stores

	eventLog eventLog

	world.Process
	slowDisk   bool
	slowStores bool
	held       bool            // the member takes no entries
	hangs      map[string]bool // queues, as queueOf names them, whose stores hang
	fails      map[string]bool // queues whose stores answer with an error
	noSync     bool            // the node's stores cannot be synced
	off        int64           // how far the node's clock is ahead, in ms

	node    *member.Node
	entries *entrylog.Log
	leads   replica.Leadership
	members replica.Members
	whole   uint64        // entries up to this index may have had effects in an earlier life
	stored  *notes.Stored // of tiles
	noted   *notes.Since  // of requests

	toWrite []*replica.Write
	writing bool
	working int // number of Works under way
	saving  *saving
	plans   int                                         // planned checkpoints; only the last plan counts
	copies  []func(base, reaches uint64, failure error) // of fills that wait for the next checkpoint
	pins    map[*node]pin
	lacks   int    // how often in a row the leader's log lacked entries of this node
	fill    *fill  // nil if the node is not being filled
	base    uint64 // base of the last checkpoint
	ids     member.ID
	waits   map[member.ID]func(member.Answer)
}

func newNode(s *sim, i int) *node {
	dir := fmt.Sprintf("%s/node%d", s.dir, i)
	return &node{sim: s, n: i, id: uint64(i + 1), disk: memfs.New(), hangs: map[string]bool{}, fails: map[string]bool{},
		stores: stores{dir: dir}, off: s.Between(-50, 50)}
}

// clock returns what the node's clock shows, in Unix milliseconds.
func (n *node) clock() int64 { return base + n.sim.Now + n.off }

// settings returns the settings of a node. They differ between nodes, as happens while an operator
// changes them.
func (n *node) settings() member.Settings {
	more, pending := int64(n.n+1), int64(maxPending)
	if n.sim.mistakes.impatient {
		pending = 1
	}
	settings := member.Settings{Lateness: lateness, MaxPending: pending * more, MaxQueued: 4000 * more,
		MaxQueuedSum: 6000 * more, MaxBehind: 3000 * more, Names: n.names, Tiles: tile.Config{
			CounterTTL: time.Hour, GaugeTTL: time.Duration(20+10*n.n) * time.Second, CheckTTL: time.Hour, UpDownTTL: time.Hour,
			OutOfOrder: n.window()}}
	if n.sim.mistakes.fills {
		settings.Self, settings.ReplaceAfter = n.self(), 4*time.Second
	}
	return settings
}

// names returns the limits for names of metrics. No tenant reaches them.
func (n *node) names() entry.Names {
	ttl := int64(n.n+1) * 60 * second
	return entry.Names{MaxNames: 100 + n.n, Unused: int64(n.n+2) * 3600 * second, CounterTTL: ttl, GaugeTTL: ttl,
		CheckTTL: ttl, UpDownTTL: ttl}
}

// window returns how far a sample may be behind the tenant's newest sample.
func (n *node) window() time.Duration { return time.Duration(60+20*n.n) * time.Second }

// start starts the process of a node from its disk. fresh is where the log of a new node begins.
func (s *sim) start(n *node, fresh *entrylog.Base) {
	n.Life++
	n.openStores()
	settings := n.settings()
	state, last, err := n.restore(&settings.Tiles)
	if err != nil {
		s.Fail("node %d does not start: %v", n.n, err)
		return
	}
	if !n.cutBack(state) {
		return
	}
	applied := max(state.Index(), 1)
	n.mark = s.Rand.Uint32()
	r, l, err := replica.Open(n.disk, replica.Config{ID: n.id, Applied: applied, New: fresh,
		Rand: rand.New(rand.NewPCG(s.Rand.Uint64(), n.id)),
		Log:  entrylog.Options{Mark: n.mark, SegmentBytes: segmentBytes, CacheBytes: 16 << 10}})
	if err != nil {
		s.Fail("node %d does not start: %v", n.n, err)
		return
	}
	n.entries, n.Up, n.leads, n.whole = l, true, replica.Leadership{}, max(applied, last)
	n.base = state.Index()
	n.toWrite, n.writing, n.working, n.saving, n.waits = nil, false, 0, nil, map[member.ID]func(member.Answer){}
	n.copies, n.pins = nil, map[*node]pin{}
	waiting := 0
	for _, tenant := range tenants {
		waiting += state.Waiting(tenant).Requests
	}
	s.covered.requeued += waiting
	n.node = member.NewNode(r, state, settings)
	s.Tell("node %d: starts at entry %d, its log ends at %d, %d requests wait", n.n, applied, l.Last(), waiting)
	period := s.Between(95, 106) // no two clocks run at the same speed
	s.tick(n, s.Between(0, period), period)
	s.saveLater(n, 3*second, 6*second)
	s.tendLater(n)
	s.drain(n)
}

// entry reads an entry from the log.
func (n *node) entry(index uint64) ([]byte, error) {
	found, err := n.entries.Entries(index, index+1, 1<<30)
	if err != nil || len(found) == 0 {
		return nil, cmp.Or(err, errors.New("the entry is not in the log"))
	}
	return found[0].GetData(), nil
}

func (s *sim) tick(n *node, after, period int64) {
	if s.ending {
		return
	}
	s.At(after, &n.Process, func() {
		if s.ending {
			return
		}
		n.node.Tick(n.clock())
		s.drain(n)
		s.tick(n, period, period)
	})
}

// tendLater tends the stores every few seconds. Sometimes tsdb compacts first, and the power may fail
// in between.
func (s *sim) tendLater(n *node) {
	after := s.Between(4*second, 12*second)
	if s.Chance(50) {
		s.At(after-s.Between(0, 4*second), &n.Process, func() {
			if !s.ending {
				n.compact()
			}
		})
	}
	s.At(after, &n.Process, func() {
		if !s.ending {
			n.tend()
			s.tendLater(n)
		}
	})
}

// stop ends the process of a node, and with it all that is in memory.
func (s *sim) stop(n *node) {
	n.Stop()
	n.leads = replica.Leadership{}
}

// drain does the work that the member has for its process.
func (s *sim) drain(n *node) {
	out, err := n.node.Take()
	if _, held := n.node.Held(); held != n.held {
		if n.held = held; held {
			s.covered.held++
		}
	}
	if err != nil {
		s.Fail("node %d: %v", n.n, strings.SplitN(err.Error(), "\n", 2)[0])
		return
	}
	for i := range out.Messages {
		s.send(n, &out.Messages[i])
	}
	n.toWrite = append(n.toWrite, out.Writes...)
	s.nextWrite(n)
	for i := range out.Applied {
		s.oracle.applied(s, n, &out.Applied[i])
	}
	for _, tenant := range tenants {
		s.oracle.decided(s, n, tenant)
	}
	if out.YieldsTo != 0 {
		s.covered.yields++
		s.Tell("node %d: its entries are stuck, so it asks member %d to lead", n.n, out.YieldsTo)
	}
	for _, w := range out.Work {
		n.working++
		s.beginWork(n, w)
	}
	for _, a := range out.Answers {
		if answer, waits := n.waits[a.ID]; waits { // otherwise notLogged has answered
			delete(n.waits, a.ID)
			answer(a)
		}
	}
	if out.Members != nil {
		n.members = *out.Members
		if out.Leadership.Leads {
			s.oracle.votes(s, n)
			s.Tell("node %d: voters %v, learners %v, leaving %v", n.n, n.members.Voters, n.members.Learners, n.members.Leaving)
		}
	}
	s.follow(n, out.Leadership)
}

// follow notes elections.
func (s *sim) follow(n *node, now replica.Leadership) {
	if now.Leads && (!n.leads.Leads || n.leads.Term != now.Term) {
		s.Tell("node %d leads in term %d", n.n, now.Term)
		s.covered.elections++
		s.oracle.leads(s, n, now.Term)
	}
	n.leads = now
}

// call asks the member for something that it answers later.
func (s *sim) call(n *node, what func(member.ID), answer func(member.Answer)) {
	n.ids++
	n.waits[n.ids] = func(a member.Answer) {
		if errors.Is(a.Err, member.ErrBehind) {
			s.covered.behind++
		}
		answer(a)
	}
	what(n.ids)
	s.drain(n)
}

func (s *sim) push(n *node, bytes []byte, answer func(error)) {
	s.call(n, func(id member.ID) { n.node.Push(n.clock(), id, bytes) }, func(a member.Answer) { answer(a.Err) })
}

// write writes the parts of a request one after the other, as role/group's Requests does.
func (s *sim) write(n *node, r *request, answer func(*outcome.Outcome, error)) {
	front, sum := s.anyNode(), new(outcome.Outcome)
	var next func(i int)
	next = func(i int) {
		if i == len(r.parts) {
			answer(sum, nil)
			return
		}
		e := &entry.Entry{Kind: r.kind, Request: front.decided(r.parts[i])}
		s.call(n, func(id member.ID) { n.node.Write(n.clock(), id, e) }, func(a member.Answer) {
			switch {
			case a.Err != nil:
				answer(nil, a.Err)
			case a.Outcome == nil:
				s.Fail("node %d: a request is answered, but has no outcome", n.n)
			default:
				sum.Add(a.Outcome)
				s.At(s.Between(0, 3), &n.Process, func() { next(i + 1) })
			}
		})
	}
	next(0)
}

// decided returns a part of a request with the decisions of the node that received it. These decisions
// depend on the node's settings, which differ between nodes. They do not depend on the node's clock,
// since the leader sets the arrival.
func (n *node) decided(part entry.Request) entry.Request {
	part.Arrival, part.Window = n.clock(), n.window().Milliseconds()
	if part.MaxSeries > 0 {
		part.MaxSeries += n.n
	}
	return part
}

func (s *sim) barrier(n *node, tenant string, answer func(error)) {
	s.call(n, func(id member.ID) { n.node.Barrier(id, tenant) }, func(a member.Answer) { answer(a.Err) })
}

// nextWrite writes to the log, one write after the other.
func (s *sim) nextWrite(n *node) {
	if n.writing || len(n.toWrite) == 0 {
		return
	}
	n.writing = true
	takes := s.Between(1, 5)
	switch {
	case n.slowDisk:
		takes = s.Between(50, 800)
	case s.mistakes.impatient:
		takes = s.Between(20, 100)
	}
	s.At(takes, &n.Process, func() { s.writeLog(n) })
}

func (s *sim) writeLog(n *node) {
	w := n.toWrite[0]
	if len(w.Entries) > 0 && w.Entries[0].Index <= n.entries.Last() {
		s.covered.replaced++
		s.Tell("node %d: replaces its entries from %d on", n.n, w.Entries[0].Index)
	}
	if err := n.entries.Append(&w.Write); err != nil {
		s.notLogged(n, err)
		return
	}
	n.toWrite, n.writing = n.toWrite[1:], false
	n.node.Stored(w.Number)
	s.nextWrite(n)
	s.drain(n)
}

// notLogged handles a failed write to the log. It tries the write again later, since the member cannot
// take it back. Callers get an error at once, but their requests may still count.
func (s *sim) notLogged(n *node, err error) {
	if errors.Is(err, entrylog.ErrDamaged) || !n.sick() {
		s.Fail("node %d: %v", n.n, err)
		return
	}
	s.covered.logErrors++
	for _, id := range slices.Sorted(maps.Keys(n.waits)) {
		n.waits[id](member.Answer{ID: id, Err: err})
		delete(n.waits, id)
	}
	s.At(s.Between(100, 300), &n.Process, func() { s.writeLog(n) })
}

// sick reports whether the disk of the log fails now and then.
func (n *node) sick() bool { return n.disk.Fail != nil || n.disk.Space < memfs.Plenty/2 }

// beginWork gives a Work to the stores, which take it after a while.
func (s *sim) beginWork(n *node, w *member.Work) {
	if n.hangs[queueOf(w)] {
		s.At(200*ms, &n.Process, func() { s.beginWork(n, w) })
		return
	}
	takes := s.Between(1, 20)
	if n.slowStores {
		takes = s.Between(100, 1500)
	}
	s.At(takes, &n.Process, func() {
		if n.fails[queueOf(w)] {
			s.restWork(n, w)
		} else {
			s.work(n, w, 0)
		}
	})
}

// restWork tries a Work again later.
func (s *sim) restWork(n *node, w *member.Work) {
	s.covered.storeErrors++
	s.At(s.Between(200, second), &n.Process, func() { s.beginWork(n, w) })
}

// queueOf names the tenant's queue from which a Work came.
func queueOf(w *member.Work) string {
	switch {
	case len(w.Events) > 0:
		return "events"
	case len(w.Tiles) > 0:
		return w.Tenant + "/tiles"
	}
	return w.Queue + "/requests"
}

// work takes the steps of a Work. A crash may come between any two of them.
func (s *sim) work(n *node, w *member.Work, step int) {
	next := func() { s.At(s.Between(0, 10), &n.Process, func() { s.work(n, w, step+1) }) }
	switch {
	case len(w.Events) > 0 && step == 0:
		s.writeEvents(n, w)
		next()
	case len(w.Requests) > 0 && step == 0:
		for _, r := range w.Requests {
			if err := r.Decode(); err != nil {
				s.Fail("node %d: %v", n.n, err)
				return
			}
		}
		if !s.writeOrDie(n, n.requestDir(w.Tenant, w.Queue != w.Tenant), func() { n.writeRequests(w) }) {
			next()
		}
	case len(w.Tiles) > 0 && step < tile.NumWidths:
		n.writeTiles(w, tile.Width(step))
		next()
	default:
		for _, r := range w.Requests {
			s.oracle.outcome(s, n, r.Index, &r.Write.Outcome)
		}
		note := n.node.Done(w)
		for _, r := range w.Requests {
			r.Release()
		}
		n.working--
		switch {
		case len(w.Events) > 0:
		case len(w.Tiles) > 0: // an error costs only time, as in rewriteNotes
			_ = n.stored.Raise(w.Tenant, n.node.State().VisibleTiles(w.Tenant))
		default:
			_ = n.noted.Note(note)
		}
		s.drain(n)
	}
}
