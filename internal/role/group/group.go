// Package group is the role that keeps a member of a group: its part in the order of the log, and the
// state that the log makes. core/member decides everything; this package gives it a clock, goroutines,
// a disk, stores and a network. A server has this role instead of role/aggregator, which does the same
// for one machine alone with a journal.
//
// All state belongs to the goroutine in Run. Another goroutine appends to the log, and each tenant's
// stores are written in goroutines of their own. Other goroutines read the open tiles, each shard under
// its lock.
//
// The files, from the top:
//
//	group.go       what a group is made of, and Run
//	restore.go     the start: the last checkpoint, and the log behind it; a copy, or one machine's data, to start from
//	stop.go        the end: writes finish, everything is saved
//	requests.go    requests become entries
//	calls.go       pushes, writes and barriers of other goroutines; requests that are proposed at once
//	take.go        what the member wants done is handed on
//	checkpoint.go  the state is saved, some sections at each tick; a copy for a member that is filled
//	stores.go      closed tiles and requests are written to the stores of their tenants, and forwarded to other servers
//	log.go         the goroutine that appends to the log
//	status.go      what the member knows of the group
package group

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/notes"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/skip"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/wallclock"
	"github.com/freshet-io/freshet/internal/settings"
	"github.com/freshet-io/freshet/internal/tiling"
)

// Group is a member of a group. Its Open answers questions about open tiles.
type Group struct {
	*tiling.Open
	Options

	tiles   tile.Config
	node    *member.Node
	log     *entrylog.Log
	wall    *wallclock.Clock
	metrics *tiling.Metrics
	books   tiling.Books
	stored  *notes.Stored // of tiles
	noted   *notes.Since  // of requests
	files   []*notes.File // of both

	restored    Restored
	alone       bool // the only voter
	others      atomic.Bool
	now         int64
	leads       bool
	members     replica.Members
	collectors  tiling.Collectors
	routed      map[string]uint64 // nodes that the network knows
	leaderClock int64             // of the leader's last message, Unix ms
	leadership  replica.Leadership
	pauses      bool      // the member takes no entries: see sayHeld
	caughtUp    time.Time // when the member last had applied all that it knew to be committed
	led         time.Time // when the leader was last known
	leader      atomic.Pointer[string]
	yields      prometheus.Counter
	conflicts   *prometheus.CounterVec // of names
	demoted     atomic.Bool            // see Demote
	leaderless  atomic.Int64           // sum of the time without a leader, ns
	skipped     struct{ entries, samples prometheus.Counter }
	status      atomic.Pointer[Status]

	pushes    chan *push
	held      *push // the first waiting push, or nil
	calls     chan *call
	early     []*call // calls that wait until the clock is believed
	gathering gathering
	received  chan member.Message
	tries     chan *job       // to goroutines that wait for jobs
	idle      atomic.Int32    // number of these goroutines
	written   chan *job       // writes that came back from the stores
	saves     chan chan saved // calls of Save
	halts     chan struct{}
	ended     chan struct{} // closed when Run returns

	id      member.ID
	waiting map[member.ID]waiting // callers that wait, by the ids of their questions
	pushed  int64                 // bytes of the pushes among the waiting calls

	queue     []*logJob // for the log
	appending bool      // the log has a job
	appends   appends   // how long its writes take
	sick      error     // why the log cannot be written; nil if it can
	failing   chan error
	jobs      chan *logJob
	done      chan *logJob

	writes    context.Context // of all writes to the stores, until Run returns
	backlogs  map[string]*backlog
	full      int             // number of backlogs without room for more
	requested map[string]*job // requests, by queue: see write.QueueOf
	events    *job            // of the event log, or nil
	tried     time.Time       // start of the try that stored the requests to be answered next
	replays   map[string]int  // by queue: pre-start requests that its store lacks
	broke     error           // an entry has a request that cannot be read
	restarted []*member.Work  // work that the start found

	saidAt    time.Time     // when the log last said that a tenant is not admitted
	saving    *saving       // the checkpoint being written, or nil
	base      uint64        // index of the last checkpoint
	synced    uint64        // index of the checkpoint that a start after a power loss uses; 0 for none
	lastSaved time.Time     // when the last checkpoint began
	asked     []chan saved  // calls of Save that wait for the next checkpoint
	failedAt  time.Time     // when the last checkpoint failed
	unsynced  []string      // stores that the last checkpoint could not sync
	pause     time.Duration // before the next try; 0 if the last checkpoint did not fail
	grown     atomic.Int64  // bytes of entries since the last checkpoint began

	pinning sync.Mutex
	pins    map[string]pin // by the name in Status.LogPins

	sends   bool // this member sends what is forwarded
	notesAt int  // ticks until the leader notes again what is forwarded

	unsyncedBytes int64 // the constant of the same name, except in tests
}

