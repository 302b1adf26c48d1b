package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/freshet-io/freshet/internal/adapter/peer/wire"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/marks"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
)

const (
	writeTimeout = 30 * time.Second // limit for a push or a write whose caller would wait longer
	askTimeout   = 3 * time.Second  // limit for other calls
)

// ErrUnreachable means that another node did not answer.
var ErrUnreachable = errors.New("the node cannot be reached")

// Options are the parts of Peers. All but Report are required.
type Options struct {
	Name        string // name of this process
	Collector   bool   // the process is a collector, which sends no messages of members
	Credentials *Credentials
	Self        func() Self       // called at each call and stream
	Report      func() *Report    // called at each call and stream of a collector; it may return nil
	Nodes       map[string]string // HOST:PORT of each node, by name; this process does not connect to itself
	Registry    prometheus.Registerer
	Logger      *slog.Logger
}

// Peers are the other nodes of a cluster. They are safe for concurrent use.
type Peers struct {
	Options

	metrics *metrics
	nodes   map[string]*node
	route   atomic.Pointer[map[uint64]*node] // by member
	unknown map[string]prometheus.Counter    // dropped messages to unknown members, by connection

	mu      sync.Mutex
	changes chan struct{} // closed at the next change of a connection
}

type node struct {
	name, address   string
	entries, urgent *connection
	roundTrip       prometheus.Observer
}

// NewPeers returns Peers without connections. A call connects if needed; Run keeps the connections
// open.
func NewPeers(o Options) (*Peers, error) {
	p := &Peers{Options: o, metrics: peersMetrics(o.Registry), nodes: map[string]*node{}, changes: make(chan struct{})}
	p.unknown = map[string]prometheus.Counter{
		entries: p.metrics.dropped.WithLabelValues("", entries, droppedUnknown),
		urgent:  p.metrics.dropped.WithLabelValues("", urgent, droppedUnknown),
	}
	p.route.Store(&map[uint64]*node{})
	for name, address := range o.Nodes {
		if name == o.Name && !o.Collector {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("node %s: %w; want HOST:PORT", name, err)
		}
		n := &node{name: name, address: address, roundTrip: p.metrics.roundTrip.WithLabelValues(name)}
		var err error
		if n.entries, err = p.newConnection(n, entries, entriesRoom); err != nil {
			return nil, err
		}
		if n.urgent, err = p.newConnection(n, urgent, urgentRoom); err != nil {
			return nil, err
		}
		p.nodes[name] = n
	}
	return p, nil
}

// Run connects to the nodes, and sends, until ctx is done. Then it closes all connections.
func (p *Peers) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, n := range p.nodes {
		for _, c := range p.connections(n) {
			wg.Go(func() { c.watch(ctx) })
			wg.Go(func() { c.send(ctx) })
		}
	}
	<-ctx.Done()
	wg.Wait()
	for _, n := range p.nodes {
		_ = n.entries.cc.Close() // fails only if it is already closed
		_ = n.urgent.cc.Close()
	}
}

// connections returns the connections to a node that the process uses. A collector does not use the
// one for entries.
func (p *Peers) connections(n *node) []*connection {
	if p.Collector {
		return []*connection{n.urgent}
	}
	return []*connection{n.entries, n.urgent}
}

// Route sets which member each node has. Messages to other members are dropped.
func (p *Peers) Route(members map[string]uint64) {
	route := make(map[uint64]*node, len(members))
	for name, member := range members {
		if n := p.nodes[name]; n != nil {
			route[member] = n
		}
	}
	p.route.Store(&route)
}

// Send puts messages into the queues of their nodes, or drops them. It never blocks. The data of entries must
// not change afterwards.
func (p *Peers) Send(messages []member.Message) {
	now, route := time.Now(), *p.route.Load()
	for i := range messages {
		m := &messages[i]
		n := route[m.To]
		if n == nil {
			kind := entries
			if m.Urgent {
				kind = urgent
			}
			p.unknown[kind].Inc()
			continue
		}
		c := n.entries
		if m.Urgent {
			c = n.urgent
		}
		body, err := m.Encode()
		if err != nil {
			panic(fmt.Sprintf("BUG: %v cannot be encoded: %v", m, err))
		}
		part := wire.Part{Body: body, Sent: m.Sent, Applied: m.Applied, Short: m.Short}
		for _, b := range body {
			part.Bytes += len(b)
		}
		if !c.queue.put(waiting{ends{m.From, m.To}, part, now}) {
			c.full.Inc()
		}
	}
}

