package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/imports"
	"github.com/freshet-io/freshet/internal/core/marks"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/ruleset"
	"github.com/freshet-io/freshet/internal/core/seen"
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
	Last      uint64 // index of the last entry in the log

	Version entry.Version // what entries may use

	// Whole says that the member has everything that was ever acknowledged, whoever leads: it is the only voter,
	// and leads or has applied its whole log. On a full disk it may not be able to lead.
	Whole bool

	// Lag is the time since the member last had applied all entries that it knew to be committed, and
	// was whole or knew the leader. While a write to its log does not end, a member learns of no further
	// entries: then Lag is at least the time since this write began. If the member itself waits for its disk, as in a
	// checkpoint, Lag is at least the time since it last noted its status.
	Lag time.Duration

	noted time.Time

	Drained  map[string]int64  // nodes that must not lead, and until when, Unix ms; nil if there are none
	Nodes    map[string]uint64 // the member of each node that ever joined
	Members  replica.Members
	Progress []replica.Progress // of all members' logs; nil if another member leads

	// Leaderless is how long ago the leader was last known; 0 while one is known. LeaderlessSum is the
	// time without a leader since the start.
	Leaderless, LeaderlessSum time.Duration

	LogBytes int64
	LogPins  []string      // what keeps old entries in the log: pinnedByCheckpoint, TENANT/STORE, a fill or a backup
	LogTook  time.Duration // the longest write to the log in the last 10 s, even if it has not ended
	Marks    []marks.Mark  // hashes of the state

	// Forgotten counts requests of deltas that the group forgot early because of seen.MaxRequests: a
	// repeat of such a request counts again. ForgottenRefusals counts requests whose refusals the group
	// forgot: the answer to a repeat does not have these refusals.
	Forgotten, ForgottenRefusals uint64
}

// pinnedByCheckpoint says that the log keeps all entries since the last checkpoint that succeeded.
const pinnedByCheckpoint = "checkpoint"

// logPins returns what keeps old entries in the log, besides the 1 GiB for members that were away.
func (g *Group) logPins() (all []string) {
	switch {
	case g.pause > 0:
		all = []string{pinnedByCheckpoint}
	case g.synced < g.base:
		all = slices.Clone(g.unsynced)
	}
	_, names := g.pinned()
	return append(all, names...)
}

// appends measures the writes to the log. It shows a write on a hanging disk before the write ends.
type appends struct {
	histogram prometheus.Histogram

	mu      sync.Mutex
	first   time.Time        // when the write under way was tried first; zero if there is none
	began   time.Time        // when it was tried last; zero unless a try is under way
	longest [2]time.Duration // of the present period, and of the one before
	period  time.Time        // when the present period began
}

// appendPeriod is half the time for which the longest write is remembered.
const appendPeriod = 5 * time.Second

func (a *appends) begin() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began = time.Now()
	if a.first.IsZero() {
		a.first = a.began
	}
	return a.began
}

func (a *appends) end(began time.Time) {
	took := time.Since(began)
	a.histogram.Observe(took.Seconds())
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began = time.Time{}
	a.turn()
	a.longest[0] = max(a.longest[0], took)
}

// written notes that the write under way needs no further try.
func (a *appends) written() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.first = time.Time{}
}

// stuckAfter is longer than a write takes on a healthy disk.
const stuckAfter = time.Second

// stuck returns how long ago the write under way was tried first; 0 for less than stuckAfter.
func (a *appends) stuck() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if since := time.Since(a.first); !a.first.IsZero() && since >= stuckAfter {
		return since
	}
	return 0
}

// turn begins the next period once it is time.
func (a *appends) turn() {
	switch since := time.Since(a.period); {
	case since > 2*appendPeriod:
		a.longest, a.period = [2]time.Duration{}, time.Now()
	case since > appendPeriod:
		a.longest, a.period = [2]time.Duration{0, a.longest[0]}, time.Now()
	}
}

// worst returns the longest write of the last 10 s.
func (a *appends) worst() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn()
	worst := max(a.longest[0], a.longest[1])
	if !a.began.IsZero() {
		worst = max(worst, time.Since(a.began))
	}
	return worst
}

