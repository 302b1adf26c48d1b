package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/stage"
)

// cluster has three nodes. One leads, some are dead, and one call may lose its answer.
type cluster struct {
	mu     sync.Mutex
	leader string
	dead   []string
	paused string   // a node that does not answer
	lose   int      // number of answers that are lost after the call counted
	called []string // the calls, each as node and method
	counts map[string]int
	again  []bool // whether each push was sent before

	leaderless time.Duration // the answer of node a's member
	fails      []error       // errors of the next writes, which then do not count
}

func (c *cluster) at(node, what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.called = append(c.called, node+" "+what)
	if slices.Contains(c.dead, node) {
		return fmt.Errorf("%w: connection refused", ErrUnreachable)
	}
	if what == "leader" {
		return nil
	}
	if node != c.leader {
		return replica.ErrNotLeader
	}
	if len(c.fails) > 0 {
		err := c.fails[0]
		c.fails = c.fails[1:]
		return err
	}
	c.counts[what]++
	if c.lose > 0 {
		c.lose--
		return member.ErrLost
	}
	return nil
}

func (c *cluster) Leader(ctx context.Context, node string) (string, error) {
	if node == c.pausing() {
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
	return c.leads(), c.at(node, "leader")
}

func (c *cluster) Push(_ context.Context, node string, push []byte) error {
	p, err := entry.ParsePush(push)
	if err != nil {
		return err
	}
	c.set(func() { c.again = append(c.again, p.Again) })
	return c.at(node, "push")
}

func (c *cluster) Write(ctx context.Context, node string, e *entry.Entry) (*outcome.Outcome, error) {
	if node == c.pausing() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return &outcome.Outcome{Written: outcome.Counts{Samples: len(e.Request.Tenant)}}, c.at(node, "write")
}

func (c *cluster) leads() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader
}

func (c *cluster) pausing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused
}

// set changes the cluster.
func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// own is the member of node a.
type own struct{ *cluster }

func (o own) Leader() string                              { return o.leads() }
func (o own) Leaderless() time.Duration                   { return o.leaderless }
func (o own) PushBytes(_ context.Context, _ []byte) error { return o.at("a", "push") }
func (o own) Write(_ context.Context, e *entry.Entry) (*outcome.Outcome, error) {
	e.Shape = 99 // a member may change the entry that it is given
	return &outcome.Outcome{Written: outcome.Counts{Samples: len(e.Request.Tenant)}}, o.at("a", "write")
}

func newCluster(leader string) *cluster { return &cluster{leader: leader, counts: map[string]int{}} }

// from is a helper that returns the gateway of node a, or of a process that is not a node.
func (c *cluster) from(node string) *Gateway {
	o := Options{Node: node, Names: []string{"a", "b", "c"}, Nodes: c}
	if node != "" {
		o.Member = own{c}
	}
	return New(o)
}

func request() *entry.Entry {
	return &entry.Entry{Kind: entry.KindRequest,
		Request: entry.Request{Tenant: "abc", Form: entry.RemoteWrite2, Body: []byte{0}}}
}

func window() []batch.Batch {
	var w batch.Writer
	w.Begin(batch.Header{Tenant: []byte("abc"), Producer: 1, Incarnation: 1, Sequence: 1, Second: 1_700_000_000})
	key := series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "n"))
	w.Add(series.Shard("abc", key), &batch.Increment{Key: key, Samples: 1, Value: 1})
	return w.End()
}

// A call goes only to the leader: to this process' own member, or to the node that leads.
func TestCallsGoToTheLeader(t *testing.T) {
	for _, from := range []string{"a", ""} {
		for _, leader := range []string{"a", "b"} {
			c := newCluster(leader)
			g := c.from(from)
			for range 3 {
				o, err := g.Write(t.Context(), request())
				if err != nil || o.Written.Samples != 3 {
					t.Errorf("from %q, while node %s leads: a write returned %v, %v, want 3 samples", from, leader, o, err)
				}
			}
			asked := 0
			for _, call := range c.called {
				if call == "a leader" {
					asked++
				} else if call != leader+" write" {
					t.Errorf("from %q, while node %s leads: the calls are %v, want writes at the leader", from, leader, c.called)
				}
			}
			if from == "" && asked != 1 || from == "a" && asked != 0 {
				t.Errorf("from %q, while node %s leads: nodes were asked for the leader %d times, want 0 if the "+
					"caller is a node, else 1",
					from, leader, asked)
			}
		}
	}
}

