package sim

import (
	"bytes"
	"cmp"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
)

const (
	window       = time.Minute // how much older than the tenant's newest a sample may be
	lateness     = 3 * time.Second
	segmentBytes = 32 << 10
	keepBytes    = 1 << 20 // of log, for members that were away
	maxPending   = 1000    // bytes of tiles that may wait for a tenant's stores
)

// node is a machine, with the process on it if it is up.
type node struct {
	sim    *sim
	n      int
	id     uint64
	log    *memfs.FS // of the entry log
	files  *memfs.FS // of the checkpoint
	stores stores

	life        int
	up          bool
	pausedUntil int64
	slowDisk    bool
	slowStores  bool
	hangs       map[string]bool // tenants whose stores take nothing
	off         int64           // how far its clock is ahead, in ms

	node    *member.Node
	entries *entrylog.Log
	leads   replica.Leadership
	members replica.Members
	whole   uint64 // entries up to this index have not had all of their effects in this life

	toWrite []*replica.Write
	writing bool
	working int // works under way
	saving  *checkpoint
	ids     member.ID
	waits   map[member.ID]func(member.Answer)
}

func newNode(s *sim, i int) *node {
	dir := fmt.Sprintf("%s/node%d", s.dir, i)
	return &node{sim: s, n: i, id: uint64(i + 1), log: memfs.New(), files: memfs.New(), hangs: map[string]bool{},
		stores: stores{dir: dir, notes: map[string]uint64{}, sure: map[string]uint64{}}, off: s.between(-50, 50)}
}

// clock returns what the node's clock shows, in Unix milliseconds.
func (n *node) clock() int64 { return base + n.sim.now + n.off }

// settings differ between nodes, as they do while an operator changes them.
func (n *node) settings() member.Settings {
	return member.Settings{Lateness: lateness, MaxPending: maxPending, MaxQueued: 50, Tiles: tile.Config{
		CounterTTL: time.Hour, GaugeTTL: time.Duration(20+10*n.n) * time.Second, CheckTTL: time.Hour, UpDownTTL: time.Hour,
		OutOfOrder: window}}
}

// start starts the process of a node from its disk. fresh is where the log of a new node begins.
func (s *sim) start(n *node, fresh *entrylog.Base) {
	n.life++
	n.openStores()
	settings := n.settings()
	state := member.New(group, &settings.Tiles)
	applied := uint64(1)
	c, err := n.load()
	if err == nil && c != nil {
		state, err = n.restore(c, &settings.Tiles)
		applied = c.Base
	}
	if err != nil {
		s.fail("node %d does not start: %v", n.n, err)
		return
	}
	r, l, err := replica.Open(n.log, replica.Config{ID: n.id, Applied: applied, New: fresh,
		Rand: rand.New(rand.NewPCG(s.rng.Uint64(), n.id)),
		Log:  entrylog.Options{Mark: s.rng.Uint32(), SegmentBytes: segmentBytes, CacheBytes: 16 << 10}})
	if err != nil {
		s.fail("node %d does not start: %v", n.n, err)
		return
	}
	n.entries, n.up, n.leads, n.whole = l, true, replica.Leadership{}, applied
	n.toWrite, n.writing, n.working, n.saving, n.waits = nil, false, 0, nil, map[member.ID]func(member.Answer){}
	waiting := state.Queued()
	for _, index := range waiting {
		data, err := n.entry(index)
		if err == nil {
			err = state.Requeue(index, data)
		}
		if err != nil {
			s.fail("node %d: entry %d, which waits for a store: %v", n.n, index, err)
			return
		}
	}
	s.covered.requeued += len(waiting)
	if c != nil {
		s.covered.restored++
		n.whole = max(n.whole, c.Last)
	}
	n.node = member.NewNode(r, state, settings)
	s.tell("node %d: starts at entry %d, its log ends at %d, %d requests wait", n.n, applied, l.Last(), len(waiting))
	period := s.between(95, 106) // no two clocks run at the same speed
	s.tick(n, s.between(0, period), period)
	s.at(s.between(3*second, 6*second), n, func() { s.beginCheckpoint(n) })
	s.tendLater(n)
	s.drain(n)
}

// entry reads an entry from the log.
func (n *node) entry(index uint64) ([]byte, error) {
	found, err := n.entries.Entries(index, index+1, 1<<30)
	if err != nil || len(found) == 0 {
		return nil, cmp.Or(err, errors.New("it is not in the log"))
	}
	return found[0].GetData(), nil
}

func (s *sim) tick(n *node, after, period int64) {
	if s.ending {
		return
	}
	s.at(after, n, func() {
		if s.ending {
			return
		}
		n.node.Tick(n.clock())
		s.drain(n)
		s.tick(n, period, period)
	})
}