// register registers the metrics of a member.
func (g *Group) register() {
	f := promauto.With(g.Registry)
	gauge := func(name, help string, value func(s *Status) float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_group_" + name, Help: help}, func() float64 {
			s := g.Status()
			return value(&s)
		})
	}
	gauge("has_leader", "1 if this member knows which node leads. 0 for longer than an election, 2 s: most nodes are "+
		"gone or cut off, and writes fail.", func(s *Status) float64 { return one(s.Leader != "" || s.Leads) })
	gauge("leads", "1 if this member leads. The sum over all nodes is 1, but for a moment after a leader was cut off.",
		func(s *Status) float64 { return one(s.Leads) })
	gauge("applied_index", "Index of the last entry of the log that this member applied. It stands still: nothing is "+
		"written, or the member is stuck.", func(s *Status) float64 { return float64(s.Applied) })
	gauge("lag_seconds", "How long ago this member had last applied all entries that it knew to be committed. "+
		"Rising: its disk or its processor is slower than the others', or it is cut off. From 5 s on it is not ready.",
		func(s *Status) float64 { return s.Lag.Seconds() })
	gauge("drained", "1 if this node is drained: it does not lead, and is not ready, until freshet cluster undrain or "+
		"the end that freshet cluster drain gave.",
		func(s *Status) float64 { return one(s.Drained[g.Node] != 0) })
	gauge("voters", "Number of members that vote, as this member knows. 2 for long: writes stop whenever one of them "+
		"is away. Let another node join, or remove one.",
		func(s *Status) float64 { return float64(len(s.Members.Voters)) })
	gauge("learners", "Number of members that get all entries and are to vote once they have the log. Above 0 for long: "+
		"one is too slow, or the others cannot reach it.",
		func(s *Status) float64 { return float64(len(s.Members.Learners) - s.spares()) })
	gauge("spares", "Number of members that get all entries and do not vote, since three others do. A spare votes in the "+
		"place of a node that is lost for cluster.replace_after.",
		func(s *Status) float64 { return float64(s.spares()) })
	gauge("log_bytes", "Size of the group's log on the disk of this member. It stays near 1 GiB, for members that were "+
		"away. More: checkpoints fail, or stores cannot be synced; GET /api/v1/status/cluster names them.",
		func(s *Status) float64 { return float64(s.LogBytes) })
	gauge("log_pins", "What keeps old entries in the group's log: 1 if the last checkpoint failed, or the number of "+
		"stores that could not be synced. Above 0 for long: the log grows; GET /api/v1/status/cluster names the cause.",
		func(s *Status) float64 { return float64(len(s.LogPins)) })
	f.NewCounterFunc(prometheus.CounterOpts{Name: "freshet_group_leaderless_seconds_total",
		Help: "Time during which this member did not know a leader. Each election takes 1 to 2 s. Rising often: a node or " +
			"the network between nodes is too slow."}, func() float64 { return time.Duration(g.leaderless.Load()).Seconds() })
	g.conflicts = f.NewCounterVec(prometheus.CounterOpts{Name: "freshet_group_name_conflicts_total",
		Help: "Claims of names that another kind of metrics (kind_conflict), or timers with other buckets (form_conflict), " +
			"own in the group. Their series are stored under other names; the log names both."}, []string{"finding"})
	for _, finding := range []catalogue.Finding{catalogue.KindConflict, catalogue.FormConflict} {
		g.conflicts.WithLabelValues(finding.String())
	}
	g.yields = f.NewCounter(prometheus.CounterOpts{Name: "freshet_group_yields_total",
		Help: "How often this member led, its entries were stuck for 2 s or a store refused requests, and it asked another " +
			"member to lead. Rising: the disk of this node is slow or full, or its network is slow."})
	g.skipped.entries = f.NewCounter(prometheus.CounterOpts{Name: "freshet_group_skipped_entries_total",
		Help: "Entries that this member left out of its state since its process started, as freshet cluster skip said."})
	g.skipped.samples = f.NewCounter(prometheus.CounterOpts{Name: "freshet_group_skipped_samples_total",
		Help: "Samples in the entries of freshet_group_skipped_entries_total. They are lost unless their senders sent them " +
			"again."})
	forgotten := func(name, help string, value func(s *Status) uint64) {
		f.NewCounterFunc(prometheus.CounterOpts{Name: "freshet_group_" + name, Help: help}, func() float64 {
			s := g.Status()
			return float64(value(&s))
		})
	}
	forgotten("deltas_forgotten_total", fmt.Sprintf("Requests of OTLP deltas that a tenant sent within 10 minutes before "+
		"its last %d. If a sender repeats such a request, its increments count twice: send fewer and larger requests.",
		seen.MaxRequests), func(s *Status) uint64 { return s.Forgotten })
	forgotten("refusals_forgotten_total", "Requests of OTLP deltas whose refusals no longer fit into the 2 MiB of their "+
		"tenant. If a sender repeats such a request, the answer does not name what was refused.",
		func(s *Status) uint64 { return s.ForgottenRefusals })
	g.appends.histogram = f.NewHistogram(prometheus.HistogramOpts{Name: "freshet_group_log_append_seconds",
		Help: "Time of a write to the group's log, with its fsync. Above 0.1 s: the disk under the log is slow, and writes " +
			"wait for it.",
		NativeHistogramBucketFactor: 1.1, Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8)})
}

