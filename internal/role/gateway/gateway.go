// Package gateway is the role that hands windows, requests and deltas to the leader of a group, wherever
// it is. It keeps nothing. Every process of a cluster has it: a node asks its own member while that
// member leads, and the leader's node otherwise.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/lib/retry"
)

// Member is the member of this process.
type Member interface {
	// Leader returns the name of the node that leads, as far as this member knows; empty if there is none.
	Leader() string
	// PushBytes and Write propose at this member: see group.Group. Their error is replica.ErrNotLeader if
	// another member leads.
	PushBytes(ctx context.Context, push []byte) error
	Write(ctx context.Context, e *entry.Entry) (*outcome.Outcome, error)
}

// Nodes asks other nodes, by their names. The errors are those of the member that is asked; ErrUnreachable
// if it did not answer.
type Nodes interface {
	Leader(ctx context.Context, node string) (leader string, err error)
	Push(ctx context.Context, node string, push []byte) error
	Write(ctx context.Context, node string, e *entry.Entry) (*outcome.Outcome, error)
}

// ErrUnreachable means that a node did not answer. The call may count or not.
var ErrUnreachable = errors.New("the node does not answer")

// ErrNoLeader means that no node that answers knows a leader.
var ErrNoLeader = errors.New("the group has no leader")

// Options are the parts of a Gateway.
type Options struct {
	Node   string   // name of this node; empty if the process is none
	Names  []string // of all nodes
	Member Member   // nil if the process is no node
	Nodes  Nodes    // the others
}

// Gateway hands on what comes in. It is safe for concurrent use.
type Gateway struct {
	Options

	mu     sync.Mutex
	leader string // that answered last, or that a node named; empty if it is not known
	next   int    // of Names, to be asked for the leader
}

const (
	// tryAgain is the pause before a call is made again, perhaps at another leader. An election takes 1 to
	// 2 s.
	tryAgain = 50 * time.Millisecond

	// writeTime bounds the wait for the outcome of a request or of deltas. An election takes 2 s, and a sender
	// gives up after 30 s: it had better try another node before.
	writeTime = 10 * time.Second

	// watchEvery is how often a call that is not answered looks whether another node leads.
	watchEvery = 500 * time.Millisecond

	// askTime bounds the wait for the answer of a node that is asked for the leader.
	askTime = time.Second
)

// New returns a Gateway.
func New(o Options) *Gateway { return &Gateway{Options: o} }

// Push hands over a push in the form of entry.AppendPush, and waits until it counts: see package batch for the
// errors. From the second call of a node on, the push says that it was sent before. `sent` reports whether a
// node was called, so that the push may count even after an error.
func (g *Gateway) Push(ctx context.Context, push []byte) (sent bool, err error) {
	err = g.atLeader(ctx, func(ctx context.Context, node string) error {
		if sent {
			push = entry.Again(push)
		}
		sent = true
		if node == g.Node {
			return g.Member.PushBytes(ctx, push)
		}
		return g.Nodes.Push(ctx, node, push)
	})
	return sent, err
}

// Write hands over an entry of a request or of deltas, and returns its outcome. An entry whose answer was
// lost is handed over again: samples that are stored are repeats then, and so are deltas by their hash.
func (g *Gateway) Write(ctx context.Context, e *entry.Entry) (o *outcome.Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	err = g.atLeader(ctx, func(ctx context.Context, node string) (err error) {
		one := *e // a member may still use it when ctx has ended
		if node == g.Node {
			o, err = g.Member.Write(ctx, &one)
		} else {
			o, err = g.Nodes.Write(ctx, node, &one)
		}
		return err
	})
	return o, err
}

// atLeader makes a call at the leader, and makes it again until its fate is known or ctx is done.
func (g *Gateway) atLeader(ctx context.Context, call func(ctx context.Context, node string) error) error {
	for {
		node, err := g.find(ctx)
		if err == nil {
			watched, stop := g.watch(ctx, node)
			err = call(watched, node)
			if err != nil && ctx.Err() == nil && watched.Err() != nil {
				err = context.Cause(watched)
			}
			stop()
			if !again(err) {
				return err
			}
			g.forget(node)
		}
		if waited := retry.Wait(ctx, tryAgain); waited != nil {
			return fmt.Errorf("%w: %w", err, waited)
		}
	}
}

// errOther ends a call when another node leads.
var errOther = fmt.Errorf("another node leads now: %w", member.ErrLost)

// watch returns the context of a call at a node. It is done when another node leads: a leader that was
// paused, or is cut off, would not answer for long.
func (g *Gateway) watch(ctx context.Context, node string) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	ready := make(chan struct{})
	timer = time.AfterFunc(watchEvery, func() {
		<-ready
		if other := g.other(watched, node); other != "" {
			cancel(errOther)
		} else if watched.Err() == nil {
			timer.Reset(watchEvery)
		}
	})
	close(ready)
	return watched, func() {
		timer.Stop()
		cancel(nil)
	}
}

// other returns the leader, if it is known to be another node than this one.
func (g *Gateway) other(ctx context.Context, than string) string {
	if g.Member != nil {
		if leader := g.Member.Leader(); leader != than {
			return leader
		}
		return ""
	}
	for _, asked := range g.Names {
		if asked == than {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, askTime)
		leader, err := g.Nodes.Leader(ctx, asked)
		cancel()
		if err == nil && leader != "" && leader != than {
			return leader
		}
	}
	return ""
}

// again reports whether a call may succeed if it is made again. If it counts already, the new call is a
// repeat.
func again(err error) bool {
	for _, e := range []error{replica.ErrNotLeader, member.ErrLost, member.ErrMoved, ErrUnreachable} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// find returns the node that leads: as this member knows, or as a node says that is asked. The error is
// ErrNoLeader.
func (g *Gateway) find(ctx context.Context) (node string, err error) {
	if g.Member != nil {
		if node = g.Member.Leader(); node == "" {
			return "", ErrNoLeader
		}
		return node, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for range g.Names {
		if g.leader != "" {
			break
		}
		asked := g.Names[g.next%len(g.Names)]
		g.next++
		ctx, cancel := context.WithTimeout(ctx, askTime)
		leader, err := g.Nodes.Leader(ctx, asked)
		cancel()
		if err == nil && slices.Contains(g.Names, leader) {
			g.leader = leader
		}
	}
	if g.leader == "" {
		return "", ErrNoLeader
	}
	return g.leader, nil
}

// Leader returns the node that leads, as far as it is known; empty if no node that answers knows a leader.
func (g *Gateway) Leader(ctx context.Context) string {
	node, _ := g.find(ctx)
	return node
}

// forget notes that a node does not lead any more, or does not answer.
func (g *Gateway) forget(node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leader == node {
		g.leader = ""
	}
}
