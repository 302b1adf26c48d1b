package member

import (
	"errors"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// The clock of the node where a request came in may be wrong. If that clock decided, a request stamped
// an hour ahead would keep a server of an HA pair elected for an hour, and the group would forget deltas
// that may come again. With a request stamped an hour ago, samples of the present would count as too far
// ahead.
func TestTheLeaderTellsWhenARequestArrived(t *testing.T) {
	const hour = 3_600_000
	g := newThree(t, 3)
	leader := g.leader()
	leader.clock = 1900 // not far enough off to be wrong
	g.pass(1000)
	id := ID(0)
	var came []int64
	write := func(e *entry.Entry, off int64, replica string) Answer {
		t.Helper()
		id++
		came = append(came, g.now)
		e.Request.Arrival = g.now + off
		if replica != "" {
			e.Request.Pair = entry.Pair{Cluster: "c", Replica: replica, Timeout: 5000}
		}
		leader.Write(g.now+leader.clock, id, e)
		g.settle()
		a, answered := leader.answers[id]
		if !answered || a.Err != nil {
			t.Fatalf("write %d: answered %v, error %v", id, answered, a.Err)
		}
		return a
	}
	write(requestEntry(t, g.now), hour, "a")
	g.pass(10_000)
	if a := write(requestEntry(t, g.now), 0, "b"); a.Outcome.Dropped.Samples > 0 {
		t.Error("a server that is gone for 10 s stays elected, since its last request was stamped an hour ahead")
	}
	deltas := func(hash uint64, off int64) {
		g.pass(1000) // a total treats a second increment with the same time as a repeat
		e := deltaOf(t, "d", remotewrite.CounterType, g.now-1000, hash)
		write(&e, off, "")
	}
	deltas(1, 0)
	deltas(2, hour)
	deltas(1, -hour)
	g.pass(20_000)
	if total := leader.total("one"); total != 4 {
		t.Errorf("the deltas add up to %v, want 4", total)
	}
	all, err := leader.log.Entries(2, leader.log.Last()+1, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		var e entry.Entry
		if err := e.Parse(x.GetData()); err != nil || e.Kind != entry.KindRequest && e.Kind != entry.KindDeltas {
			continue
		}
		if off := e.Request.Arrival - came[0]; off < 0 || off > maxAhead {
			t.Errorf("the arrival in entry %d is %d ms too late, want 0 to %d", x.GetIndex(), off, maxAhead)
		}
		came = came[1:]
	}
	if len(came) > 0 {
		t.Errorf("the log lacks %d requests", len(came))
	}
}

// The leader's clock leaps back by an hour, and a request comes before another member leads. Its samples must not be
// refused as too far ahead: their sender would drop them.
func TestARequestComesWhenTheClockLeapsBack(t *testing.T) {
	g := newThree(t, 3)
	leader := g.leader()
	leader.clock = -3_600_000
	leader.Write(g.now+leader.clock, 1, requestEntry(t, g.now))
	g.settle()
	if a, answered := leader.answers[1]; !answered || a.Err != nil {
		t.Fatalf("the request is answered: %v, error %v", answered, a.Err)
	}
	all, err := leader.log.Entries(leader.log.Last(), leader.log.Last()+1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var e entry.Entry
	if err := e.Parse(all[0].Data); err != nil || e.Kind != entry.KindRequest {
		t.Fatalf("the last entry has kind %d, error %v", e.Kind, err)
	}
	if off := e.Request.Arrival - g.now; off != -maxSkew {
		t.Errorf("the request came in %d ms ahead of the right time, want %d", off, -maxSkew)
	}
}

// The store of one tenant hangs. Its requests are refused once too many bytes of them wait, and the
// refusal names the tenant and the limit. The requests of another tenant are stored, until the bytes of
// all tenants reach their limit.
func TestRequestsThatWaitAreBounded(t *testing.T) {
	g := newThree(t, 1)
	n := g.leader()
	n.settings.MaxQueued, n.settings.MaxQueuedSum = 1000, 1500
	n.sick = map[string]bool{"one": true}
	id := ID(0)
	write := func(tenant string) error {
		id++
		e := requestEntry(t, g.now)
		e.Request.Tenant = tenant
		n.Write(g.now, id, e)
		g.pass(100)
		return n.answers[id].Err
	}
	fill := func(tenant string) error {
		for range 1000 {
			if err := write(tenant); err != nil {
				return err
			}
		}
		return nil
	}
	if err := fill("one"); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), `tenant "one"`) ||
		!strings.Contains(err.Error(), "1000 are allowed") {
		t.Errorf("a write at the tenant's limit: %v", err)
	}
	if w := n.State().Waiting("one"); w.RequestsBytes < 1000 || w.RequestsBytes > 1500 {
		t.Errorf("%+v waits", w)
	}
	for range 20 {
		if err := write("two"); err != nil || n.answers[id].Outcome == nil {
			t.Fatalf("a write of the other tenant: %v", err)
		}
	}
	n.sick["two"] = true
	if err := fill("two"); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "all tenants") {
		t.Errorf("a write at the limit of all tenants: %v", err)
	}
	n.sick = nil
	g.pass(1000)
	for _, tenant := range []string{"one", "two"} {
		if err := write(tenant); err != nil || n.State().Waiting(tenant).RequestsBytes != 0 {
			t.Errorf("the store of tenant %s works again, but a write returns %v, and %+v waits",
				tenant, err, n.State().Waiting(tenant))
		}
	}
}