// one returns 1 for true.
func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// votes reports whether a member counts for the quorum.
func (s *Status) votes(id uint64) bool { return slices.Contains(s.Members.Voters, id) }

// Spare reports whether a member gets all entries and does not vote, since enough others do. A voter that is being
// replaced is none of these others: its place is free.
func (s *Status) Spare(id uint64) bool {
	voters := 0
	for _, of := range s.Nodes {
		if s.votes(of) {
			voters++
		}
	}
	return voters >= member.MaxVoters && slices.Contains(s.Members.Learners, id)
}

func (s *Status) spares() (n int) {
	for _, id := range s.Members.Learners {
		if s.Spare(id) {
			n++
		}
	}
	return n
}

// drained reports whether a member's node is drained.
func (s *Status) drained(id uint64) bool {
	for node := range s.Drained {
		if s.Nodes[node] == id {
			return true
		}
	}
	return false
}

// maxLag is how far a ready member may lag.
const maxLag = 5 * time.Second

// Ready reports whether the member votes or is a spare, lags little enough to answer queries, and is not drained. A
// drained member answers, too, but senders and readers are to leave it.
func (g *Group) Ready() bool {
	s := g.Status()
	return g.Settled() && s.Lag < maxLag && s.Drained[g.Node] == 0
}

// Leaderless returns how long ago the member last knew a leader; 0 while it knows one.
func (g *Group) Leaderless() time.Duration { return g.Status().Leaderless }

// staleAfter is more than the time between two ticks on a busy machine.
const staleAfter = 10 * replica.TickEvery

// Status returns what the member knew at the last tick.
func (g *Group) Status() Status {
	last := g.status.Load()
	if last == nil {
		return Status{Lag: maxLag}
	}
	s := *last
	if age := g.Now().Sub(s.noted); age > staleAfter {
		s.Lag = max(s.Lag, age)
	}
	return s
}

// Settled reports whether the member has become what it stays while nothing changes: a voter, or a spare.
func (g *Group) Settled() bool {
	s := g.Status()
	return s.votes(g.Member) || s.Spare(g.Member)
}

// Applied returns the index of the last entry in the state.
func (g *Group) Applied() uint64 { return g.Status().Applied }

// Leader returns the node that leads, as far as this member knows; empty if there is none. The name is
// also empty in a group that no other node joins.
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
	led := g.leads
	g.leads, g.leadership = l.Leads, l
	for _, j := range g.requested {
		if led && !g.leads && j.err != nil && !j.stuck {
			g.tellFailure(j) // its callers waited for that
		}
	}
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
		Leader: g.Leader(), Leads: g.leads, Term: g.leadership.Term, noted: now,
		Applied: state.Index(), Committed: g.node.Committed(), Base: g.log.Base(), Last: g.log.Last(),
		Version: state.Version(),
		Nodes:   state.Nodes(), Drained: state.Drained(), Members: g.members, Progress: g.node.Progress(),
	}
	s.Whole = g.alone && (g.leads || s.Applied == g.log.Last())
	if (s.Whole || g.leadership.Leader != 0) && s.Applied >= s.Committed || g.caughtUp.IsZero() {
		g.caughtUp = now
	}
	if s.Lag = now.Sub(g.caughtUp); !s.Whole {
		s.Lag = max(s.Lag, g.appends.stuck())
	}
	if g.leadership.Leader != 0 || g.led.IsZero() {
		g.led = now
	}
	if s.Leaderless = max(0, now.Sub(g.led)); s.Leaderless > 0 {
		g.leaderless.Add(int64(replica.TickEvery))
	}
	s.LogBytes, s.LogPins, s.LogTook, s.Marks = g.log.Bytes(), g.logPins(), g.appends.worst(), state.Marks()
	s.Forgotten, s.ForgottenRefusals = state.Forgotten()
	s.LeaderlessSum = time.Duration(g.leaderless.Load())
	g.status.Store(s)
	g.pass(s)
	if g.Network != nil && !maps.Equal(s.Nodes, g.routed) {
		g.sayLeft(s.Nodes)
		g.routed = s.Nodes
		g.Network.Route(s.Nodes)
	}
}

