package member

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/prometheus/model/labels"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/series"
)

var settings = Settings{Lateness: 2 * time.Second, Tiles: config, MaxPending: 1 << 20,
	MaxQueued: 1 << 20, MaxQueuedSum: 1 << 20, MaxBehind: 1 << 20}

// three is a group with its nodes. A message arrives at once, and a Write is stored at once, unless the
// node is cut off or slow.
type three struct {
	t     *testing.T
	now   int64
	nodes []*testNode
}

type testNode struct {
	*Node
	log     *entrylog.Log
	stores  *stores
	parted  bool
	frozen  bool             // its disk takes nothing
	unheard int              // how many of its next requests to lead are lost
	short   bool             // it says that its disk is nearly full
	muffled bool             // the entries that it sends are lost, and its other messages arrive
	writes  []*replica.Write // not stored yet
	yields  int
	hangs   bool            // its stores take nothing
	sick    map[string]bool // tenants whose stores take nothing
	clock   int64           // milliseconds ahead of the right time
	work    []*Work         // not taken yet
	answers map[ID]Answer   // all of them
	leads   replica.Leadership
}

func newThree(t *testing.T, n uint64) *three {
	g := &three{t: t, now: base}
	var voters []uint64
	for id := uint64(1); id <= n; id++ {
		voters = append(voters, id)
	}
	for range voters {
		g.add(voters, settings)
	}
	g.pass(5000)
	return g
}

// add begins the next node of a group that was founded by these voters.
func (g *three) add(founders []uint64, s Settings) *testNode {
	id := uint64(len(g.nodes) + 1)
	r, l, err := replica.Open(memfs.New(), replica.Config{
		ID: id, Applied: 1, New: &entrylog.Base{Index: 1, Term: 1, Members: &raftpb.ConfState{Voters: founders}},
		Rand: rand.New(rand.NewPCG(id, 5)), Log: entrylog.Options{Mark: 7}})
	if err != nil {
		g.t.Fatal(err)
	}
	n := &testNode{Node: NewNode(r, New(group, &config), s), log: l, stores: newStores(), answers: map[ID]Answer{}}
	g.nodes = append(g.nodes, n)
	return n
}

// loses reports whether a message of the node is lost, since it is a request to lead: see unheard.
func (n *testNode) loses(m *replica.Message) bool {
	if n.unheard == 0 || !strings.Contains(m.String(), "MsgTimeoutNow") {
		return false
	}
	n.unheard--
	return true
}

// settle lets all nodes do what they have to do.
func (g *three) settle() {
	for busy := true; busy; {
		busy = false
		for _, from := range g.nodes {
			out, err := from.Take()
			if err != nil {
				g.t.Fatal(err)
			}
			from.writes = append(from.writes, out.Writes...)
			for len(from.writes) > 0 && !from.frozen {
				w := from.writes[0]
				from.writes = from.writes[1:]
				busy = true
				if err := from.log.Append(&w.Write); err != nil {
					g.t.Fatal(err)
				}
				from.Stored(w.Number)
			}
			for _, m := range out.Messages {
				if to := g.nodes[m.To-1]; !from.parted && !to.parted && !from.loses(&m) && (m.Urgent || !from.muffled) {
					busy = true
					sent := Message{m, g.now + from.clock, from.state.Index(), from.state.Knows(), from.short}
					if err := to.Step(g.now+to.clock, sent); err != nil {
						g.t.Fatal(err)
					}
				}
			}
			var kept []*Work
			for _, w := range append(from.work, out.Work...) {
				if from.hangs || from.sick[w.Tenant] {
					kept = append(kept, w)
					continue
				}
				busy = true
				from.stores.take(g.t, w)
				from.Done(w)
			}
			from.work = kept
			for _, a := range out.Answers {
				if _, twice := from.answers[a.ID]; twice {
					g.t.Errorf("call %d is answered twice", a.ID)
				}
				from.answers[a.ID] = a
			}
			from.leads = out.Leadership
			if out.YieldsTo != 0 {
				from.yields++
			}
		}
	}
}

// pass lets time pass, in milliseconds.
func (g *three) pass(ms int64) {
	for ; ms > 0; ms -= 100 {
		g.now += 100
		for _, n := range g.nodes {
			n.Tick(g.now + n.clock)
		}
		g.settle()
	}
}

// leader returns the node that leads.
func (g *three) leader() *testNode {
	g.t.Helper()
	for _, n := range g.nodes {
		if n.leads.Leads && !n.parted {
			return n
		}
	}
	g.t.Fatal("nobody leads")
	return nil
}

func (g *three) others(than *testNode) (all []*testNode) {
	for _, n := range g.nodes {
		if n != than {
			all = append(all, n)
		}
	}
	return all
}

// pushOf makes a push with a counter of a tenant.
func pushOf(now int64, tenant string, producer, sequence uint64, value float64) []byte {
	inc := batch.Increment{Key: series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "c")), Samples: 1,
		Value: value}
	var w batch.Writer
	w.Begin(batch.Header{Tenant: []byte(tenant), Producer: producer, Incarnation: 1, Sequence: sequence,
		Second: now / 1000, Birth: now * 1e6})
	w.Add(series.Shard(tenant, inc.Key), &inc)
	return entry.AppendPush(nil, &entry.Push{Producer: producer, Incarnation: 1, Sequence: sequence, Shape: 1,
		Batches: entry.List{}.Append(w.End()[0].Bytes)})
}

