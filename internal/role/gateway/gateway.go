// Package gateway is the role that hands windows, requests and deltas to the leader of a group, on
// whatever node the leader is. It keeps nothing. Every process of a cluster has this role. A node
// calls its own member while that member leads, and otherwise the leader's node.
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
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/lib/retry"
)

// Member is the member of this process.
type Member interface {
	// Leader returns the name of the node that leads, as far as this member knows; empty if there is none.
	Leader() string
	// Leaderless returns how long ago this member last knew a leader; 0 while it knows one.
	Leaderless() time.Duration
	// PushBytes and Write propose at this member: see group.Group. Their error is replica.ErrNotLeader if
	// another member leads.
	PushBytes(ctx context.Context, push []byte) error
	Write(ctx context.Context, e *entry.Entry) (*outcome.Outcome, error)
}

// Nodes calls other nodes, by their names. The errors come from the called member, or are
// ErrUnreachable if the node did not answer.
type Nodes interface {
	Leader(ctx context.Context, node string) (leader string, err error)
	Push(ctx context.Context, node string, push []byte) error
	Write(ctx context.Context, node string, e *entry.Entry) (*outcome.Outcome, error)
}

// ErrUnreachable means that a node did not answer. The effect of the call is unknown.
var ErrUnreachable = errors.New("the node does not answer")

// ErrNoLeader means that no node that answers knows a leader.
var ErrNoLeader = errors.New("the group has no leader")

// unnamedError is the ErrNoLeader of a process whose configuration does not name the node that leads.
type unnamedError struct{ leader string }

func (e *unnamedError) Error() string {
	return fmt.Sprintf("node %s leads, but cluster.nodes of this process does not name it; add it", e.leader)
}

// Is makes it an ErrNoLeader.
func (e *unnamedError) Is(target error) bool { return target == ErrNoLeader }

// silentError is the ErrNoLeader of a process that no node answers. It has only the text of the last error, since an
// ErrUnreachable would say that the effect of a call is unknown.
type silentError struct{ last string }

func (e *silentError) Error() string {
	return fmt.Sprintf("%v: this process asked each node, and none answered, the last with: %s", ErrNoLeader, e.last)
}

// Is makes it an ErrNoLeader.
func (e *silentError) Is(target error) bool { return target == ErrNoLeader }

// Options are the parts of a Gateway.
type Options struct {
	Node   string   // name of this node; empty if the process is not a node
	Names  []string // names of all nodes
	Member Member   // nil if the process is not a node
	Nodes  Nodes    // the other nodes
}

// Gateway hands calls to the leader. It is safe for concurrent use.
type Gateway struct {
	Options

	mu      sync.Mutex
	leader  string        // the leader that answered last or that a node named; empty if unknown
	next    int           // index in Names of the next node to ask for the leader
	looking chan struct{} // closed when the search for the leader ends; nil if there is no search
	looked  time.Time     // when the last search failed
	missing time.Time     // since when all searches have failed; zero after a search that found the leader
	why     error         // why the last search found no leader, if it knows; an ErrNoLeader
}

const (
	// tryAgain is the pause before a call is repeated, perhaps at another leader. An election takes 1
	// to 2 s.
	tryAgain = 50 * time.Millisecond

	// writeTime bounds the wait for the outcome of a request or of deltas. An election takes 2 s. A
	// sender gives up after 30 s, and should have time to try another node before that.
	writeTime = 10 * time.Second

	// watchEvery is the interval at which a call without an answer checks whether another node leads.
	watchEvery = 500 * time.Millisecond

	// askTime bounds how long a node may take to answer which node leads.
	askTime = time.Second
)

// New returns a Gateway.
func New(o Options) *Gateway { return &Gateway{Options: o} }

