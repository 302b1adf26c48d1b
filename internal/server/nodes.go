package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/cluster"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/usage"
	"github.com/freshet-io/freshet/internal/core/watermark"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/role/filler"
	"github.com/freshet-io/freshet/internal/role/group"
	"github.com/freshet-io/freshet/internal/settings"
)

// peerHandler answers other nodes, and collectors.
type peerHandler struct {
	config *settings.Cluster
	all    func() settings.Config // in force
	self   func() peer.Self
	member func() (*group.Group, error) // the node's member; an error until it is restored
	ready  func() bool                  // whether the node answers queries
	http   func() string                // where the node answers queries: http://HOST:PORT
	joined func() identity.Invitation   // this node's invitation, for nodes that join later
	uses   *usage.Table                 // what tenants use of their limits, while this node leads
	books  *collectorBooks

	digests   func() map[string]string // of sections of the configuration
	delivered *deliveries              // up to when the log has the windows of collectors
	report    func() *peer.Report

	watermarks func() *watermark.All // once the member is restored

	damage  func() *answer.Damage // of this node's data; nil if nothing is damaged
	disk    func() *peer.Disk     // of the data directory; nil until it is measured
	missing func() uint64         // imported blocks that the node lacks, once the member is restored
	figures tellFigures
	copies  *filler.Copies
	history func(name string) (io.ReadCloser, error) // opens a file of an imported block: TENANT/BLOCK/FILE
	filler  *filler.Filler
}

// tellFigures returns figures of this node alone, as JSON.
type tellFigures func(of peer.Figures, tenant string) ([]byte, error)

var _ peer.Handler = peerHandler{}

// member returns the member of this node, once it is restored.
func (s *server) member() (*group.Group, error) {
	if !s.opening.isOpen() {
		return nil, errNotReady
	}
	if g, is := s.aggregator.(*group.Group); is {
		return g, nil
	}
	return nil, errors.New("this process is not a node")
}

// hashed is a configuration with the hashes of its sections. Nodes ask each other for these every second, and hashing
// goes through all keys.
type hashed struct {
	config   *settings.Config
	sections map[string]string
}

// digests returns a hash of each section of the configuration that nodes share. The hash of rules has the content of
// the rule files, too, so there is none before they are read.
func (s *server) digests() map[string]string {
	c, last := s.current.Load(), s.hashed.Load()
	if last == nil || last.config != c {
		last = &hashed{config: c, sections: c.Digests()}
		s.hashed.Store(last)
	}
	all := maps.Clone(last.sections)
	if !s.opening.isOpen() || s.ruler == nil {
		delete(all, "rules")
		return all
	}
	hash := sha256.Sum256([]byte(all["rules"] + s.ruler.Content()))
	all["rules"] = hex.EncodeToString(hash[:8])
	return all
}

// invitation returns the invitation that a joining node gets.
func (s *server) invitation() identity.Invitation {
	i := s.identity.Load()
	return identity.Invitation{Cluster: i.Cluster, Epoch: i.Epoch, Founder: i.Founder}
}

// Receive implements peer.Handler. Before the member is restored, messages are lost, as on a network.
func (h peerHandler) Receive(m member.Message) {
	if g, err := h.member(); err == nil {
		g.Receive(m)
	}
}

// Push implements peer.Handler.
func (h peerHandler) Push(ctx context.Context, _ uint64, push []byte) error {
	g, err := h.member()
	if err != nil {
		return fmt.Errorf("%w: %w", replica.ErrNotLeader, err)
	}
	return h.notLeader(g, g.PushBytes(ctx, push))
}

// Write implements peer.Handler.
func (h peerHandler) Write(ctx context.Context, _ uint64, e *entry.Entry) (*outcome.Outcome, error) {
	g, err := h.member()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", replica.ErrNotLeader, err)
	}
	o, err := g.Write(ctx, e)
	return o, h.notLeader(g, err)
}

// notLeader adds the name of the leader to an error. If the member has ended, it is unknown whether the
// call took effect.
func (h peerHandler) notLeader(g *group.Group, err error) error {
	switch {
	case errors.Is(err, group.ErrEnded):
		return fmt.Errorf("%w: %w", member.ErrLost, err)
	case errors.Is(err, replica.ErrNotLeader):
		if leader := g.Leader(); leader != "" && leader != h.config.Node {
			address, _ := h.config.Address(leader)
			return &peer.NotLeaderError{Leader: leader, Address: address}
		}
	}
	return err
}