// namedThree returns three nodes that give names to owners. A tenant has room for three names.
func namedThree(t *testing.T) *three {
	s := settings
	s.Names = func() entry.Names { return entry.Names{MaxNames: 3, Unused: 1e9, CounterTTL: 1e6, GaugeTTL: 1e6} }
	g := &three{t: t, now: base}
	for range 3 {
		g.add([]uint64{1, 2, 3}, s)
	}
	g.pass(5000)
	return g
}

// windowOf makes a push with series of tenant "one". Each string in `all` is a kind and a name. Classic
// timers have one bound.
func windowOf(now int64, producer, sequence uint64, all ...string) []byte {
	var w batch.Writer
	w.Begin(batch.Header{Tenant: []byte("one"), Producer: producer, Incarnation: 1, Sequence: sequence,
		Second: now / 1000, Birth: now * 1e6})
	for _, words := range all {
		kind, name, _ := strings.Cut(words, " ")
		inc := batch.Increment{Samples: 1, Value: 1}
		of := series.Counter
		switch kind {
		case "gauge":
			of, inc.At = series.Gauge, now*1e6
		case "classic":
			of, inc.Classic = series.Timer, []float64{1, 0}
			inc.Policy = series.AppendPolicy(nil, &series.Policy{Schema: 3, MaxBuckets: 160, Bounds: []float64{1}})
		case "fine":
			of, inc.Classic = series.Timer, []float64{1, 0, 0}
			inc.Policy = series.AppendPolicy(nil, &series.Policy{Schema: 3, MaxBuckets: 160, Bounds: []float64{1, 2}})
		}
		inc.Key = series.AppendKey(nil, of, labels.FromStrings("__name__", name, "host", fmt.Sprint(producer)))
		w.Add(series.Shard("one", inc.Key), &inc)
	}
	var batches entry.List
	for _, b := range w.End() {
		batches = batches.Append(b.Bytes)
	}
	return entry.AppendPush(nil, &entry.Push{Producer: producer, Incarnation: 1, Sequence: sequence, Shape: 1,
		Batches: batches})
}

// totals returns the last total of each counter that a node has stored, by name and host.
func (n *testNode) totals() map[string]float64 {
	all := map[string]float64{}
	for key, v := range n.stores.tiles {
		if series, is := strings.CutPrefix(key, "one10s "); is && v == v {
			series = series[:strings.LastIndex(series, "}")+1]
			all[series] = max(all[series], v)
		}
	}
	return all
}

// A name has one owner in the whole group, whichever collectors claim it at whichever leader. All
// members store the same series. A window that comes again counts once, though its series have other
// names in the log.
func TestANameHasOneOwner(t *testing.T) {
	g := namedThree(t)
	first := g.leader()
	a, b := windowOf(g.now, 9, 1, "counter x", "counter y"), windowOf(g.now, 8, 1, "gauge x", "counter x")
	first.Push(g.now, 1, a)
	first.Push(g.now, 2, b) // both come before the name is claimed
	g.pass(1000)
	first.parted = true
	g.pass(5000)
	second := g.leader()
	second.Push(g.now, 3, b) // its answer was lost
	g.pass(100)
	second.Push(g.now, 4, windowOf(g.now, 8, 2, "gauge x", "counter x", "gauge y"))
	first.parted = false
	g.pass(60_000)
	for id, n := range map[ID]*testNode{1: first, 2: first, 3: second, 4: second} {
		if answer, answered := n.answers[id]; !answered || answer.Err != nil {
			t.Errorf("push %d: answered %v, error %v", id, answered, answer.Err)
		}
	}
	hashed := "y_gauge_" + fmt.Sprintf("%08x", uint32(xxhash.Sum64String("y\x00")))
	want := map[string]float64{
		`{__name__="x", host="9"}`: 1, `{__name__="y", host="9"}`: 1, `{__name__="x", host="8"}`: 2,
		`{__name__="x_gauge", host="8"}`: 1, `{__name__="` + hashed + `", host="8"}`: 1, // there is no room for a fourth name
	}
	for i, n := range g.nodes {
		if got := n.totals(); !maps.Equal(got, want) {
			t.Errorf("node %d has %v, want %v", i, got, want)
		}
		if string(n.state.AppendGroup(nil)) != string(g.nodes[0].state.AppendGroup(nil)) {
			t.Errorf("node %d has another state", i)
		}
	}
}

// Timers of two forms have one key in windows, and two names in tiles.
func TestAFormHasItsName(t *testing.T) {
	g := namedThree(t)
	leader := g.leader()
	leader.Push(g.now, 1, windowOf(g.now, 9, 1, "classic t", "fine t"))
	leader.Push(g.now, 2, windowOf(g.now, 8, 1, "fine t"))
	g.pass(60_000)
	names := map[string]int{}
	for key := range leader.totals() {
		name, _, _ := strings.Cut(key, ", ")
		names[name]++
	}
	for _, want := range []string{`{__name__="t_count"`, `{__name__="t_classic_count"`} {
		if names[want] == 0 {
			t.Errorf("no series begins with %s: %v", want, names)
		}
	}
	if n := len(leader.state.Names().Metadata("one")); n != 2 {
		t.Errorf("%d names are claimed, want 2", n)
	}
}