// Push hands over a push in the form of entry.AppendPush, and waits until the push counts: see package
// batch for the errors. Once a node was called, further calls mark the push as sent before. `sent`
// reports whether a node was called. If so, the push may count even after an error.
func (g *Gateway) Push(ctx context.Context, push []byte) (sent bool, err error) {
	err = g.atLeader(ctx, func(ctx context.Context, node string) error {
		if sent {
			push = entry.Again(push)
		}
		sent = true
		if node == g.Node {
			return g.Member.PushBytes(ctx, push)
		}
		trip := stage.FromContext(ctx)
		trip.Pass(stage.Forward, stage.Journal, time.Now())
		err := g.Nodes.Push(ctx, node, push)
		if err == nil {
			trip.Elsewhere(stage.Tile)
			counts(trip, stage.Journal)
		}
		return err
	})
	return sent, err
}

// counts tells the trip that another node's member has acknowledged a batch: the batch survives and is
// visible.
func counts(trip *stage.Trip, waited stage.Stage) {
	now := time.Now()
	trip.Leave(waited, now)
	trip.Seen(now)
}

// Write hands over an entry of a request, of deltas, of events or of a rule set, and returns its outcome. If the
// answer was lost, the entry is handed over again: stored samples are then repeats, and deltas and events are
// recognized as repeats by their hash. The error is member.ErrUnknown if the entry may count despite the error. When
// there has been no leader for writeTime, Write refuses entries at once: their senders repeat them,
// and waiting entries would fill the memory.
func (g *Gateway) Write(ctx context.Context, e *entry.Entry) (o *outcome.Outcome, err error) {
	if err := g.leaderless(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	lost := false
	err = g.atLeader(ctx, func(ctx context.Context, node string) (err error) {
		one := *e // a member may still use it when ctx has ended
		if node == g.Node {
			o, err = g.Member.Write(ctx, &one)
		} else {
			o, err = g.writeAt(ctx, node, &one)
		}
		lost = lost || mayCount(ctx, err)
		return err
	})
	if err != nil && lost && !errors.Is(err, member.ErrUnknown) {
		err = fmt.Errorf("%w: %w", member.ErrUnknown, err)
	}
	return o, err
}

// Once makes a call at the leader. After an error that another try may mend, the next call looks for the
// leader again.
func (g *Gateway) Once(ctx context.Context, call func(ctx context.Context, node string) error) error {
	node, err := g.find(ctx)
	if err != nil {
		return err
	}
	if err = call(ctx, node); again(err) {
		g.forget(node)
	}
	return err
}

// Call makes a call at the leader, and again until a leader has answered it.
func (g *Gateway) Call(ctx context.Context, call func(ctx context.Context, node string) error) error {
	return g.atLeader(ctx, call)
}

// writeAt is Write at another node.
func (g *Gateway) writeAt(ctx context.Context, node string, e *entry.Entry) (*outcome.Outcome, error) {
	waits, then := stage.Queue, stage.Append
	if e.Kind == entry.KindDeltas {
		waits, then = stage.Journal, stage.Tile
	}
	trip := stage.FromContext(ctx)
	trip.Pass(stage.Distribute, waits, time.Now())
	o, err := g.Nodes.Write(ctx, node, e)
	if err == nil {
		trip.Elsewhere(then)
		counts(trip, waits)
	}
	return o, err
}

// mayCount reports whether an entry may count although its call returned err.
func mayCount(ctx context.Context, err error) bool {
	for _, lost := range []error{member.ErrLost, member.ErrUnknown, ErrUnreachable, ctx.Err()} {
		if lost != nil && errors.Is(err, lost) {
			return true
		}
	}
	return err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
}

// leaderless returns an error if there has been no leader for writeTime.
func (g *Gateway) leaderless(ctx context.Context) error {
	var since time.Duration
	if g.Member != nil {
		if g.Member.Leader() == "" {
			since = g.Member.Leaderless()
		}
	} else if g.inVain() > 0 {
		if g.stale() {
			_, _ = g.find(ctx) // inVain below has the result
		}
		since = g.inVain()
	}
	if since <= writeTime {
		return nil
	}
	return fmt.Errorf("%w, for %v so far", g.noLeader(), since.Round(time.Second))
}

// inVain returns for how long no search has found a leader.
func (g *Gateway) inVain() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.missing.IsZero() {
		return 0
	}
	return time.Since(g.missing)
}