// Join implements peer.Handler.
func (h peerHandler) Join(ctx context.Context, j peer.Join) (peer.Joined, error) {
	g, err := h.member()
	if err != nil {
		return peer.Joined{}, fmt.Errorf("%w: %w", replica.ErrNotLeader, err)
	}
	status := g.Status()
	if !status.Leads {
		return peer.Joined{}, h.notLeader(g, replica.ErrNotLeader)
	}
	if _, named := h.config.Address(j.Name); !named {
		return peer.Joined{}, fmt.Errorf("%w: node %s is not in cluster.nodes of node %s, which leads; add it on all nodes",
			cluster.ErrNotAdmitted, j.Name, h.config.Node)
	}
	if uses := status.Version; j.Format < uses.Format || j.Semantics < uses.Semantics {
		return peer.Joined{}, fmt.Errorf("%w: node %s has an older version of freshet than this cluster uses; upgrade it",
			cluster.ErrNotAdmitted, j.Name)
	}
	if j.Heals != 0 && j.Heals == status.Nodes[j.Name] {
		// Its old data are set aside already. The leader that agreed to that may be another one.
		if err := g.Replace(ctx, j.Name); err != nil {
			return peer.Joined{}, h.notLeader(g, err)
		}
	}
	node, lacks := entry.Node{Name: j.Name, Member: j.Member}, max(j.Last, identity.BaseIndex) < status.Base
	join := g.Join
	if lacks { // the member must join after its fill: this one would look in its log for entries of before
		join = g.Claim
	}
	if err := join(ctx, node); errors.Is(err, member.ErrKnown) {
		return peer.Joined{}, fmt.Errorf("%w: node %s has another data directory already (%w). If that directory is there, "+
			"start the node with it; if another machine has the same name, give this one a name of its own. If the directory "+
			"is lost, run `freshet cluster replace %[2]s` at another node, and start this one again",
			cluster.ErrNotAdmitted, j.Name, err)
	} else if err != nil {
		return peer.Joined{}, h.notLeader(g, err)
	}
	if lacks {
		return peer.Joined{}, fmt.Errorf("%w: it begins with entry %d, and node %s has the entries up to %d",
			cluster.ErrLacksEntries, status.Base+1, j.Name, j.Last)
	}
	status = g.Status()
	self := h.self()
	return peer.Joined{Cluster: self.Cluster, Epoch: self.Epoch, Group: self.Group, Founder: h.joined().Founder,
		Index: status.Applied, Voters: status.Members.Voters, Nodes: status.Nodes}, nil
}

// Leader implements peer.Handler.
func (h peerHandler) Leader(context.Context) peer.Leader {
	self := h.self()
	l := peer.Leader{Cluster: self.Cluster, Epoch: self.Epoch,
		Self: peer.Brief{Lag: math.MaxInt32, HTTP: h.http(), Version: build.This().Version}}
	if g, err := h.member(); err == nil {
		status := g.Status()
		l.Name, l.Term = g.Leader(), status.Term
		l.Address, _ = h.config.Address(l.Name)
		l.Self.Ready, l.Self.Applied, l.Self.Lag = h.ready(), status.Applied, status.Lag.Seconds()
	}
	return l
}

// Status implements peer.Handler.
func (h peerHandler) Status(context.Context) peer.Status {
	s := peer.Status{Name: h.config.Node, Member: h.self().Member, Clock: time.Now().UnixMilli(),
		Version: build.This().Version, Lag: math.MaxInt32, Settings: h.digests(),
		Fill: fillOf(h.filler), Disk: h.disk()}
	if d := h.damage(); d != nil {
		s.Damage = &peer.Damage{What: d.What, Since: d.Since.UnixMilli()}
	}
	if g, err := h.member(); err == nil {
		status := g.Status()
		s.Epoch = h.self().Epoch
		s.Ready, s.Applied, s.Committed, s.Leader = h.ready(), status.Applied, status.Committed, g.Leader()
		s.Lag = status.Lag.Seconds()
		s.Leaderless, s.LeaderlessSum = status.Leaderless.Seconds(), status.LeaderlessSum.Seconds()
		s.LogBase = status.Base
		s.LogBytes, s.LogPins, s.LogAppend = uint64(status.LogBytes), status.LogPins, status.LogTook.Seconds()
		s.Marks, s.Report, s.MissingBlocks = status.Marks, h.report(), h.missing()
	}
	return s
}

// Figures implements peer.Handler.
func (h peerHandler) Figures(_ context.Context, of peer.Figures, tenant string) ([]byte, error) {
	if _, err := h.member(); err != nil { // the roles are not built yet
		return nil, err
	}
	return h.figures(of, tenant)
}