// A name that stays in use is claimed again now and then, so that it keeps its owner.
func TestANameInUseIsClaimedAgain(t *testing.T) {
	g := namedThree(t)
	leader := g.leader()
	seen := func() int64 {
		_, seen, _ := leader.state.Names().Of("one").Find([]byte("x"), series.Counter, "")
		return seen
	}
	var times []int64
	for i := range uint64(60) {
		leader.Push(g.now, ID(i), windowOf(g.now, 9, i+1, "counter x"))
		g.pass(30_000)
		if at := seen(); len(times) == 0 || times[len(times)-1] != at {
			times = append(times, at)
		}
	}
	if len(times) != 3 {
		t.Errorf("within 30 min, the name was claimed at %d, want 3 claims", times)
	}
}

func requestEntry(t *testing.T, now int64) *entry.Entry {
	rnd := rand.New(rand.NewPCG(uint64(now), 3))
	return &entry.Entry{Kind: entry.KindRequest, Request: requestOf(t, rnd, "one", now)}
}

// total returns the newest total of the counter in a node's store of 10 s.
func (n *testNode) total(tenant string) (v float64) {
	for key, x := range n.stores.tiles {
		var at int64
		if _, err := fmt.Sscanf(key, tenant+"10s {__name__=\"c_total\"} %d", &at); err == nil || len(key) > 0 {
			v = max(v, x)
		}
	}
	return v
}

// Windows and requests are acknowledged by the leader, and all members store the same.
func TestAGroupOfThree(t *testing.T) {
	g := newThree(t, 3)
	leader := g.leader()
	for i := range uint64(5) {
		leader.Push(g.now, ID(i), pushOf(g.now, "one", 9, i+1, 2))
		leader.Write(g.now, ID(100+i), requestEntry(t, g.now))
		g.settle()
		if a, answered := leader.answers[ID(i)]; !answered || a.Err != nil {
			t.Errorf("push %d: %+v", i, a)
		}
		if a := leader.answers[ID(100+i)]; a.Err != nil || a.Outcome == nil || *a.Outcome == (outcome.Outcome{}) {
			t.Errorf("request %d: %+v", i, a)
		}
		g.pass(1000)
	}
	other := g.others(leader)[0]
	other.Push(g.now, 1, pushOf(g.now, "one", 9, 6, 2))
	other.Write(g.now, 2, requestEntry(t, g.now))
	g.pass(20_000)
	for id := range ID(2) {
		if a := other.answers[id+1]; !errors.Is(a.Err, replica.ErrNotLeader) {
			t.Errorf("a follower answers %+v", a)
		}
	}
	for i, n := range g.nodes {
		if n.total("one") != 10 || len(n.stores.requests) == 0 || len(n.stores.requests) != len(leader.stores.requests) {
			t.Errorf("node %d stores a total of %v, want 10, and %d samples of requests, want %d",
				i+1, n.total("one"), len(n.stores.requests), len(leader.stores.requests))
		}
	}
}

// A leader that is cut off answers its callers when it learns that another member leads. Its proposals
// count nowhere. When they are sent again, they count once.
func TestALeaderIsParted(t *testing.T) {
	g := newThree(t, 3)
	old := g.leader()
	old.parted = true
	push := pushOf(g.now, "one", 9, 1, 3)
	old.Push(g.now, 1, push)
	old.Push(g.now, 2, pushOf(g.now, "one", 8, 1, 5)) // waits for the entry under way
	old.Write(g.now, 3, requestEntry(t, g.now))
	old.Barrier(4, "one")
	g.pass(5000)
	for id := range ID(3) {
		if a, answered := old.answers[id+1]; !answered || !errors.Is(a.Err, ErrLost) {
			t.Errorf("call %d: answered %v, error %v, want ErrLost", id+1, answered, a.Err)
		}
	}
	leader := g.leader()
	leader.Push(g.now, 1, push)
	g.settle()
	if a := leader.answers[1]; a.Err != nil {
		t.Fatal(a.Err)
	}
	old.parted = false
	g.pass(20_000)
	if a, answered := old.answers[4]; !answered || a.Err != nil {
		t.Errorf("the barrier: answered %v, error %v", answered, a.Err)
	}
	for i, n := range g.nodes {
		if n.total("one") != 3 {
			t.Errorf("node %d has a total of %v, want 3", i+1, n.total("one"))
		}
	}
}

// A leader whose entries do not get onto its disk, or through its network, lets another member lead
// within three seconds, though its heartbeats arrive. A push that the old leader could not count is sent
// again, and counts once.
func TestAStuckLeaderYields(t *testing.T) {
	for name, begin := range map[string]func(g *three, leader *testNode){
		"its disk is frozen":              func(_ *three, leader *testNode) { leader.frozen = true },
		"its entries do not arrive":       func(_ *three, leader *testNode) { leader.muffled = true },
		"and its first messages are lost": func(_ *three, leader *testNode) { leader.frozen, leader.unheard = true, 2 },
	} {
		t.Run(name, func(t *testing.T) {
			g := newThree(t, 3)
			old := g.leader()
			g.pass(10_000) // nothing is stuck
			if g.leader() != old {
				t.Fatal("a leader yielded without entries under way")
			}
			begin(g, old)
			takes := int64(2200)
			if strings.Contains(name, "lost") {
				takes += 4000
			}
			push := pushOf(g.now, "one", 9, 1, 3)
			old.Push(g.now, 1, push)
			old.Write(g.now, 2, requestEntry(t, g.now))
			g.pass(takes)
			leader := g.leader()
			if leader == old {
				t.Fatalf("the old leader still leads after %d ms", takes)
			}
			for id := range ID(2) {
				if a, answered := old.answers[id+1]; !answered || !errors.Is(a.Err, ErrLost) {
					t.Errorf("call %d: answered %v, error %v, want ErrLost", id+1, answered, a.Err)
				}
			}
			leader.Push(g.now, 1, push)
			g.pass(500)
			if a, answered := leader.answers[1]; !answered || a.Err != nil {
				t.Errorf("the repeated push: answered %v, error %v", answered, a.Err)
			}
			for _, n := range g.nodes {
				n.frozen, n.muffled = false, false
			}
			g.pass(20_000)
			for i, n := range g.nodes {
				if n.total("one") != 3 {
					t.Errorf("node %d has a total of %v, want 3", i+1, n.total("one"))
				}
			}
		})
	}
}

