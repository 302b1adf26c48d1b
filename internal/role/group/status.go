package group

import (
	"context"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/lib/retry"
)

// Status is what a member knows of its group at one moment, at most 100 ms ago.
type Status struct {
	Leader    string // the node that leads; empty if it is not known
	Leads     bool   // this member leads
	Term      uint64
	Applied   uint64 // index of the last entry in the state
	Committed uint64 // index of the last entry that is known to be committed
	Base      uint64 // index before the first entry in the log

	// Lag is how long ago the member last had applied all entries that it knew to be committed, while it
	// knew the leader.
	Lag time.Duration

	Nodes    map[string]uint64 // the member of each node that ever joined
	Members  replica.Members
	Progress []replica.Progress // of all members' logs; nil if another member leads

	// Ahead is how far this clock is ahead of the median of the members' clocks. It is known if three
	// members were heard lately.
	Ahead      time.Duration
	AheadKnown bool
}

// votes reports whether a member counts for the quorum.
func (s *Status) votes(id uint64) bool { return slices.Contains(s.Members.Voters, id) }

// maxLag is how far a ready member may lag.
const maxLag = 5 * time.Second

// Ready reports whether the member votes, and lags little enough to answer queries.
func (g *Group) Ready() bool {
	s := g.Status()
	return s.votes(g.Member) && s.Lag < maxLag
}

// Status returns what the member knew at the last tick.
func (g *Group) Status() Status {
	if s := g.status.Load(); s != nil {
		return *s
	}
	return Status{Lag: maxLag}
}

// Votes reports whether the member counts for the quorum.
func (g *Group) Votes() bool {
	s := g.Status()
	return s.votes(g.Member)
}

// Applied returns the index of the last entry in the state.
func (g *Group) Applied() uint64 { return g.Status().Applied }

// Leader returns the node that leads, as far as this member knows; empty if there is none. For a group
// that no other node joins, its name is empty, too.
func (g *Group) Leader() string {
	if name := g.leader.Load(); name != nil {
		return *name
	}
	return ""
}

// follow notes who leads.
func (g *Group) follow(l replica.Leadership) {
	if l == g.leadership && (g.Leader() != "" || l.Leader == 0) {
		return
	}
	g.leads, g.leadership = l.Leads, l
	name := g.Node
	if !l.Leads {
		name = g.nodeOf(l.Leader)
	}
	g.leader.Store(&name)
}

// nodeOf returns the name of a member's node; empty if the log has not named it yet.
func (g *Group) nodeOf(id uint64) string {
	for name, of := range g.node.State().Nodes() {
		if of == id {
			return name
		}
	}
	return ""
}

// report publishes the status.
func (g *Group) report() {
	now := g.Now()
	state := g.node.State()
	s := &Status{
		Leader: g.Leader(), Leads: g.leads, Term: g.leadership.Term,
		Applied: state.Index(), Committed: g.node.Committed(), Base: g.log.Base(),
		Nodes: state.Nodes(), Members: g.members, Progress: g.node.Progress(),
	}
	if g.leadership.Leader != 0 && s.Applied >= s.Committed || g.caughtUp.IsZero() {
		g.caughtUp = now
	}
	s.Lag = now.Sub(g.caughtUp)
	ahead, known := g.node.Clock()
	s.Ahead, s.AheadKnown = time.Duration(ahead)*time.Millisecond, known
	g.status.Store(s)
	g.pass(s)
	if len(s.Nodes) > g.routed && g.Network != nil {
		g.routed = len(s.Nodes)
		g.Network.Route(s.Nodes)
	}
}

// counted notes windows that count now: open tiles answer up to their end.
func (g *Group) counted(w *member.Windows) {
	if g.Node == "" || len(w.Ends) == 0 {
		return // the only collector is in this process, and calls Through
	}
	for _, e := range w.Ends {
		g.collectors.Pushed(e.Producer, e.End, w.Clock)
	}
	g.Raise(g.collectors.Through(w.Clock))
}

// pass lets open tiles answer up to the present while collectors push nothing.
func (g *Group) pass(s *Status) {
	clock := g.leaderClock
	if g.leads {
		clock = g.now
	}
	if g.Node != "" && g.leadership.Leader != 0 && clock != 0 && s.Applied >= s.Committed {
		g.Raise(g.collectors.Through(clock))
	}
}

// Join asks that another node's member gets all entries, first as a learner. The error is
// replica.ErrNotLeader, or member.ErrKnown if the node has another member already.
func (g *Group) Join(ctx context.Context, n entry.Node) error {
	_, err := g.ask(&call{ctx: ctx, ask: func(id member.ID) { g.node.Join(g.now, id, n) }})
	return err
}

// Transfer asks the voter whose log is furthest to lead, before this member stops. It returns once another
// member leads, when there is no other voter, or when ctx is done.
func (g *Group) Transfer(ctx context.Context) error {
	for {
		s := g.Status()
		if !s.Leads {
			return nil
		}
		var to replica.Progress
		for _, p := range s.Progress {
			if p.Member != g.Member && p.Active && s.votes(p.Member) && p.Match >= to.Match {
				to = p
			}
		}
		if to.Member == 0 {
			return nil
		}
		if _, err := g.ask(&call{ctx: ctx, ask: func(id member.ID) {
			g.answer(&member.Answer{ID: id, Err: g.node.Transfer(to.Member)})
		}}); err != nil {
			return err
		}
		if err := retry.Wait(ctx, replica.TickEvery); err != nil {
			return err
		}
	}
}