func (s *sim) tendLater(n *node) {
	s.at(s.between(4*second, 12*second), n, func() {
		if !s.ending {
			n.tend()
			s.tendLater(n)
		}
	})
}

// stop ends the process of a node, and with it all that is in memory.
func (s *sim) stop(n *node) {
	n.up = false
	n.life++
	n.pausedUntil = 0
	n.leads = replica.Leadership{}
}

// drain does the work that the member has for its process.
func (s *sim) drain(n *node) {
	out, err := n.node.Take()
	if err != nil {
		s.fail("node %d: %v", n.n, strings.SplitN(err.Error(), "\n", 2)[0])
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
	slices.SortFunc(out.Work, func(a, b *member.Work) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(len(a.Requests), len(b.Requests)))
	})
	for _, w := range out.Work {
		n.working++
		s.beginWork(n, w)
	}
	for _, a := range out.Answers {
		answer := n.waits[a.ID]
		delete(n.waits, a.ID)
		answer(a)
	}
	if out.Members != nil {
		n.members = *out.Members
		if out.Leadership.Leads {
			s.tell("node %d: voters %v, learners %v, leaving %v", n.n, n.members.Voters, n.members.Learners, n.members.Leaving)
		}
	}
	s.follow(n, out.Leadership)
}

// follow notes elections.
func (s *sim) follow(n *node, now replica.Leadership) {
	if now.Leads && (!n.leads.Leads || n.leads.Term != now.Term) {
		s.tell("node %d leads in term %d", n.n, now.Term)
		s.covered.elections++
		s.oracle.leads(s, n, now.Term)
	}
	n.leads = now
}

// call asks the member for something that it answers later.
func (s *sim) call(n *node, what func(member.ID), answer func(member.Answer)) {
	n.ids++
	n.waits[n.ids] = answer
	what(n.ids)
	s.drain(n)
}

func (s *sim) push(n *node, bytes []byte, answer func(error)) {
	s.call(n, func(id member.ID) { n.node.Push(n.clock(), id, bytes) }, func(a member.Answer) { answer(a.Err) })
}

func (s *sim) write(n *node, r entry.Request, answer func(*outcome.Outcome, error)) {
	r.Arrival = n.clock()
	s.call(n, func(id member.ID) { n.node.Write(id, &entry.Entry{Kind: entry.KindRequest, Request: r}) },
		func(a member.Answer) { answer(a.Outcome, a.Err) })
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
	takes := s.between(1, 5)
	if n.slowDisk {
		takes = s.between(50, 800)
	}
	s.at(takes, n, func() { s.writeLog(n) })
}

func (s *sim) writeLog(n *node) {
	w := n.toWrite[0]
	if len(w.Entries) > 0 && w.Entries[0].Index <= n.entries.Last() {
		s.covered.replaced++
		s.tell("node %d: replaces its entries from %d on", n.n, w.Entries[0].Index)
	}
	if err := n.entries.Append(&w.Write); err != nil {
		s.fail("node %d: %v", n.n, err)
		return
	}
	n.toWrite, n.writing = n.toWrite[1:], false
	n.node.Stored(w.Number)
	s.nextWrite(n)
	s.drain(n)
}

// breakOff does a part of the write that is under way: the process dies at one of the write's calls.
func (s *sim) breakOff(n *node) {
	type death struct{}
	calls := []int{0, 1, 1, 1, 2, 4}[s.rng.IntN(6)] // most writes are a write and a sync
	n.log.Fail = func(string, string) error {
		if calls--; calls < 0 {
			panic(death{})
		}
		return nil
	}
	defer func() {
		n.log.Fail = nil
		if cause := recover(); cause != nil {
			if _, ok := cause.(death); !ok {
				panic(cause)
			}
			s.covered.torn++
		}
	}()
	_ = n.entries.Append(&n.toWrite[0].Write) // the log's memory is gone with the process
}

// beginWork gives a work to the stores, which take it after a while.
func (s *sim) beginWork(n *node, w *member.Work) {
	if n.hangs[w.Tenant] {
		s.at(200*ms, n, func() { s.beginWork(n, w) })
		return
	}
	takes := s.between(1, 20)
	if n.slowStores {
		takes = s.between(100, 1500)
	}
	s.at(takes, n, func() { s.work(n, w, 0) })
}

// work takes the steps of a work. A crash may come between any two of them.
func (s *sim) work(n *node, w *member.Work, step int) {
	next := func() { s.at(s.between(0, 10), n, func() { s.work(n, w, step+1) }) }
	switch {
	case len(w.Requests) > 0 && step == 0:
		for _, r := range w.Requests {
			if err := r.Decode(); err != nil {
				s.fail("node %d: %v", n.n, err)
				return
			}
		}
		n.writeRequests(w)
		next()
	case len(w.Tiles) > 0 && step < tile.NumWidths:
		n.writeTiles(w, tile.Width(step))
		next()
	default:
		for _, r := range w.Requests {
			s.oracle.outcome(s, n, r.Index, &r.Write.Outcome)
		}
		n.node.Done(w)
		n.working--
		n.saveTenant(w.Tenant) // before the next requests are on their way
		n.stores.notes[w.Tenant] = max(n.stores.notes[w.Tenant], n.node.State().VisibleTiles(w.Tenant))
		s.drain(n)
	}
}