// A leader whose stores refuse requests lets another member lead, whose stores may take them.
func TestALeaderWhoseStoresFailYields(t *testing.T) {
	g := newThree(t, 3)
	old := g.leader()
	old.StoresFail(true)
	g.pass(1000)
	if g.leader() == old {
		t.Fatal("a leader whose stores refuse requests still leads after 1 s")
	}
}

// A leader that is stuck twice within a minute yields both times.
func TestAStuckLeaderYieldsAgain(t *testing.T) {
	g := newThree(t, 3)
	var first *testNode
	for i := ID(1); i <= 2; i++ {
		old := g.leader()
		if first == nil {
			first = old
		}
		if old != first {
			t.Fatal("the first leader does not lead again")
		}
		old.frozen = true
		old.Push(g.now, i, pushOf(g.now, "one", 9, uint64(i), 3))
		g.pass(4000)
		if g.leader() == old {
			t.Fatalf("the leader was stuck for the %d. time, and did not yield", i)
		}
		old.frozen = false
		g.pass(10_000)
		if err := g.leader().Transfer(uint64(slices.Index(g.nodes, first) + 1)); err != nil {
			t.Fatal(err)
		}
		g.pass(1000)
	}
}

// If all members are slow, each soon yields at most once a minute.
func TestSlowMembersYieldSeldom(t *testing.T) {
	g := newThree(t, 3)
	const minutes = 5
	for i := range ID(minutes * 20) {
		for _, n := range g.nodes {
			n.frozen = true
		}
		g.leader().Push(g.now, i, pushOf(g.now, "one", 9, uint64(i)+1, 3))
		g.pass(2900)
		for _, n := range g.nodes {
			n.frozen = false
		}
		g.pass(100)
	}
	sum := 0
	for i, n := range g.nodes {
		most := minutes + 4 // rests of 5, 10, 20 and 40 s come first
		if sum += n.yields; n.yields > most {
			t.Errorf("node %d yielded %d times in %d minutes, want at most %d times", i+1, n.yields, minutes, most)
		}
	}
	if sum < minutes {
		t.Errorf("the members yielded only %d times, too few to show anything", sum)
	}
}

// A barrier of a tenant waits until the tenant's stores on this member have what was acknowledged. The
// stores of other tenants, and those of other members, do not hold it up.
func TestABarrierWaitsForStores(t *testing.T) {
	g := newThree(t, 3)
	leader := g.leader()
	behind := g.others(leader)[0]
	behind.hangs = true
	leader.Write(g.now, 1, requestEntry(t, g.now))
	g.settle()
	if a, answered := leader.answers[1]; !answered || a.Err != nil {
		t.Fatalf("the write: answered %v, error %v", answered, a.Err)
	}
	behind.Barrier(2, "one")
	behind.Barrier(3, "two")
	leader.Barrier(4, "one")
	g.pass(1000)
	if _, answered := behind.answers[2]; answered {
		t.Error("the barrier ended before the store had the request")
	}
	_, two := behind.answers[3]
	_, one := leader.answers[4]
	if !two || !one {
		t.Errorf("the barrier of tenant \"two\": answered %v; the barrier on the other member: answered %v", two, one)
	}
	behind.hangs = false
	g.pass(200)
	if _, answered := behind.answers[2]; !answered {
		t.Error("the store has everything, but the barrier has not ended")
	}
}

// After an election no tile is closed until all recent senders were heard or five seconds have passed.
func TestANewLeaderWaitsForSenders(t *testing.T) {
	g := newThree(t, 3)
	sequence := uint64(0)
	push := func(n *testNode) {
		sequence++
		n.Push(g.now, ID(1000+sequence), pushOf(g.now, "one", 9, sequence, 1))
	}
	push(g.leader())
	g.pass(11_000) // the members know all senders of the last 10 s
	old := g.leader()
	g.pass(9000 - g.now%10_000 + 4000 - 1000) // 13 s: no shard has closed the tile yet, and one is due soon
	push(old)
	g.settle()
	old.parted = true
	g.pass(2500)
	leader := g.leader()
	closed := func() int64 {
		return leader.State().Shards().Of(series.Shard("one", series.AppendKey(nil, series.Counter,
			labels.FromStrings("__name__", "c")))).Closed()
	}
	before := closed()
	g.pass(3000)
	if closed() != before {
		t.Error("the new leader closed a tile before it heard the sender")
	}
	push(leader)
	g.pass(300)
	if closed() == before {
		t.Error("the sender was heard, but no tile is closed")
	}
}