// Health describes the connections to a node.
type Health struct {
	Node, Address string
	Connected     bool
	Since         time.Time // time of the last change of Connected
	Error         string    // the last error, perhaps resolved; empty if there was none
}

// Health returns the health of all other nodes, by name. `changed` is closed at the next change of a
// connection.
func (p *Peers) Health() (all []Health, changed <-chan struct{}) {
	p.mu.Lock()
	changed = p.changes
	p.mu.Unlock()
	for _, n := range p.nodes {
		h := Health{Node: n.name, Address: n.address, Connected: true}
		for _, c := range p.connections(n) {
			c.mu.Lock()
			switch { // h.Since comes from a connection that is down, if there is one
			case !c.ready() && (h.Connected || c.since.Before(h.Since)):
				h.Since = c.since
			case c.ready() && h.Connected && c.since.After(h.Since):
				h.Since = c.since
			}
			h.Connected = h.Connected && c.ready()
			if c.last != "" && (h.Error == "" || !c.ready()) {
				h.Error = c.last
			}
			c.mu.Unlock()
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b Health) int { return strings.Compare(a.Node, b.Node) })
	return all, changed
}

func (p *Peers) changed() {
	p.mu.Lock()
	close(p.changes)
	p.changes = make(chan struct{})
	p.mu.Unlock()
}

func (p *Peers) hello() *wire.Hello {
	self := p.Self()
	h := &wire.Hello{
		Epoch: self.Epoch, Group: self.Group, Node: p.Name, From: self.Member,
		Lowest: lowestVersion, Highest: highestVersion, Format: member.Format, Semantics: member.Semantics,
	}
	if self.Cluster != (Cluster{}) {
		h.Cluster = self.Cluster[:]
	}
	if p.Report != nil {
		h.Report = encodeReport(p.Report())
	}
	return h
}