// life names a cluster and its recovery epoch.
func life(cluster string, epoch uint64) string { return fmt.Sprintf("%s/%d", cluster, epoch) }

// Copy implements peer.Handler.
func (h peerHandler) Copy(ctx context.Context, node string, whole bool) ([]peer.CopiedFile, error) {
	if err := h.knows(node); err != nil {
		return nil, err
	}
	all, err := h.copies.Make(ctx, node, whole)
	files := make([]peer.CopiedFile, len(all))
	for i, f := range all {
		files[i] = peer.CopiedFile(f)
	}
	return files, err
}

// Fetch implements peer.Handler.
func (h peerHandler) Fetch(node, name string) (io.ReadCloser, error) {
	if of, is := strings.CutPrefix(name, historyPrefix); is {
		if _, err := h.member(); err != nil { // the stores are not open yet
			return nil, err
		}
		return h.history(of)
	}
	return h.copies.Open(node, name)
}

// historyPrefix begins the names of files of imported blocks, for Fetch.
const historyPrefix = "history/"

// Pin implements peer.Handler. A node that is not restored yet removes no entries.
func (h peerHandler) Pin(node string, from uint64) error {
	if err := h.knows(node); err != nil {
		return err
	}
	if g, err := h.member(); err == nil {
		g.Pin(node, from)
	}
	return nil
}

// knows returns an error unless a node is in the configuration.
func (h peerHandler) knows(node string) error {
	if _, named := h.config.Address(node); !named {
		return fmt.Errorf("%w: node %s is not in cluster.nodes of node %s; add it on all nodes", cluster.ErrNotAdmitted, node,
			h.config.Node)
	}
	return nil
}

// nodes are the connections to the nodes of a cluster, in both directions.
type nodes struct {
	peers    *peer.Peers
	names    []string     // of all nodes
	handler  peerHandler  // of server
	server   *peer.Server // nil in a process that is no node
	listener net.Listener // of server

	belonging             // of a process that is no node
	epochs    chan uint64 // gets a later recovery epoch of the cluster

	mu      sync.Mutex
	members map[string]uint64 // the member of each node, by its name
}

// groupNumber is the only group of a cluster so far.
const groupNumber = 0

// openNodes opens the port for other nodes, and prepares the connections to them.
func (s *server) openNodes() error {
	if !s.inCluster() {
		return nil
	}
	c := &s.config.Cluster
	credentials, name, err := s.credentials()
	if err != nil {
		return conf.Mistake(err)
	}
	addresses := map[string]string{}
	for _, a := range c.Nodes {
		addresses[a.Node] = a.Address
	}
	s.nodes = &nodes{names: slices.Sorted(maps.Keys(addresses)), members: map[string]uint64{},
		belonging: belonging{keep: s.keepCluster}, epochs: make(chan uint64, 1)}
	if err := s.readCluster(); err != nil {
		return err
	}
	s.nodes.peers, err = peer.NewPeers(peer.Options{
		Name: name, Collector: c.Node == "", Credentials: credentials, Self: s.self, Nodes: addresses,
		Report: s.report, Registry: s.registry, Logger: s.logger,
	})
	if err != nil || c.Node == "" {
		return err
	}
	s.collectorBooks.register(s.registry)
	s.nodes.handler = peerHandler{
		config: c, all: s.inForce, self: s.self, member: s.member, ready: s.nodeReady, damage: s.foundDamage,
		http: s.httpURL, disk: s.disk.Load, missing: s.missingBlocks,
		joined: s.invitation, uses: new(usage.Table), books: &s.collectorBooks, delivered: &s.delivers, digests: s.digests,
		report: s.report, figures: s.figures, watermarks: func() *watermark.All { return s.watermarks },
		copies: s.copies, filler: s.filler, history: s.openHistory,
	}
	s.nodes.server = peer.NewServer(peer.ServerOptions{
		Credentials: credentials, Self: s.self, Handler: s.nodes.handler, Member: s.memberOf,
		Outdated:    s.nodes.hear,
		Connections: s.shares.Peers,
		Registry:    s.registry, Logger: s.logger,
	})
	address := cmp.Or(c.Listen, addresses[c.Node])
	if s.nodes.listener, err = net.Listen("tcp", address); err != nil {
		return listenError("cluster", address, "--cluster-listen", err)
	}
	return nil
}