// Options are the parts of a group. All fields but Told, Watch, Boot, Skips, Short and Network are required.
type Options struct {
	Number     uint64   // of the group
	Member     uint64   // the number of this member, never used by another
	Node       string   // the name of this node; empty for a group that no other node joins
	Voters     []uint64 // of a new group; nil if the log has begun
	Config     settings.Aggregator
	MaxPending int64 // bytes that may wait for a tenant's stores; at this limit its new windows are refused
	MaxTenants int   // tenants that may have stores; 0 for no limit
	FS         segment.FS

	// MaxQueued and MaxQueuedSum bound the bytes of requests that wait for the stores of a tenant and of all
	// tenants: see member.Settings.
	MaxQueued, MaxQueuedSum int64

	MaxBehind int64 // bound of the bytes of entries that a quorum has not applied

	ReplaceAfter, UpgradeAfter time.Duration // see member.Settings

	Skips skip.List // entries that no member can apply

	// Short reports whether the disk of this member is nearly full: see member.Node. It returns at once. If it is nil,
	// the disk never is.
	Short func() bool

	Mark     uint32 // as in journal.Options
	Seed     uint64 // of the timeouts of elections
	Segment  int64  // bytes of a segment of the log; 0 means 64 MiB
	Writer   Writer
	Backends Backends // nil if nothing is forwarded

	// KeptEvents returns how many events of a tenant the event log keeps, and for how many milliseconds. Only the
	// leader uses it, so all members keep the same events.
	KeptEvents func() (most int, retention int64)

	// Names returns the limits for names of DogStatsD metrics: see member.Settings.
	Names func() entry.Names

	Network  Network // to the other members; nil if there are none
	Ledger   tiling.Ledger
	Told     Told         // gets metadata, new series and elections; may be nil
	Watch    *stage.Watch // may be nil
	Boot     string       // names the present boot of the machine; if empty, nothing is noted as stored
	Now      func() time.Time
	Registry prometheus.Registerer
	Logger   *slog.Logger
}

// Writer stores what the log brings. It is always in the same process.
type Writer interface {
	// WriteTiles stores samples of one width. After an error none of them counts as
	// stored, and the caller writes the same samples again. Repeating a write must be harmless.
	WriteTiles(ctx context.Context, tenant string, width tile.Width, samples []tile.Sample) (tile.Written, error)
	// WriteRequests stores requests and sets their outcomes: see tsdb.Stores.
	WriteRequests(ctx context.Context, tenant string, state *write.State, requests []*write.Request) error
	// WriteEvents stores the events of entries. It stores each event once, although a start may write
	// some again.
	WriteEvents(ctx context.Context, events []*member.Events) error
	// Sync makes everything that is stored survive a power loss.
	Sync(ctx context.Context) error
	// CutBack cuts the stores of requests back after a power loss, before the first write: see
	// tsdb.Stores.
	CutBack(boot string, requests map[string]uint64)
	// LogEnds tells the Writer, before the first write, which entry is the last one of the log. The
	// stores of events may be a later copy, with events of entries that the log lacks.
	LogEnds(last uint64) error
}

// Network carries messages to the other members. It may lose, delay and repeat them.
type Network interface {
	Send(messages []member.Message)
	// Left says that no more pushes of a collector follow under an incarnation.
	Left(producer, incarnation uint64)
	// Route says which member each node has, by the node's name. It is called when the log names another one. The
	// member of a removed node is 0.
	Route(members map[string]uint64)
}

// Restored says what the start found.
type Restored struct {
	New        bool // the directory was empty
	Checkpoint *checkpoint.File
	Entries    int // entries read from the log
	Notes      int // notes that say which requests the stores have
}