// A new leader does not wait for a sender that has left. It waits for one that has begun again since.
func TestNobodyWaitsForASenderThatLeft(t *testing.T) {
	for name, again := range map[string]bool{"it has left": false, "its next incarnation pushes": true} {
		g := newThree(t, 3)
		sequence := uint64(0)
		push := func(n *testNode, producer, incarnation uint64) {
			t.Helper()
			sequence++
			bytes := pushOf(g.now, "one", producer, sequence, 1)
			if incarnation != 1 {
				p, _ := entry.ParsePush(bytes)
				p.Incarnation = incarnation
				bytes = entry.AppendPush(nil, &p)
			}
			n.Push(g.now, ID(1000+sequence), bytes)
			g.settle()
		}
		push(g.leader(), 8, 1)
		push(g.leader(), 9, 1)
		g.pass(11_000) // the members know all senders of the last 10 s
		old := g.leader()
		g.pass(9000 - g.now%10_000 + 4000 - 1000) // no shard has closed the tile yet, and one is due soon
		push(old, 8, 1)
		push(old, 9, 1)
		if again {
			push(old, 9, 2)
		}
		old.Push(g.now, 1, LeaveOf(entry.Push{Producer: 9, Incarnation: 1, Sequence: sequence, Shape: shape}))
		g.settle()
		if a, answered := old.answers[1]; !answered || a.Err != nil {
			t.Fatalf("the last push: answered %v, error %v", answered, a.Err)
		}
		old.parted = true
		g.pass(2500)
		leader := g.leader()
		closed := func() int64 {
			return leader.State().Shards().Of(series.Shard("one", series.AppendKey(nil, series.Counter,
				labels.FromStrings("__name__", "c")))).Closed()
		}
		before := closed()
		push(leader, 8, 1)
		g.pass(1000)
		if waits := closed() == before; waits != again {
			t.Errorf("%s: the new leader waits: %v, want %v", name, waits, again)
		}
	}
}

// A member that restarted lately does not know all senders. If it is elected, it closes no tile for five seconds,
// though all senders that it knows were heard.
func TestANewLeaderThatRestartedWaitsLonger(t *testing.T) {
	for restarted, waits := range map[bool]bool{false: false, true: true} {
		g := newThree(t, 3)
		sequence := uint64(0)
		push := func(n *testNode) {
			sequence++
			n.Push(g.now, ID(1000+sequence), pushOf(g.now, "one", 9, sequence, 1))
			g.settle()
		}
		push(g.leader())
		g.pass(11_000)
		old := g.leader()
		g.pass(9000 - g.now%10_000 + 4000 - 1000) // a tile is due soon
		if restarted {
			for _, n := range g.nodes {
				n.state.senders, n.state.since = map[uint64]lastWindows{}, g.now
			}
		}
		push(old)
		old.parted = true
		g.pass(2500)
		leader := g.leader()
		closed := func() int64 {
			return leader.State().Shards().Of(series.Shard("one", series.AppendKey(nil, series.Counter,
				labels.FromStrings("__name__", "c")))).Closed()
		}
		before := closed()
		push(leader)
		g.pass(1000)
		if got := closed() == before; got != waits {
			t.Errorf("restarted %v: the new leader waits: %v, want %v", restarted, got, waits)
		}
		if g.pass(5000); closed() == before {
			t.Errorf("restarted %v: no tile is closed", restarted)
		}
	}
}

// The clock of a new leader leaps ahead, and then back. The time of its election must not seem later, or some
// senders would no longer be recent, and the leader would not wait for them. It may seem earlier.
func TestALeapDoesNotPostponeAnElection(t *testing.T) {
	g := newThree(t, 3)
	n := g.leader()
	since := n.leader.since
	n.clock += 1900
	if g.pass(100); n.leader.since != since {
		t.Errorf("after a leap ahead, the election is %d ms later", n.leader.since-since)
	}
	n.clock -= 1900
	if g.pass(100); n.leader.since != since-1800 {
		t.Errorf("after a leap back, the election is %d ms later, want 1800 ms earlier", n.leader.since-since)
	}
}

// A member whose clock is wrong does not lead for long: it would close tiles of the future.
func TestAWrongClockDoesNotLead(t *testing.T) {
	g := newThree(t, 3)
	wrong := g.leader()
	wrong.Push(g.now, 1, pushOf(g.now, "one", 9, 1, 1))
	g.settle()
	wrong.clock = 3_600_000
	g.pass(10_000)
	if g.leader() == wrong {
		t.Error("the member with the wrong clock leads")
	}
	for range 10 { // it does not campaign
		leader := g.leader()
		leader.parted = true
		for range 50 { // it would soon hand over
			if g.pass(100); wrong.leads.Leads {
				t.Error("the member with the wrong clock leads again")
			}
		}
		leader.parted = false
		g.pass(1000)
	}
	g.pass(20_000)
	for i, n := range g.nodes {
		if n.total("one") != 1 {
			t.Errorf("node %d has a total of %v, want 1", i+1, n.total("one"))
		}
		for number := range uint16(series.Shards) {
			if s := n.State().Shards().Of(number); s != nil && s.Closed() > g.now {
				t.Fatalf("node %d closed a tile of the future", i+1)
			}
		}
	}
}