// sayLeft logs which nodes have left the group.
func (g *Group) sayLeft(now map[string]uint64) {
	for _, node := range slices.Sorted(maps.Keys(g.routed)) {
		if g.routed[node] != 0 && now[node] == 0 {
			g.Logger.Warn("a node has left the cluster: it was removed, or it was lost for cluster.replace_after and a spare "+
				"votes in its place; to join again, it needs an empty data directory", "node", node)
		}
	}
}

// counted handles windows that count now: open tiles then answer up to the end of these windows.
func (g *Group) counted(w *member.Windows) {
	if g.Node == "" || len(w.Ends) == 0 {
		return // the only collector is in this process, and calls Through
	}
	for _, e := range w.Ends {
		if !e.Left {
			g.collectors.Pushed(e.Producer, e.Incarnation, e.End, w.Clock)
			continue
		}
		g.collectors.Left(e.Producer, e.Incarnation)
		if g.Network != nil {
			g.Network.Left(e.Producer, e.Incarnation)
		}
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

// Claim asks that another node's member has the node's name, before the node is filled. The error is one of Join's.
func (g *Group) Claim(ctx context.Context, n entry.Node) error {
	_, err := g.ask(&call{ctx: ctx, ask: func(id member.ID) { g.node.Claim(g.now, id, n) }})
	return err
}

// Replace lets another member take the name of a node whose directory is lost. The error is one of member.Node's, or
// replica.ErrNotLeader.
func (g *Group) Replace(ctx context.Context, node string) error {
	_, err := g.ask(&call{ctx: ctx, ask: func(id member.ID) { g.node.Replace(g.now, id, node) }})
	return err
}

// Remove makes a node leave the group for good. The error is one of member.Node's, or replica.ErrNotLeader.
func (g *Group) Remove(ctx context.Context, node string) error {
	_, err := g.ask(&call{ctx: ctx, ask: func(id member.ID) { g.node.Remove(g.now, id, node) }})
	return err
}

// Drain makes a node lead no more for so long, or for ever if `lasts` is 0. The error is one of member.Node's, or
// replica.ErrNotLeader.
func (g *Group) Drain(ctx context.Context, node string, lasts time.Duration) error {
	_, err := g.ask(&call{ctx: ctx, ask: func(id member.ID) { g.node.Drain(g.now, id, node, lasts) }})
	return err
}

// KeepRules puts the states of groups of rules into the log: see member.Node.KeepRules.
func (g *Group) KeepRules(ctx context.Context, tenant string, groups entry.List) error {
	_, err := g.ask(&call{ctx: ctx, ask: func(id member.ID) { g.node.KeepRules(id, tenant, groups) }})
	return err
}

// Rules returns the encoded states of a tenant's groups of rules, with all that was kept before the call.
func (g *Group) Rules(ctx context.Context, tenant string) (states [][]byte, err error) {
	if err := g.Barrier(ctx, tenant); err != nil {
		return nil, err
	}
	_, err = g.ask(&call{ctx: ctx, ask: func(id member.ID) {
		states = g.node.State().Rules(tenant)
		g.answer(&member.Answer{ID: id})
	}})
	return states, err
}

// Imports returns the imported blocks, as of the last entry. Any goroutine may read them.
func (g *Group) Imports() *imports.Kept { return g.node.State().Imports() }

// RuleSets returns the rules set by the API, as of the last entry. Any goroutine may read them.
func (g *Group) RuleSets() *ruleset.Kept { return g.node.State().RuleSets() }

// Undrain ends a drain.
func (g *Group) Undrain(ctx context.Context, node string) error {
	_, err := g.ask(&call{ctx: ctx, ask: func(id member.ID) { g.node.Undrain(g.now, id, node) }})
	return err
}

// Transfer asks the voter whose log is furthest to lead, before this member stops. It returns once this
// member no longer leads, when there is no other voter, or when ctx is done.
func (g *Group) Transfer(ctx context.Context) error {
	for {
		s := g.Status()
		if !s.Leads {
			return nil
		}
		var to replica.Progress
		for _, p := range s.Progress {
			further := p.Match >= to.Match
			if drained := s.drained(p.Member); to.Member != 0 && drained != s.drained(to.Member) {
				further = !drained // of a drained node and another one, the other one is to lead
			}
			if p.Member != g.Member && p.Active && s.votes(p.Member) && further {
				to = p
			}
		}
		if to.Member == 0 {
			return nil
		}
		_, err := g.ask(&call{ctx: ctx, ask: func(id member.ID) {
			g.answer(&member.Answer{ID: id, Err: g.node.Transfer(to.Member)})
		}})
		if errors.Is(err, replica.ErrNotLeader) {
			return nil // the status was old
		}
		if err != nil {
			return err
		}
		if err := retry.Wait(ctx, replica.TickEvery); err != nil {
			return err
		}
	}
}