// If the leader dies, or its answer is lost, the gateway repeats the call at the next leader. If the
// call has already counted, the next leader takes it as a repeat.
func TestACallOutlivesItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, from := range []string{"a", ""} {
			c := newCluster("b")
			g := c.from(from)
			if _, err := g.Write(t.Context(), request()); err != nil {
				t.Fatal(err)
			}
			c.dead = []string{"b"}
			time.AfterFunc(2*time.Second, func() { c.set(func() { c.leader, c.lose = "c", 1 }) })
			begun := time.Now()
			if _, err := g.Write(t.Context(), request()); err != nil {
				t.Errorf("from %q: %v", from, err)
			}
			if took := time.Since(begun); took < 2*time.Second || took > 2500*time.Millisecond {
				t.Errorf("from %q: after the death of the leader the call took %v, want 2 to 2.5 s", from, took)
			}
			if c.counts["write"] != 3 {
				t.Errorf("from %q: %d writes counted, want 3, of which one repeats a write without an answer", from,
					c.counts["write"])
			}
		}
	})
}

// A paused leader does not answer. The call is repeated at the next leader as soon as there is one.
func TestAPausedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, from := range []string{"a", ""} {
			c := newCluster("b")
			g := c.from(from)
			if _, err := g.Write(t.Context(), request()); err != nil {
				t.Fatal(err)
			}
			c.set(func() { c.paused = "b" })
			time.AfterFunc(2*time.Second, func() { c.set(func() { c.leader = "c" }) })
			begun := time.Now()
			if o, err := g.Write(t.Context(), request()); err != nil || o == nil {
				t.Errorf("from %q: %v", from, err)
			}
			if took := time.Since(begun); took < 2*time.Second || took > 4*time.Second {
				t.Errorf("from %q: after the pause of the leader the call took %v, want 2 to 4 s", from, took)
			}
			c.set(func() { c.paused = "c" }) // the gateway must stay with a slow leader
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			calls := len(c.called)
			if _, err := g.Write(ctx, request()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("from %q: %v", from, err)
			}
			cancel()
			synctest.Wait()
			for _, call := range c.called[calls:] {
				if call != "a leader" && call != "b leader" {
					t.Errorf("from %q: %v", from, call)
				}
			}
		}
	})
}

// A process whose configuration lacks the node that leads says so: it would wait for ever.
func TestTheLeaderIsNotNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("d")
		g := c.from("")
		for range 2 { // the second one is refused at once
			_, err := g.Write(t.Context(), request())
			if !errors.Is(err, ErrNoLeader) || !strings.Contains(err.Error(), "node d leads, but cluster.nodes") {
				t.Errorf("a write returned %v, want the name of the leader, and the way out", err)
			}
		}
		if slices.Contains(c.called, "d write") {
			t.Error("a node was called that the configuration does not name")
		}
		c.set(func() { c.leader = "" })
		time.Sleep(2 * askTime)
		if _, err := g.Write(t.Context(), request()); err == nil || strings.Contains(err.Error(), "node d") {
			t.Errorf("node d leads no more, and a write returned %v", err)
		}
		c.set(func() { c.leader = "b" })
		time.Sleep(2 * askTime)
		if _, err := g.Write(t.Context(), request()); err != nil {
			t.Errorf("node b leads, and a write returned %v", err)
		}
	})
}

// A process that reaches no node says what the last one made of it: with another secret it would wait for ever, and
// only the nodes' logs would have the cause. Its writes did not count, whatever that error is.
func TestNoNodeIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("a")
		c.dead = []string{"a", "b", "c"}
		g := c.from("")
		for range 2 { // the second one is refused at once
			_, err := g.Write(t.Context(), request())
			if !errors.Is(err, ErrNoLeader) || errors.Is(err, ErrUnreachable) ||
				!strings.Contains(err.Error(), "none answered, the last with: the node does not answer: connection refused") {
				t.Errorf("a write returned %v, want no leader, with what the last node said", err)
			}
		}
		c.set(func() { c.dead, c.leader = []string{"b", "c"}, "" })
		time.Sleep(2 * askTime)
		if _, err := g.Write(t.Context(), request()); err == nil || strings.Contains(err.Error(), "refused") {
			t.Errorf("node a answers that nobody leads, and a write returned %v", err)
		}
	})
}