// A demoted leader hands over at once, and leads no more. It still votes: the others elect each other without the
// third.
func TestADemotedMemberDoesNotLead(t *testing.T) {
	g := newThree(t, 3)
	demoted := g.leader()
	demoted.Demote(true)
	g.pass(500)
	if g.leader() == demoted {
		t.Error("the demoted member leads half a second later")
	}
	for range 10 {
		old := g.leader()
		old.parted = true
		g.pass(5000)
		if leader := g.leader(); leader == demoted || leader == old {
			t.Error("the member that is not demoted does not lead")
		}
		old.parted = false
		g.pass(1000)
	}
}

// A leader with a wrong clock hands over to a member that answers, and not to one that fell silent a
// moment ago.
func TestAWrongClockHandsOverToTheLiving(t *testing.T) {
	g := newThree(t, 3)
	wrong := g.leader()
	g.others(wrong)[0].parted = true
	g.pass(300)
	wrong.clock = 3_600_000
	g.pass(500)
	if leader := g.leader(); leader != g.others(wrong)[1] {
		t.Error("the member with the wrong clock leads")
	}
}

// A leader whose clock is a little fast closes tiles at most a second too early.
func TestAFastClockIsBounded(t *testing.T) {
	g := newThree(t, 3)
	leader := g.leader()
	leader.clock = 1900
	leader.Push(g.now, 1, pushOf(g.now, "one", 9, 1, 1))
	for range 300 {
		g.pass(100)
		for number := range uint16(series.Shards) {
			s := leader.State().Shards().Of(number)
			if due := g.now - 1000 - spread*int64(number)/series.Shards; s != nil && s.Closed() > due {
				t.Fatalf("shard %d closed a tile %d ms early", number, s.Closed()-due)
			}
		}
	}
}

// One of three nodes is away, and the clocks of the two others differ. No tile closes ahead of the slower clock.
// If they differ by more than 5 s, windows and requests wait until it is known which clock is right, so that no
// window is stored at another time, and no sample of the present is refused. Other entries need no time.
func TestTwoClocksDiffer(t *testing.T) {
	for _, off := range []int64{3_600_000, 40_000, 4000, -4000, -40_000, -3_600_000} {
		t.Run(fmt.Sprint(off), func(t *testing.T) {
			g := newThree(t, 3)
			leader := g.leader()
			leader.Push(g.now, 1, pushOf(g.now, "one", 9, 1, 1))
			away := g.others(leader)[0]
			away.parted = true
			g.pass(fresh + 1000)
			leader.clock = off
			g.pass(1000)
			if g.leader() != leader {
				t.Fatal("the leader no longer leads, although nobody knows whether its clock is wrong")
			}
			at := g.now
			leader.Push(g.now+off, 2, pushOf(g.now, "one", 9, 2, 1))
			leader.Push(g.now+off, 3, pushOf(g.now, "two", 8, 1, 1)) // its shard has no series yet
			leader.Write(g.now+off, 4, requestEntry(t, g.now))
			deltas := deltaOf(t, "d", remotewrite.CounterType, g.now, 7)
			leader.Write(g.now+off, 5, &deltas)
			leader.Write(g.now+off, 6, &entry.Entry{Kind: entry.KindNode, Node: entry.Node{Name: "x", Member: 9}})
			for range 200 {
				g.pass(100)
				slower := g.now + min(off, 0)
				for number := range uint16(series.Shards) {
					due := slower + maxAhead - settings.Lateness.Milliseconds() - spread*int64(number)/series.Shards
					if s := leader.State().Shards().Of(number); s != nil && s.Closed() > max(due, at) {
						t.Fatalf("shard %d closed a tile %d ms early", number, s.Closed()-due)
					}
				}
			}
			unknown := max(off, -off) > maxApart
			for id := range ID(6) {
				id++
				a, answered := leader.answers[id]
				switch waits := unknown && (id == 2 || id == 3); {
				case answered == waits:
					t.Errorf("call %d: answered %v, want %v", id, answered, !waits)
				case (a.Err != nil) != (unknown && (id == 4 || id == 5)):
					t.Errorf("call %d: answered with %v", id, a.Err)
				}
			}
			away.parted, leader.clock = false, 0
			g.pass(60_000)
			end := at - at%tileMillis + tileMillis
			if first := g.leader().storedAt(t, "one"); first != end {
				t.Errorf("the window of the tile that ends at %d is stored in the tile that ends at %d", end, first)
			}
			// A new shard begins when it gets its first window, which waited for 20 s.
			if first := g.leader().storedAt(t, "two"); first < end || first > end+20_000 {
				t.Errorf("the window of the tile that ends at %d is stored in the new shard's tile that ends at %d", end, first)
			}
		})
	}
}