// credentials returns the certificate by which other processes recognize this one, and the name in the
// certificate.
func (s *server) credentials() (*peer.Credentials, string, error) {
	c := &s.config.Cluster
	name := c.Node
	if name == "" {
		host, err := s.config.Host()
		if err != nil {
			return nil, "", fmt.Errorf("the name of this process: %w", err)
		}
		name = host
	}
	if c.SecretFile == "" {
		credentials, err := peer.Files(c.TLS.CertFile, c.TLS.KeyFile, c.TLS.CAFile)
		return credentials, name, err
	}
	secret, err := peer.ReadSecret(c.SecretFile)
	if err != nil {
		return nil, "", fmt.Errorf("cluster.secret_file: %w", err)
	}
	if c.Node == "" {
		credentials, err := secret.Collector(name)
		return credentials, name, err
	}
	if secret.OnlyPush() {
		return nil, "", fmt.Errorf("cluster.secret_file: %s has a push secret, which is for collectors; a node needs the "+
			"cluster's secret", c.SecretFile)
	}
	credentials, err := secret.Node(name)
	return credentials, name, err
}

// self returns what the process knows about itself. A collector learns its cluster from the nodes.
func (s *server) self() peer.Self {
	i := s.identity.Load()
	if i == nil {
		return peer.Self{Cluster: *s.nodes.cluster.Load()}
	}
	self := peer.Self{Epoch: i.Epoch, Member: i.Member}
	if id, err := hex.DecodeString(i.Cluster); err == nil {
		copy(self.Cluster[:], id)
	}
	return self
}

// report returns what the process tells about itself. A node sends the report to nodes that ask for it,
// and a collector sends it with each call. The report is nil if the process has no outbox, or none yet.
func (s *server) report() *peer.Report {
	out := s.outbox.Load()
	if out == nil {
		return nil
	}
	waits, oldest := out.Waiting()
	return &peer.Report{Version: build.This().Version, Bytes: uint64(waits.Bytes), Samples: waits.Samples,
		Oldest: oldest.Seconds()}
}

// memberOf returns the member of a node, if the log has named it.
func (s *server) memberOf(node string) (member uint64, known bool) {
	g, err := s.member()
	if err != nil {
		return 0, false
	}
	member, known = g.Status().Nodes[node]
	return member, known
}