// Without a leader, a call waits as long as its context allows. A request waits at most 10 s, since its
// sender should try another node. Other errors end a call at once.
func TestNoLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, from := range []string{"a", ""} {
			c := newCluster("")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := c.from(from).Write(ctx, request())
			cancel()
			if !errors.Is(err, ErrNoLeader) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("from %q: %v", from, err)
			}
			begun := time.Now()
			if _, err := c.from(from).Write(t.Context(), request()); !errors.Is(err, ErrNoLeader) {
				t.Errorf("from %q: %v", from, err)
			}
			if took := time.Since(begun); took != 10*time.Second {
				t.Errorf("from %q: a request waited for %v, want 10 s", from, took)
			}
		}
		g := New(Options{Node: "a", Member: full{}, Names: []string{"a"}})
		if _, err := g.Write(t.Context(), request()); !errors.Is(err, member.ErrFull) {
			t.Error(err)
		}
	})
}

type full struct{}

func (full) Leader() string                          { return "a" }
func (full) Leaderless() time.Duration               { return 0 }
func (full) PushBytes(context.Context, []byte) error { return member.ErrFull }
func (full) Write(context.Context, *entry.Entry) (*outcome.Outcome, error) {
	return nil, member.ErrFull
}

// An error says whether the entry may count anyway. Once the answer to one try was lost, the entry may
// count, whatever later tries return.
func TestTheFateOfAWrite(t *testing.T) {
	broken := errors.New("the disk is full")
	for name, c := range map[string]struct {
		fails    []error
		mayCount bool
	}{
		"refused by the leader":                   {[]error{broken}, false},
		"refused by the next leader":              {[]error{replica.ErrNotLeader, broken}, false},
		"made for other shards, and refused":      {[]error{member.ErrMoved, broken}, false},
		"the answer is lost, and then refused":    {[]error{member.ErrLost, broken}, true},
		"the node does not answer, then too full": {[]error{ErrUnreachable, member.ErrFull}, true},
		"the leader itself does not know":         {[]error{fmt.Errorf("%w: %w", member.ErrUnknown, broken)}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, from := range []string{"a", "b", ""} {
				in := newCluster("a")
				in.fails = slices.Clone(c.fails)
				g := in.from(from)
				if from == "b" {
					g = New(Options{Node: "b", Names: []string{"a", "b", "c"}, Nodes: in, Member: own{in}})
				}
				_, err := g.Write(t.Context(), request())
				if err == nil || !errors.Is(err, c.fails[len(c.fails)-1]) || errors.Is(err, member.ErrUnknown) != c.mayCount {
					t.Errorf("%s, from %q: %v", name, from, err)
				}
			}
		})
	}
}

// A leader that hangs may write the entry after its sender has gone.
func TestTheFateOfAWriteAtAHangingLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("b")
		c.paused = "b"
		for _, from := range []string{"a", ""} {
			if _, err := c.from(from).Write(t.Context(), request()); !errors.Is(err, member.ErrUnknown) {
				t.Errorf("from %q: %v", from, err)
			}
		}
	})
}

// When the group has had no leader for 10 s, requests are refused at once and sent nowhere, since waiting
// requests would fill the memory. As soon as there is a leader, requests go to it.
func TestALongTimeWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, from := range []string{"a", ""} {
			c := newCluster("")
			g := c.from(from)
			write := func() (time.Duration, error) {
				begun := time.Now()
				_, err := g.Write(t.Context(), request())
				return time.Since(begun), err
			}
			if took, err := write(); !errors.Is(err, ErrNoLeader) || took != 10*time.Second {
				t.Errorf("from %q: a write returned %v after %v, want ErrNoLeader after 10 s", from, err, took)
			}
			c.set(func() { c.leaderless = 11 * time.Second })
			for range 20 {
				time.Sleep(time.Second)
				if took, err := write(); !errors.Is(err, ErrNoLeader) || errors.Is(err, member.ErrUnknown) || took != 0 {
					t.Errorf("from %q: a write returned %v after %v, want a refusal at once", from, err, took)
				}
			}
			calls := len(c.called)
			for range 100 {
				_, _ = write()
			}
			if asked := len(c.called) - calls; asked > len(g.Names) {
				t.Errorf("from %q: 100 requests at once asked %d times for the leader, want at most %d",
					from, asked, len(g.Names))
			}
			time.Sleep(time.Minute) // meanwhile a process that is not a node does not look for a leader
			want := map[string]time.Duration{"a": 0, "": 10 * time.Second}[from]
			if took, err := write(); !errors.Is(err, ErrNoLeader) || took != want {
				t.Errorf("from %q: a write returned %v after %v, want ErrNoLeader after %v", from, err, took, want)
			}
			c.set(func() { c.leader, c.leaderless = "b", 0 })
			time.Sleep(2 * time.Second)
			if took, err := write(); err != nil || took != 0 {
				t.Errorf("from %q: there is a leader, but a write returned %v after %v, want success at once",
					from, err, took)
			}
			c.set(func() { c.leader = "" })
			g.forget("b")
			if took, err := write(); !errors.Is(err, ErrNoLeader) || took != 10*time.Second {
				t.Errorf("from %q: the leader has just gone, and a write returned %v after %v, want ErrNoLeader after 10 s",
					from, err, took)
			}
		}
	})
}