// storedAt returns the time of the first tile of 10 s in which a tenant's counter has its last total.
func (n *testNode) storedAt(t *testing.T, tenant string) (first int64) {
	most := 0.0
	for key, v := range n.stores.tiles {
		if !strings.HasPrefix(key, tenant+"10s {__name__=\"c\"}") {
			continue
		}
		at, err := strconv.ParseInt(key[strings.LastIndex(key, " ")+1:], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if v > most || v == most && at < first {
			most, first = v, at
		}
	}
	return first
}

// A shard may have so many tiles to close that a window of the present, by the faster of two clocks,
// might lie beyond them. Such a shard takes no windows.
func TestTheFasterOfTwoClocksTellsWhetherAShardIsBehind(t *testing.T) {
	g := newThree(t, 2)
	leader := g.leader()
	leader.Push(g.now, 1, pushOf(g.now, "one", 9, 1, 1))
	g.pass(20_000)
	closed := int64(0)
	for number := range uint16(series.Shards) {
		if s := leader.State().Shards().Of(number); s != nil && s.Len() > 0 {
			closed = s.Closed()
		}
	}
	for _, x := range []struct {
		ours, other int64 // ms after the last closed tile
		behind      bool
	}{{48_000, 48_000, false}, {48_000, 52_000, true}, {52_000, 48_000, true}, {48_000, 44_000, false}} {
		leader.Node.leader.clocks = clocks{}
		leader.Node.leader.clocks.tell(closed + x.ours)
		leader.Node.leader.clocks.heard(2, closed+x.other)
		if leader.behind() != x.behind {
			t.Errorf("our clock is %d ms after the last closed tile, the other one %d ms: behind %v, want %v",
				x.ours, x.other, !x.behind, x.behind)
		}
	}
}

// A shard without series has no boundaries. The first window after a silence still goes into the
// tile of its own time.
func TestAShardBeginsAtThePresent(t *testing.T) {
	g := newThree(t, 1)
	n := g.leader()
	n.Push(g.now, 1, pushOf(g.now, "one", 9, 1, 1))
	g.pass(2 * 3600_000) // the shard's series is forgotten
	at := g.now
	n.Push(g.now, 2, pushOf(g.now, "one", 9, 2, 1))
	g.pass(30_000)
	newest := int64(0)
	for key := range n.stores.tiles {
		var t int64
		if _, err := fmt.Sscanf(key[strings.LastIndex(key, " ")+1:], "%d", &t); err == nil {
			newest = max(newest, t)
		}
	}
	if newest < at || newest > at+30_000 {
		t.Errorf("the newest sample is %d s after the window, want 0 to 30", (newest-at)/1000)
	}
}

// While too much waits for a tenant's stores, its new windows are refused, and other tenants' windows
// count.
func TestAFullTenant(t *testing.T) {
	g := newThree(t, 1)
	n := g.leader()
	n.settings.MaxPending = 1
	n.Push(g.now, 1, pushOf(g.now, "one", 9, 1, 1))
	n.hangs = true
	g.pass(20_000)
	n.Push(g.now, 2, pushOf(g.now, "one", 9, 2, 1))
	n.Push(g.now, 3, pushOf(g.now, "two", 8, 1, 1))
	n.Push(g.now, 4, pushOf(g.now, "one", 9, 1, 1)) // a repeat
	g.settle()
	var full *batch.FullError
	if a := n.answers[2]; !errors.As(a.Err, &full) || full.Samples["one"] != 1 {
		t.Errorf("the window: got the answer %v, want a FullError for one sample", a.Err)
	}
	for _, id := range []ID{1, 3, 4} {
		if a, answered := n.answers[id]; !answered || a.Err != nil {
			t.Errorf("push %d: answered %v, error %v", id, answered, a.Err)
		}
	}
}

// The stores of a tenant hang on one member alone. The other members go on. The member with the hanging
// stores takes nothing more before its memory fills up. It does not lead meanwhile, and catches up once
// the stores go on.
func TestAMemberWhoseStoreHangsIsBounded(t *testing.T) {
	for _, kind := range []entry.Kind{entry.KindRequest, entry.KindWindows} {
		g := newThree(t, 3)
		leader := g.leader()
		sick := g.others(leader)[0]
		sick.sick = map[string]bool{"one": true}
		for _, n := range g.nodes {
			n.settings.MaxPending, n.settings.MaxQueued = 300, 1000
		}
		for i := range 100 {
			if kind == entry.KindRequest {
				leader.Write(g.now, ID(i+1), requestEntry(t, g.now))
			} else {
				leader.Push(g.now, ID(i+1), pushOf(g.now, "one", 9, uint64(i+1), 1))
			}
			g.pass(1000)
			if a, answered := leader.answers[ID(i+1)]; !answered || a.Err != nil {
				t.Fatalf("write %d: answered %v, error %v", i, answered, a.Err)
			}
		}
		if tenant, held := sick.Held(); !held || tenant != "one" {
			t.Errorf("the member takes more: held %v by tenant %q, want true by tenant \"one\"", held, tenant)
		}
		if w := sick.state.Waiting("one"); w.Bytes+w.RequestsBytes > 8000 {
			t.Errorf("%d bytes wait", w.Bytes+w.RequestsBytes)
		}
		if at, want := sick.state.Index(), leader.state.Index(); at >= want {
			t.Errorf("the member has entries up to %d, want fewer than the leader's %d", at, want)
		}
		sick.Barrier(1, "two")
		leader.parted = true
		third := g.others(leader)[1]
		third.replica.Candidate(false) // it votes
		for range 100 {
			g.now += 100
			sick.Tick(g.now)
			third.replica.Tick()
			g.settle()
		}
		if sick.leads.Leads {
			t.Error("the member leads, but applies nothing")
		}
		if _, answered := sick.answers[1]; answered {
			t.Error("a barrier ended before the member had what was acknowledged")
		}
		leader.parted, sick.sick = false, nil
		g.pass(2000)
		if _, held := sick.Held(); held || sick.state.Index() != g.leader().state.Index() {
			t.Errorf("the stores work again: held %v, want false; applied up to entry %d, want %d",
				held, sick.state.Index(), g.leader().state.Index())
		}
		if _, answered := sick.answers[1]; !answered {
			t.Error("the barrier has not ended")
		}
		if !maps.Equal(sick.stores.tiles, leader.stores.tiles) {
			t.Error("the member has stored other tiles than the leader")
		}
	}
}

// A leader applies what it has proposed, though its own stores hang: if it did not, the group would stop.
func TestALeaderTakesWhatItProposed(t *testing.T) {
	g := newThree(t, 3)
	leader := g.leader()
	leader.hangs = true
	leader.Write(g.now, 1, requestEntry(t, g.now))
	g.settle()
	leader.settings.MaxQueued = 1
	leader.Push(g.now, 2, pushOf(g.now, "two", 9, 1, 1))
	g.pass(1000)
	if a, answered := leader.answers[2]; !answered || a.Err != nil {
		t.Errorf("the push: answered %v, error %v", answered, a.Err)
	}
}

// A window that is under way counts. If it comes again meanwhile, it is not refused, though its tenant's
// stores have become full.
func TestAWindowUnderWayIsNotRefused(t *testing.T) {
	g := newThree(t, 1)
	n := g.leader()
	n.settings.MaxPending = 1
	n.Push(g.now, 1, pushOf(g.now, "one", 9, 1, 1))
	g.settle()
	n.hangs = true
	take := func() Output {
		out, err := n.Take()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range out.Answers {
			n.answers[a.ID] = a
		}
		return out
	}
	store := func(out Output) {
		for _, w := range out.Writes {
			if err := n.log.Append(&w.Write); err != nil {
				t.Fatal(err)
			}
			n.Stored(w.Number)
		}
	}
	var boundary Output
	for len(boundary.Writes) == 0 || len(boundary.Writes[0].Entries) == 0 {
		store(boundary)
		g.now += 100
		n.Tick(g.now)
		boundary = take()
	}
	window := pushOf(g.now, "one", 9, 2, 1)
	n.Push(g.now, 2, window)
	under := take()
	store(boundary)
	commit := take()
	if len(n.State().full(1)) != 1 {
		t.Fatal("the tenant is not full")
	}
	n.Push(g.now, 3, window)
	again := take()
	store(under)
	store(commit)
	store(again)
	g.settle()
	for _, id := range []ID{2, 3} {
		if a, answered := n.answers[id]; !answered || a.Err != nil {
			t.Errorf("push %d: answered %v, error %v", id, answered, a.Err)
		}
	}
}

// A leader that gets deltas moves the shards without series to the present. A window under way brings
// series to one of these shards. If the boundary closed that shard's tile, a new leader would not have
// waited for the other senders.
func TestDeltasCloseNoTile(t *testing.T) {
	g := newThree(t, 1)
	n := g.leader()
	n.Push(g.now, 1, pushOf(g.now, "one", 9, 1, 1))
	g.now += 20_000 // the tile of the window is due
	n.Push(g.now, 2, pushOf(g.now, "two", 8, 1, 1))
	e := deltaOf(t, "d", remotewrite.CounterType, g.now-1000, 4)
	n.Write(g.now, 3, &e)
	g.settle()
	for id := ID(1); id <= 3; id++ {
		if a, answered := n.answers[id]; !answered || a.Err != nil {
			t.Errorf("call %d: answered %v, error %v", id, answered, a.Err)
		}
	}
	if len(n.stores.tiles) > 0 {
		t.Errorf("a tile is closed: %v", n.stores.tiles)
	}
	g.pass(cautious)
	if len(n.stores.tiles) == 0 {
		t.Error("the tile was not due")
	}
}

// Each member counts deltas once, and in the tiles of their time, even if their shard has held no series
// for long.
func TestDeltasOfAGroup(t *testing.T) {
	g := newThree(t, 3)
	for round := range ID(2) {
		leader := g.leader()
		before := maps.Clone(leader.stores.tiles)
		for i := 2 * round; i < 2*round+2; i++ {
			e := deltaOf(t, "c", remotewrite.CounterType, g.now-1000, 4)
			leader.Write(g.now, i, &e)
			g.settle()
			if a := leader.answers[i]; a.Err != nil || a.Outcome == nil || a.Outcome.Written.Samples != 1 {
				t.Errorf("request %d: %+v", i, a)
			}
		}
		g.pass(20_000)
		one, _ := leader.State().Digests("one")
		for i, n := range g.nodes {
			if d, _ := n.State().Digests("one"); d != one || d == (Digest{}) {
				t.Errorf("node %d has digest %v, want %v", i+1, d, one)
			}
			total := 0.0
			for key, v := range n.stores.tiles {
				if _, had := before[key]; had {
					continue
				}
				var at int64
				_, _ = fmt.Sscan(key[strings.LastIndexByte(key, '}')+1:], &at)
				if total = max(total, v); at < g.now-2*60_000 {
					t.Errorf("node %d stores the old tile %s at the time %d", i+1, key, g.now)
				}
			}
			if total != 2 {
				t.Errorf("node %d, round %d: a total of %v, want 2", i+1, round+1, total)
			}
		}
		g.pass(2 * config.CounterTTL.Milliseconds())
	}
}