// stale reports whether it is time to search for the leader again.
func (g *Gateway) stale() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.looking == nil && time.Since(g.looked) > askTime
}

// atLeader makes a call at the leader, and repeats it until its fate is known or ctx is done.
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

// errOther ends a call if another node leads now.
var errOther = fmt.Errorf("another node leads now: %w", member.ErrLost)

// watch returns the context of a call at a node. The context is done once another node leads: a leader
// that is paused or disconnected would not answer for a long time.
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

// other returns the leader if it is known and is not the node `than`; otherwise it returns an empty name.
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

// again reports whether a call may succeed if it is repeated. If the first call counts already, the
// next one is a repeat.
func again(err error) bool {
	for _, e := range []error{replica.ErrNotLeader, member.ErrLost, member.ErrMoved, ErrUnreachable} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// find returns the node that leads, according to this process' own member or to another node. Its error
// is ErrNoLeader.
func (g *Gateway) find(ctx context.Context) (node string, err error) {
	if g.Member != nil {
		if node = g.Member.Leader(); node == "" {
			return "", ErrNoLeader
		}
		return node, nil
	}
	for {
		leader, looking, mine := g.begin()
		switch {
		case leader != "":
			return leader, nil
		case mine:
			leader = g.ask(ctx)
			if g.found(ctx, leader); leader == "" {
				return "", g.noLeader()
			}
			return leader, nil
		}
		select {
		case <-looking:
		case <-ctx.Done():
			return "", g.noLeader()
		}
		if g.inVain() > 0 {
			return "", g.noLeader()
		}
	}
}

// begin returns the leader if it is known. Otherwise one caller gets `mine`, searches for the leader,
// and then calls found. The other callers wait until looking is closed.
func (g *Gateway) begin() (leader string, looking <-chan struct{}, mine bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leader == "" && g.looking == nil {
		g.looking, mine = make(chan struct{}), true
	}
	return g.leader, g.looking, mine
}

// noLeader returns why no leader was found. It is ErrNoLeader.
func (g *Gateway) noLeader() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why != nil {
		return g.why
	}
	return ErrNoLeader
}

// ask asks the nodes, one after the other, which node leads.
func (g *Gateway) ask(ctx context.Context) (leader string) {
	var unnamed, last string
	answers := 0
	for range g.Names {
		asked := g.Names[g.next%len(g.Names)]
		g.next++ // g.next belongs to the searching caller
		one, cancel := context.WithTimeout(ctx, askTime)
		leader, err := g.Nodes.Leader(one, asked)
		cancel()
		switch {
		case err != nil:
			last = err.Error()
			continue
		case slices.Contains(g.Names, leader):
			g.explain(nil)
			return leader
		case leader != "":
			unnamed = leader
		}
		answers++
	}
	switch {
	case unnamed != "":
		g.explain(&unnamedError{unnamed})
	case ctx.Err() != nil: // nodes had no time to answer: what the search before found still holds
	case answers == 0:
		g.explain(&silentError{last})
	default:
		g.explain(nil)
	}
	return ""
}

// explain keeps why a search has found no leader, if it knows more than that.
func (g *Gateway) explain(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.why = why
}

// found ends a search. If ctx ended the search, its result means nothing.
func (g *Gateway) found(ctx context.Context, leader string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.looking)
	g.looking = nil
	switch now := time.Now(); {
	case leader != "":
		g.leader, g.missing = leader, time.Time{}
	case ctx.Err() != nil:
	default:
		if g.missing.IsZero() || now.Sub(g.looked) > writeTime { // meanwhile there may have been a leader
			g.missing = now
		}
		g.looked = now
	}
}

// forget notes that a node does not lead any more, or does not answer.
func (g *Gateway) forget(node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leader == node {
		g.leader = ""
	}
}
