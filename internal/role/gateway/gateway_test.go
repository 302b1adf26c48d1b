package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	again  []bool // for each push, whether it is marked as sent before
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
func (o own) PushBytes(_ context.Context, _ []byte) error { return o.at("a", "push") }
func (o own) Write(_ context.Context, e *entry.Entry) (*outcome.Outcome, error) {
	e.Shape = 99 // a member may change the entry that it is given
	return &outcome.Outcome{Written: outcome.Counts{Samples: len(e.Request.Tenant)}}, o.at("a", "write")
}

func newCluster(leader string) *cluster { return &cluster{leader: leader, counts: map[string]int{}} }

// from returns the gateway of node a, or of a process that is not a node.
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
					t.Errorf("from %q, while node %s leads: a write returned %v, %v", from, leader, o, err)
				}
			}
			asked := 0
			for _, call := range c.called {
				if call == "a leader" {
					asked++
				} else if call != leader+" write" {
					t.Errorf("from %q, while node %s leads: the calls are %v", from, leader, c.called)
				}
			}
			if from == "" && asked != 1 || from == "a" && asked != 0 {
				t.Errorf("from %q, while node %s leads: nodes were asked for the leader %d times", from, leader, asked)
			}
		}
	}
}

// If the leader dies, or its answer is lost, a call is repeated at the next leader. If the call
// already counted, it is a repeat there.
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
				t.Errorf("from %q: the call took %v after the death of the leader", from, took)
			}
			if c.counts["write"] != 3 {
				t.Errorf("from %q: %d writes count, want 3: one, one whose answer was lost, and its repeat", from,
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
				t.Errorf("from %q: the call took %v after the pause of the leader", from, took)
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

// Without a leader, a call waits as long as its context allows, and a request at most 10 s: its sender
// should try another node. Other errors end a call at once.
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
				t.Errorf("from %q: a request waited for %v", from, took)
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
func (full) PushBytes(context.Context, []byte) error { return member.ErrFull }
func (full) Write(context.Context, *entry.Entry) (*outcome.Outcome, error) {
	return nil, member.ErrFull
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
				t.Errorf("from %q: sent %v, error %v; the window came %d times", from, sent, err, c.counts["push"])
			}
			if !slices.Equal(c.again, []bool{false, true, true}) {
				t.Errorf("from %q: the window was marked as sent before: %v", from, c.again)
			}
			c.set(func() { c.leader = "" })
			g.forget("c")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if sent, err := g.Push(ctx, bytes); sent || !errors.Is(err, ErrNoLeader) {
				t.Errorf("from %q, without a leader: sent %v, error %v", from, sent, err)
			}
			cancel()
		}
	})
}