// While the log hangs, a push is refused if too many others wait before it. Its sender sends it again.
func TestPushesThatWaitAreBounded(t *testing.T) {
	g := newThree(t, 1)
	n := g.leader()
	n.Push(g.now, 1, pushOf(g.now, "one", 9, 1, 1)) // is under way until g.settle
	push := pushOf(g.now, "one", 9, 2, 1)
	var batches entry.List
	for len(batches) < 1<<20 { // all but the first are repeats
		p, err := entry.ParsePush(pushOf(g.now, "one", 8, 1, 1))
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, p.Batches...)
	}
	big := entry.AppendPush(nil, &entry.Push{Producer: 8, Incarnation: 1, Sequence: 1, Shape: 1, Batches: batches})
	const fit = maxPushes / (1 << 20)
	for i := range ID(fit) {
		n.Push(g.now, 10+i, big)
	}
	n.Push(g.now, 2, push)
	g.settle()
	for id, full := range map[ID]bool{1: false, 10: false, 10 + fit - 2: false, 10 + fit - 1: true, 2: false} {
		if a, answered := n.answers[id]; !answered || errors.Is(a.Err, ErrFull) != full {
			t.Errorf("push %d: answered %v, error %v", id, answered, a.Err)
		}
	}
	if n.leader.queued != 0 {
		t.Errorf("%d bytes wait, although all pushes are answered", n.leader.queued)
	}
	n.Push(g.now, 3, big)
	g.settle()
	if a, answered := n.answers[3]; !answered || a.Err != nil {
		t.Errorf("a push after all answers: answered %v, error %v", answered, a.Err)
	}
}