// Names returns the names of DogStatsD metrics. Other goroutines may peek, and ask for metadata.
func (g *Group) Names() *catalogue.Shared { return g.node.State().Names() }

// Restored returns what the start found.
func (g *Group) Restored() Restored { return g.restored }

// Run keeps the member until ctx is done. Then it saves its state. The caller must stop pushes before
// ctx is done. A write that hangs in a store may still run when Run returns. A retry cannot help after
// an error: the log is damaged, or has an entry that this member cannot apply.
func (g *Group) Run(ctx context.Context) error {
	var stopWrites func()
	g.writes, stopWrites = context.WithCancel(context.WithoutCancel(ctx))
	defer stopWrites()
	var wg sync.WaitGroup
	defer func() {
		g.send(false)
		close(g.ended)
		wg.Wait()
		for _, f := range g.files {
			f.Close()
		}
		_ = g.log.Close() // the log is already synced
	}()
	wg.Go(g.runLog)

	ticker := time.NewTicker(replica.TickEvery)
	defer ticker.Stop()
	g.wall = wallclock.New(g.Now, g.Logger)
	g.begin(g.restarted)
	for {
		if g.held != nil && g.look() {
			g.push()
			if err := g.take(); err != nil {
				return g.broken(err)
			}
		}
		pushes, givenUp := g.line()
		select {
		case g.held = <-pushes:
		case <-givenUp:
			g.push()
		case c := <-g.calls:
			g.call(c)
		case c := <-g.saves:
			g.asked = append(g.asked, c)
		case <-g.gathering.late():
		case m := <-g.received:
			g.look()
			if m.From == g.leadership.Leader {
				g.leaderClock = m.Sent
			}
			if err := g.node.Step(g.now, m); err != nil {
				g.Logger.Warn("a message from another member of the group is ignored", "error", err)
			}
		case g.nextJob() <- g.firstJob():
			g.sent()
		case j := <-g.done:
			if err := g.logged(j); err != nil {
				return g.broken(err)
			}
		case err := <-g.failing:
			g.fail(err)
		case j := <-g.written:
			g.settle(j)
		case <-ticker.C:
			g.look()
			g.node.Demote(g.demoted.Load())
			g.node.Short(g.short())
			g.node.Tick(g.now)
			g.callAgain()
			g.forgetBarriers()
			g.retry()
			g.saveSome()
			g.noteForwarded()
			g.report()
		case <-g.halts:
			<-ctx.Done()
			return g.stop()
		case <-ctx.Done():
			return g.stop()
		}
		for again := true; again; again = g.proposeGathered() {
			if err := g.take(); err != nil {
				return g.broken(err)
			}
		}
	}
}

// look reads the clock. While the clock is not believed, g.now keeps the last believed time.
func (g *Group) look() (believed bool) {
	now, believed := g.wall.Look()
	if believed {
		g.now = now.UnixMilli()
		g.Looked(now)
	}
	return believed
}

// line returns the channels on which Run waits for pushes. While no push is held and there is room for
// more, Run waits for the next push. While a push is held, since the clock is not believed, Run waits until
// its caller gives up.
func (g *Group) line() (pushes <-chan *push, givenUp <-chan struct{}) {
	if g.held != nil {
		return nil, g.held.ctx.Done()
	}
	if g.pushed >= maxPushed {
		return nil, nil
	}
	return g.pushes, nil
}

// Halt stops all work of Run until Run's context ends. A process that takes over finds everything
// that is acknowledged by then, and the ledger agrees with the log.
func (g *Group) Halt() {
	select {
	case g.halts <- struct{}{}:
	case <-g.ended:
	}
}

// short reports whether the disk of this member is nearly full.
func (g *Group) short() bool { return g.Short != nil && g.Short() }

// Others reports whether other members have everything that this member has acknowledged.
func (g *Group) Others() bool { return g.others.Load() }

// Demote sets whether this member must not lead: see member.Node.
func (g *Group) Demote(is bool) { g.demoted.Store(is) }

// Receive takes a message from another member.
func (g *Group) Receive(m member.Message) {
	select {
	case g.received <- m:
	case <-g.ended:
	}
}