// A process that is not a node searches for the leader once for all its requests. No request waits for
// the search longer than its sender waits.
func TestOneLookForTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster("b")
		c.paused = "a"
		g := c.from("")
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := g.Write(t.Context(), request()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // the search waits for node a, which hangs
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, err := g.Write(ctx, request())
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took > 100*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
		wg.Wait()
		if n := strings.Count(strings.Join(c.called, ","), "leader"); n != 1 || c.counts["write"] != 100 {
			t.Errorf("%d searches for the leader, %d requests written, want 1, 100", n, c.counts["write"])
		}
	})
}

// Windows go to the leader in the same way. From its second try on, a window is marked as sent before.
func TestWindowsGoToTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, from := range []string{"a", ""} {
			c := newCluster("c")
			c.lose = 2
			g := c.from(from)
			bytes, err := member.PushOf(window())
			if err != nil {
				t.Fatal(err)
			}
			if sent, err := g.Push(t.Context(), bytes); err != nil || !sent || c.counts["push"] != 3 {
				t.Errorf("from %q: sent %v, error %v, the window came %d times, want true, no error, 3",
					from, sent, err, c.counts["push"])
			}
			if !slices.Equal(c.again, []bool{false, true, true}) {
				t.Errorf("from %q: at each try, the window is marked as sent before: %v, want false, true, true", from, c.again)
			}
			c.set(func() { c.leader = "" })
			g.forget("c")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if sent, err := g.Push(ctx, bytes); sent || !errors.Is(err, ErrNoLeader) {
				t.Errorf("from %q, without a leader: sent %v, error %v, want false, ErrNoLeader", from, sent, err)
			}
			cancel()
		}
	})
}

// A node that does not lead also counts the stages that its windows and requests pass at the leader, so
// that the rates of all nodes add up. A call that fails passes none of them.
func TestStagesAtAnotherNode(t *testing.T) {
	passed := func(leader string, fails error) string {
		c := newCluster(leader)
		if fails != nil {
			c.fails = []error{fails, fails}
		}
		g, w := c.from("a"), stage.NewWatch()
		end := func(input stage.Input, entered stage.Stage, call func(ctx context.Context) error) {
			trip := &stage.Trip{Input: input, Born: time.Now(), Samples: 3}
			trip.Enter(entered, time.Now())
			if err := call(stage.NewContext(t.Context(), trip)); !errors.Is(err, fails) {
				t.Error(err)
			}
			w.End(trip)
		}
		end(stage.DogStatsD, stage.Forward, func(ctx context.Context) error {
			push, err := member.PushOf(window())
			if err == nil {
				_, err = g.Push(ctx, push)
			}
			return err
		})
		end(stage.RemoteWrite, stage.Distribute, func(ctx context.Context) error {
			_, err := g.Write(ctx, request())
			return err
		})
		var all []string
		for _, s := range w.Stats() {
			all = append(all, fmt.Sprint(s.Stage, " ", s.Input, " ", s.Samples, " ", s.Spent.Count))
		}
		return strings.Join(all, ", ")
	}
	want := "forward dogstatsd 3 1, journal dogstatsd 3 1, tile dogstatsd 3 0, distribute remote_write 3 1, " +
		"queue remote_write 3 1, append remote_write 3 0, visible dogstatsd 3 1, visible remote_write 3 1"
	if got := passed("b", nil); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := passed("b", member.ErrFull); got != "forward dogstatsd 3 1, distribute remote_write 3 1" {
		t.Errorf("after errors: %s", got)
	}
	if got := passed("a", nil); got != "" { // node a's own member notes the stages
		t.Errorf("the leader itself noted %s", got)
	}
}