// runNodes answers other nodes, and keeps the connections to them, until ctx is done.
func (s *server) runNodes(ctx context.Context) error {
	if s.nodes.server == nil {
		s.nodes.peers.Run(ctx)
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	serving, end := context.WithCancelCause(ctx)
	defer end(nil)
	wg.Go(func() { s.nodes.peers.Run(serving) })
	wg.Go(func() { s.nodes.learn(serving, &s.config.Cluster) })
	wg.Go(func() {
		select {
		case epoch := <-s.nodes.epochs:
			end(s.outdated(epoch))
		case <-serving.Done():
		}
	})
	err := s.nodes.server.Run(serving, s.nodes.listener)
	if ctx.Err() == nil && serving.Err() != nil {
		return context.Cause(serving) // this node is outdated
	}
	return err
}

// hear ends this node if its cluster was recovered without it, which another node says by its epoch. A node that has
// not joined yet has no epoch.
func (n *nodes) hear(epoch uint64) {
	if self := n.handler.self(); self.Cluster == (peer.Cluster{}) || epoch <= self.Epoch {
		return
	}
	select {
	case n.epochs <- epoch:
	default: // an earlier one ends the process
	}
}

// outdated returns the error of a node whose cluster went on without it.
func (s *server) outdated(epoch uint64) error {
	return conf.Mistake(fmt.Errorf("the cluster was recovered without this node (freshet cluster recover): it is in "+
		"recovery epoch %d, and the data directory %s in epoch %d. Its data are of no use to the cluster: run `freshet "+
		"cluster replace %s` at another node, and start this one with an empty directory and --cluster-join. If the "+
		"recovery was a mistake, stop the recovered node, and start this one again as it is",
		epoch, s.config.DataDir, s.self().Epoch, s.config.Cluster.Node))
}

// Send implements group.Network.
func (n *nodes) Send(messages []member.Message) { n.peers.Send(messages) }

// Left implements group.Network.
func (n *nodes) Left(producer, incarnation uint64) { n.server.Left(producer, incarnation) }

// Route implements group.Network.
func (n *nodes) Route(members map[string]uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for node, member := range members {
		if n.members[node] = member; member == 0 { // removed
			delete(n.members, node)
		}
	}
	n.peers.Route(n.members)
}

// learnEvery is how often a node asks the others for their members.
const learnEvery = time.Second

// learn asks the other nodes for their members until all members are known. It does not ask for a member
// that the log has named here. A node that has just joined has an empty log, and must know the leader in
// order to answer the leader.
func (n *nodes) learn(ctx context.Context, c *settings.Cluster) {
	for {
		missing := false
		for _, a := range c.Nodes {
			n.mu.Lock()
			_, known := n.members[a.Node]
			n.mu.Unlock()
			if known || a.Node == c.Node {
				continue
			}
			missing = true
			if s, err := n.peers.Status(ctx, a.Node); err == nil && s.Member != 0 && s.Name == a.Node {
				n.Route(map[string]uint64{a.Node: s.Member})
			}
		}
		select {
		case <-time.After(learnEvery):
			if !missing {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// Leader implements gateway.Nodes.
func (n *nodes) Leader(ctx context.Context, node string) (string, error) {
	l, err := n.ask(ctx, node)
	return l.Name, err
}

// ask asks a node which node leads. The answer also has what the asked node reports about itself.
func (n *nodes) ask(ctx context.Context, node string) (peer.Leader, error) {
	if n.server == nil {
		if err := n.findCluster(ctx, n.names, n.peers.Leader); err != nil {
			return peer.Leader{}, err
		}
	}
	l, err := n.peers.Leader(ctx, node)
	if err != nil || n.server != nil || l.Cluster == (peer.Cluster{}) {
		return l, err
	}
	if own := *n.cluster.Load(); l.Cluster != own {
		return peer.Leader{}, fmt.Errorf("node %s belongs to cluster %s, and this process to cluster %s: correct "+
			"cluster.nodes, or remove the file %s of this process' data directory if it is for that cluster", node,
			l.Cluster, own, clusterFile)
	}
	return l, nil
}

// tell gets the figures of another node from that node, as JSON.
func (n *nodes) tell(ctx context.Context, node string, of peer.Figures, tenant string) ([]byte, error) {
	return n.peers.Figures(ctx, node, of, tenant)
}

// Push implements gateway.Nodes.
func (n *nodes) Push(ctx context.Context, node string, push []byte) error {
	return n.peers.Push(ctx, node, groupNumber, push)
}

// Write implements gateway.Nodes.
func (n *nodes) Write(ctx context.Context, node string, e *entry.Entry) (*outcome.Outcome, error) {
	return n.peers.Write(ctx, node, groupNumber, e)
}

// join asks all other nodes, one after the other, to let this one join. The node has the entries up to `last`.
func (n *nodes) join(
	ctx context.Context, i *identity.Identity, c *settings.Cluster, last, heals uint64,
) (to identity.Invitation, err error) {
	err = errors.New("cluster.nodes has no other node")
	for _, a := range c.Nodes {
		if a.Node == i.Node {
			continue
		}
		var j peer.Joined
		j, err = n.peers.Join(ctx, a.Node, peer.Join{
			Name: i.Node, Member: i.Member, Format: member.Format, Semantics: member.Semantics,
			Last: last, Heals: heals,
		})
		if err == nil {
			return identity.Invitation{Cluster: j.Cluster.String(), Epoch: j.Epoch, Founder: j.Founder}, nil
		}
		if errors.Is(err, cluster.ErrNotAdmitted) || errors.Is(err, cluster.ErrLacksEntries) {
			return to, err
		}
	}
	return to, err
}

// status asks another node for its figures.
func (n *nodes) status(ctx context.Context, node string) (of answer.ClusterNode, s peer.Status, err error) {
	if n.server == nil { // other processes may only ask which node leads
		l, err := n.ask(ctx, node)
		own := &l.Self
		return answer.ClusterNode{
			Name: node, Ready: own.Ready, Applied: &own.Applied, LagSeconds: &own.Lag, Version: own.Version,
			Leader: l.Name,
		}, s, err
	}
	if s, err = n.peers.Status(ctx, node); err != nil {
		return of, s, err
	}
	n.hear(s.Epoch) // a recovered node that is alone calls nobody
	of = answer.ClusterNode{
		Name: s.Name, Ready: s.Ready, Applied: &s.Applied, LagSeconds: &s.Lag,
		Member: strconv.FormatUint(s.Member, 10), Version: s.Version,
		LogBytes: &s.LogBytes, LogPins: s.LogPins, LogAppendSeconds: &s.LogAppend,
		LeaderlessSeconds: &s.Leaderless, LeaderlessTotalSeconds: &s.LeaderlessSum,
		Settings: s.Settings, Leader: s.Leader, Fill: toldFill(s.Fill), Disk: toldDisk(s.Disk),
		MissingBlocks: s.MissingBlocks,
	}
	if s.Damage != nil {
		of.Damage = &answer.Damage{What: s.Damage.What, Since: time.UnixMilli(s.Damage.Since).UTC()}
	}
	return of, s, nil
}