// checkpoint is a saved state of a member.
type checkpoint struct {
	Base, Low, Last uint64 // Last is the highest index of a section
	Group           []byte
	Shards          map[uint16]section
	Tenants         map[string][]byte

	todo    []uint16
	tenants []string
}

type section struct {
	Index uint64
	Bytes []byte
}

// beginCheckpoint begins to save the state, some sections at a time.
func (s *sim) beginCheckpoint(n *node) {
	if s.ending {
		return
	}
	m := n.node.State()
	if m.Index() < 2 {
		s.at(second, n, func() { s.beginCheckpoint(n) })
		return
	}
	c := &checkpoint{Base: m.Index(), Low: m.Index() + 1, Last: m.Index(), Group: m.AppendGroup(nil),
		Shards: map[uint16]section{}, Tenants: map[string][]byte{}, tenants: m.Tenants()}
	for number := range uint16(series.Shards) {
		if m.Shards().Of(number) != nil {
			c.todo = append(c.todo, number)
		}
	}
	s.rng.Shuffle(len(c.todo), func(i, j int) { c.todo[i], c.todo[j] = c.todo[j], c.todo[i] })
	n.saving = c
	s.at(s.between(10, 200), n, func() { s.goOnSaving(n) })
}

func (s *sim) goOnSaving(n *node) {
	m, c := n.node.State(), n.saving
	for range min(len(c.todo), 8) {
		number := c.todo[0]
		c.todo = c.todo[1:]
		b, _ := m.AppendShard(nil, number)
		c.Shards[number], c.Last = section{m.Index(), b}, max(c.Last, m.Index())
	}
	if len(c.tenants) > 0 && s.chance(50) {
		n.saveTenant(c.tenants[s.rng.IntN(len(c.tenants))])
	}
	if len(c.todo)+len(c.tenants) > 0 {
		s.at(s.between(10, 200), n, func() { s.goOnSaving(n) })
		return
	}
	if !s.mistakes.noSync {
		n.syncStores()
	}
	s.at(s.between(1, 100), n, func() { s.endCheckpoint(n) })
}

// saveTenant saves the section of a tenant, if the checkpoint under way still needs it and no requests
// are on their way to the stores.
func (n *node) saveTenant(name string) {
	c := n.saving
	if c == nil || !slices.Contains(c.tenants, name) {
		return
	}
	if b, low, ok := n.node.State().AppendTenant(nil, name, c.Base); ok {
		c.Tenants[name], c.Low = b, min(c.Low, low)
		c.tenants = slices.DeleteFunc(c.tenants, func(other string) bool { return other == name })
	}
}

const checkpointName, checkpointTemp = "checkpoint", "checkpoint.tmp"

func (s *sim) endCheckpoint(n *node) {
	c := n.saving
	n.saving = nil
	if err := n.save(c); err != nil {
		s.fail("node %d: save a checkpoint: %v", n.n, err)
		return
	}
	if err := n.entries.Compact(c.Low-1, keepBytes); err != nil {
		s.fail("node %d: %v", n.n, err)
		return
	}
	s.covered.checkpoints++
	s.at(s.between(3*second, 8*second), n, func() { s.beginCheckpoint(n) })
}

func (n *node) save(c *checkpoint) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(c); err != nil {
		return err
	}
	f, err := n.files.Create(checkpointTemp)
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	return cmp.Or(err, f.Sync(), f.Close(), n.files.Rename(checkpointTemp, checkpointName), n.files.SyncDir())
}

// load returns the last checkpoint, nil if there is none.
func (n *node) load() (*checkpoint, error) {
	f, size, err := n.files.Open(checkpointName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, err
	}
	c := &checkpoint{}
	return c, gob.NewDecoder(bytes.NewReader(b)).Decode(c)
}

func (n *node) restore(c *checkpoint, config *tile.Config) (*member.Member, error) {
	m, err := member.Restore(group, config, c.Group)
	for _, number := range slices.Sorted(maps.Keys(c.Shards)) {
		if err == nil {
			err = m.RestoreShard(number, c.Shards[number].Index, c.Shards[number].Bytes)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		if err == nil {
			err = m.RestoreTenant(name, c.Tenants[name])
		}
	}
	if err == nil {
		m.Restored(n.stores.notes)
	}
	return m, err
}