// A barrier whose caller has given up leaves nothing behind, whether it waits for a leader or for a store.
// The number of other barriers is bounded.
func TestReadersThatWaitAreBounded(t *testing.T) {
	g := newThree(t, 3)
	n := g.leader()
	n.hangs = true
	n.Write(g.now, 1, requestEntry(t, g.now))
	g.settle()
	for id := range ID(maxReads) {
		n.Barrier(10+id, "one")
		if id == maxReads/2 {
			g.settle() // earlier barriers wait for the store, later ones for the leader
		}
	}
	n.Barrier(2, "two")
	n.Cancel(10)
	n.Cancel(10 + maxReads - 1)
	n.Barrier(3, "two")
	n.Barrier(4, "one")
	n.Barrier(5, "one")
	g.settle()
	for id, answer := range map[ID]error{2: ErrFull, 3: nil, 5: ErrFull} {
		if a, answered := n.answers[id]; !answered || !errors.Is(a.Err, answer) {
			t.Errorf("barrier %d: answered %v, error %v", id, answered, a.Err)
		}
	}
	for id := range ID(maxReads) {
		n.Cancel(10 + id)
	}
	n.Cancel(2) // it is answered
	if len(n.reads) != 1 || len(n.asked) != 0 || len(n.unstored["one"]) != 1 {
		t.Errorf("%d barriers wait, %d for a leader and %d for the store; want 1, 0 and 1",
			len(n.reads), len(n.asked), len(n.unstored["one"]))
	}
	n.hangs = false
	g.pass(100)
	if a, answered := n.answers[4]; !answered || a.Err != nil || len(n.reads)+len(n.unstored) > 0 {
		t.Errorf("the last barrier: answered %v, error %v", answered, a.Err)
	}
	for id := range ID(maxReads) {
		if a, answered := n.answers[10+id]; answered {
			t.Fatalf("barrier %d was cancelled, but is answered %v", id, a)
		}
	}
}

// A member remembers the senders of the last 10 s, since leaders need them. It does not remember all
// collectors that ever pushed.
func TestOldSendersAreForgotten(t *testing.T) {
	m := New(group, &config)
	for i := range uint64(1000) {
		now := base + int64(i)*1000
		push := pushOf(now, "one", i, 1, 1)
		apply(t, m, entry.Entry{Kind: entry.KindWindows,
			Windows: entry.Windows{Clock: now, Pushes: entry.List{}.Append(push)}})
		if most := 2*rememberSenders/1000 + 1; len(m.senders) > most {
			t.Fatalf("%d senders are remembered, want at most %d", len(m.senders), most)
		}
		for back := range min(i+1, recently/1000+1) {
			if _, known := m.senders[i-back]; !known {
				t.Fatalf("the sender of a push %d s ago is forgotten", back)
			}
		}
	}
}

// A leader outruns one member without harm. Once both other members lag too far, the leader refuses
// windows, requests and deltas, until one of them has caught up.
func TestALeaderWaitsForAQuorumToApply(t *testing.T) {
	g := newThree(t, 3)
	n := g.leader()
	var others []*testNode
	for _, x := range g.nodes {
		if x.settings.MaxBehind = 10_000; x != n {
			x.settings.MaxQueued, x.settings.MaxQueuedSum = 300, 300
			others = append(others, x)
		}
	}
	id := ID(0)
	write := func() error {
		id++
		n.Write(g.now, id, requestEntry(t, g.now))
		g.pass(100)
		return n.answers[id].Err
	}
	others[0].hangs = true
	for range 200 {
		if err := write(); err != nil {
			t.Fatalf("while one of three members takes nothing, a write returns %v", err)
		}
	}
	if behind := n.leader.backlog.Of(2) + n.leader.backlog.Of(3); behind < 10_000 {
		t.Fatalf("the others are only %d bytes behind", behind)
	}
	others[1].hangs = true
	written := 0
	for ; written < 200; written++ {
		if err := write(); err != nil {
			if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "10000 are allowed") {
				t.Errorf("while two of three members take nothing, a write returns %v, want ErrFull", err)
			}
			break
		}
	}
	if behind := n.unapplied(); written == 200 || behind < 10_000 || behind > 12_000 {
		t.Errorf("after %d more requests a quorum is %d bytes behind, want 10,000 to 12,000", written, behind)
	}
	id++
	n.Push(g.now, id, pushOf(g.now, "one", 9, 1, 1))
	g.settle()
	if err := n.answers[id].Err; !errors.Is(err, ErrFull) {
		t.Errorf("while two of three members take nothing, a push returns %v, want ErrFull", err)
	}
	others[0].hangs = false
	g.pass(1000)
	if err := write(); err != nil {
		t.Errorf("a quorum has caught up, but a write returns %v", err)
	}
}