// call makes a call to a node.
func call[Answer, Reply any](
	ctx context.Context, p *Peers, to string, timeout time.Duration,
	ask func(context.Context, wire.PeerClient, *wire.Hello) (*Reply, error), read func(*Reply) (Answer, error),
) (answer Answer, err error) {
	n := p.nodes[to]
	if n == nil {
		return answer, errNoNode(to)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := ask(limited, wire.NewPeerClient(n.urgent.cc), p.hello())
	if err == nil {
		return read(out)
	}
	if ctx.Err() != nil {
		return answer, fmt.Errorf("ask node %s at %s: %w", n.name, n.address, context.Cause(ctx))
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return answer, fmt.Errorf("ask node %s at %s: %w: %s", n.name, n.address, ErrUnreachable, s.Message())
	}
	return answer, fmt.Errorf("ask node %s at %s: %s", n.name, n.address, s.Message())
}

// lost is called with the error of a push or a write. If the node could not be reached, the
// result says that the fate of the push or the write is unknown.
func lost(err error) error {
	if errors.Is(err, ErrUnreachable) {
		return &lostError{err}
	}
	return err
}

// lostError is an error that is also a member.ErrLost.
type lostError struct{ error }

func (e *lostError) Unwrap() []error { return []error{e.error, member.ErrLost} }

// Push hands a push in the form of entry.AppendPush to a node. Its error is the error of Handler.Push,
// or member.ErrLost if the node did not answer.
func (p *Peers) Push(ctx context.Context, to string, group uint64, push []byte) error {
	_, err := call(ctx, p, to, writeTimeout,
		func(ctx context.Context, c wire.PeerClient, h *wire.Hello) (*wire.Reply, error) {
			h.Group = group
			return c.Push(ctx, &wire.PushRequest{Hello: h, Push: push})
		},
		func(r *wire.Reply) (none struct{}, err error) { return none, decodeError(r.GetError()) })
	return lost(err)
}

// Write hands an entry of a request, of deltas, of events or of a rule set to a node, and returns the outcome. Its
// error is that of Handler.Write, or member.ErrLost if the node did not answer.
func (p *Peers) Write(ctx context.Context, to string, group uint64, e *entry.Entry) (*outcome.Outcome, error) {
	own := *e
	own.Group, own.Shape = group, max(1, e.Shape) // the leader sets the shape
	o, err := call(ctx, p, to, writeTimeout,
		func(ctx context.Context, c wire.PeerClient, h *wire.Hello) (*wire.WriteReply, error) {
			h.Group = group
			return c.Write(ctx, &wire.WriteRequest{Hello: h, Entry: own.Append(nil)})
		}, readOutcome)
	return o, lost(err)
}

func readOutcome(r *wire.WriteReply) (*outcome.Outcome, error) {
	if err := decodeError(r.GetError()); err != nil {
		return nil, err
	}
	o := &outcome.Outcome{}
	if err := o.Parse(r.GetOutcome()); err != nil {
		return nil, err
	}
	return o, nil
}

// Join asks a node to let this node join the cluster.
func (p *Peers) Join(ctx context.Context, to string, j Join) (Joined, error) {
	return call(ctx, p, to, askTimeout,
		func(ctx context.Context, c wire.PeerClient, h *wire.Hello) (*wire.JoinReply, error) {
			h.From = j.Member
			return c.Join(ctx, &wire.JoinRequest{Hello: h, Format: j.Format, Semantics: j.Semantics, Last: j.Last,
				Heals: j.Heals})
		},
		func(r *wire.JoinReply) (Joined, error) {
			if err := decodeError(r.GetError()); err != nil {
				return Joined{}, err
			}
			return Joined{
				Cluster: clusterOf(r.GetCluster()), Epoch: r.GetEpoch(), Group: r.GetGroup(), Founder: r.GetFounder(),
				Index: r.GetIndex(), Voters: r.GetVoters(), Nodes: r.GetNodes(),
			}, nil
		})
}

// Change asks a node, which should be the leader, to change another node's part in the group.
func (p *Peers) Change(ctx context.Context, to string, c Change) error {
	_, err := call(ctx, p, to, writeTimeout,
		func(ctx context.Context, client wire.PeerClient, h *wire.Hello) (*wire.Reply, error) {
			return client.Change(ctx, &wire.ChangeRequest{Hello: h, Kind: wire.ChangeRequest_Kind(c.Kind), Node: c.Node,
				Milliseconds: uint64(c.Lasts.Milliseconds())})
		},
		func(r *wire.Reply) (struct{}, error) { return struct{}{}, decodeError(r.GetError()) })
	return lost(err)
}

// Leader asks a node for the leader.
func (p *Peers) Leader(ctx context.Context, to string) (Leader, error) {
	return p.leader(ctx, to, func(*wire.Hello) {})
}

// AnyLeader asks a node for the leader as a process without a cluster does: nodes of all clusters answer.
func (p *Peers) AnyLeader(ctx context.Context, to string) (Leader, error) {
	return p.leader(ctx, to, func(h *wire.Hello) { h.Cluster = nil })
}

func (p *Peers) leader(ctx context.Context, to string, change func(*wire.Hello)) (Leader, error) {
	return call(ctx, p, to, askTimeout,
		func(ctx context.Context, c wire.PeerClient, h *wire.Hello) (*wire.LeaderReply, error) {
			change(h)
			return c.Leader(ctx, &wire.LeaderRequest{Hello: h})
		},
		func(r *wire.LeaderReply) (Leader, error) {
			return Leader{Name: r.GetName(), Address: r.GetAddress(), Term: r.GetTerm(),
				Cluster: clusterOf(r.GetCluster()), Epoch: r.GetEpoch(),
				Self: Brief{Ready: r.GetReady(), Applied: r.GetApplied(), Lag: r.GetLagSeconds(), HTTP: r.GetHttp(),
					Version: r.GetVersion()}}, nil
		})
}

// Status asks a node for its status.
func (p *Peers) Status(ctx context.Context, to string) (Status, error) {
	return call(ctx, p, to, askTimeout,
		func(ctx context.Context, c wire.PeerClient, h *wire.Hello) (*wire.StatusReply, error) {
			return c.Status(ctx, &wire.StatusRequest{Hello: h})
		},
		func(r *wire.StatusReply) (Status, error) {
			return statusOf(r), nil
		})
}

// Figures asks a node for figures of its own, as JSON.
func (p *Peers) Figures(ctx context.Context, to string, of Figures, tenant string) ([]byte, error) {
	return call(ctx, p, to, askTimeout,
		func(ctx context.Context, c wire.PeerClient, h *wire.Hello) (*wire.FiguresReply, error) {
			return c.Figures(ctx, &wire.FiguresRequest{Hello: h, Kind: wire.FiguresRequest_Kind(of), Tenant: tenant})
		},
		func(r *wire.FiguresReply) ([]byte, error) { return r.GetJson(), nil })
}

func statusOf(r *wire.StatusReply) Status {
	s := Status{Name: r.GetName(), Member: r.GetMember(), Ready: r.GetReady(), Applied: r.GetApplied(),
		Committed: r.GetCommitted(), Lag: r.GetLagSeconds(), Clock: r.GetClock(), Version: r.GetVersion(),
		Leaderless: r.GetLeaderlessSeconds(), LeaderlessSum: r.GetLeaderlessTotalSeconds(),
		LogBytes: r.GetLogBytes(), LogPins: r.GetLogPins(), LogAppend: r.GetLogAppendSeconds(),
		Settings: r.GetSettings(), Leader: r.GetLeader(), Report: decodeReport(r.GetReport()),
		Fill: decodeFill(r.GetFill()), LogBase: r.GetLogBase(), Disk: decodeDisk(r.GetDisk()),
		Epoch: r.GetEpoch(), MissingBlocks: r.GetMissingBlocks()}
	if d := r.GetDamage(); d != nil {
		s.Damage = &Damage{d.GetWhat(), d.GetSince()}
	}
	for _, m := range r.GetMarks() {
		s.Marks = append(s.Marks, marks.Mark{Index: m.GetIndex(), Hash: m.GetHash()})
	}
	for _, c := range r.GetCollectors() {
		s.Pushers = append(s.Pushers, Pusher{c.GetName(), seconds(c.GetAgoSeconds()), decodeReport(c.GetReport()),
			seconds(c.GetToldSeconds())})
	}
	return s
}

func encodeDisk(d *Disk) *wire.Disk {
	if d == nil {
		return nil
	}
	return &wire.Disk{Free: d.Free, Size: d.Size, MinFree: d.MinFree}
}

func decodeDisk(d *wire.Disk) *Disk {
	if d == nil {
		return nil
	}
	return &Disk{Free: d.GetFree(), Size: d.GetSize(), MinFree: d.GetMinFree()}
}

func encodeReport(r *Report) *wire.Report {
	if r == nil {
		return nil
	}
	return &wire.Report{Version: r.Version, OutboxBytes: r.Bytes, OutboxSamples: r.Samples, OutboxOldestSeconds: r.Oldest}
}

// maxVersion bounds, in bytes, the text of a version that another process reports.
const maxVersion = 64

// decodeReport replaces an age that is invalid, such as NaN: JSON cannot encode it.
func decodeReport(r *wire.Report) *Report {
	if r == nil {
		return nil
	}
	version := r.GetVersion()
	oldest := r.GetOutboxOldestSeconds()
	if !(oldest >= 0 && oldest <= maxAge) {
		oldest = 0
	}
	return &Report{Version: valid(version[:min(len(version), maxVersion)]), Bytes: r.GetOutboxBytes(),
		Samples: r.GetOutboxSamples(), Oldest: oldest}
}

// maxAge is the greatest age that is believed: 100 years, in seconds.
const maxAge = 100 * 365 * 24 * 3600

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
