package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/cluster"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/lib/fault"
	"github.com/freshet-io/freshet/internal/role/gateway"
	"github.com/freshet-io/freshet/internal/role/group"
	"github.com/freshet-io/freshet/internal/role/outbox"
)

// openIdentity finds out to which node the data directory belongs, and refuses a directory that does not
// fit the configuration.
func (s *server) openIdentity() error {
	dir, err := files.Open(s.config.DataDir)
	if err != nil {
		return err
	}
	c := &s.config.Cluster
	i, err := identity.Read(dir)
	if errors.Is(err, identity.ErrNone) {
		if c.Node == "" {
			return nil
		}
		i, err = s.prepareJoin(dir)
	}
	switch {
	case errors.Is(err, identity.ErrDamaged):
		return conf.Mistake(fmt.Errorf("the data directory %s: %w", s.config.DataDir, err))
	case err != nil:
		return err
	case c.Node == "":
		return conf.Mistake(fmt.Errorf("the data directory %s is node %s of cluster %s, but the configuration names no "+
			"cluster: set --cluster-node %[2]s, --cluster-nodes and --cluster-secret-file, or use another directory",
			s.config.DataDir, i.Node, i.Cluster))
	case c.Node != i.Node:
		return conf.Mistake(fmt.Errorf("the data directory %s is node %s, but --cluster-node is %s: "+
			"set --cluster-node %[2]s, or use the directory of node %[3]s", s.config.DataDir, i.Node, c.Node))
	case !i.Joined() && !c.Join && !s.heals():
		return conf.Mistake(fmt.Errorf("the data directory %s has not joined its cluster yet: set --cluster-join",
			s.config.DataDir))
	}
	if err := i.Protect(dir); err != nil {
		s.logger.Warn("a changed byte of "+identity.File+" would not be found: it has no checksum yet", "error", err)
	}
	s.identity.Store(i)
	return nil
}

// prepareJoin turns an empty directory into a node that asks to join.
func (s *server) prepareJoin(dir files.Dir) (*identity.Identity, error) {
	if !s.config.Cluster.Join {
		return nil, conf.Mistake(fmt.Errorf("the data directory %s belongs to no cluster: found a new one by freshet "+
			"cluster init --data-dir %[1]s --name %s, or join the nodes of --cluster-nodes by --cluster-join",
			s.config.DataDir, s.config.Cluster.Node))
	}
	for _, name := range []string{"tsdb", "journal", answer.GroupPath} {
		if _, err := os.Stat(s.path(name)); err == nil {
			return nil, conf.Mistake(fmt.Errorf("the data directory %s has data of its own (%s), which a node that joins "+
				"would lose: join with an empty directory", s.config.DataDir, name))
		}
	}
	return identity.Prepare(dir, s.config.Cluster.Node)
}

// joinPause is the pause after which a node asks again to join.
const joinPause = time.Second

// joinSaid is how often a node says in the log that it waits to join.
const joinSaid = 5 * time.Second

const (
	// othersTime bounds how long a start waits for the answers of the other nodes.
	othersTime = 500 * time.Millisecond

	// recoveredTime is othersTime for the first start after a recovery. A late answer would cost data, and nobody
	// waits for the other nodes: they are gone.
	recoveredTime = 10 * time.Second
)

// checkOthers asks the other nodes for their cluster and recovery epoch before the member of this node takes
// part. If one of them has a later epoch, the cluster went on without this node: together with another such
// node, it could acknowledge what the cluster never gets. So could a node that founded a cluster of its own by
// mistake: it leads itself. Once nodes of its own cluster answer, a stranger stops no start. A node that was recovered
// does not start if the others are there after all, and one of them leads: they would end.
func (s *server) checkOthers(ctx context.Context) error {
	i, self, c := s.identity.Load(), s.self(), &s.config.Cluster
	limit := othersTime
	if i.Recovered {
		limit = recoveredTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type answer struct {
		node    string
		cluster peer.Cluster // zero if the node did not answer, or has not joined yet
		epoch   uint64
		leader  string // that the node knows
	}
	answers := make(chan answer, len(c.Nodes))
	asked := 0
	for _, a := range c.Nodes {
		if a.Node == c.Node {
			continue
		}
		asked++
		go func() {
			l, err := s.nodes.peers.AnyLeader(ctx, a.Node)
			if err != nil {
				l = peer.Leader{}
			}
			answers <- answer{a.Node, l.Cluster, l.Epoch, l.Name}
		}()
	}
	ours, theirs, stranger := 0, 0, answer{}
	for range asked {
		switch a := <-answers; {
		case a.cluster == self.Cluster && a.epoch > self.Epoch:
			return s.outdated(a.epoch)
		case a.cluster == self.Cluster && a.epoch < self.Epoch && a.leader != "" && i.Recovered:
			return s.recoveredBeside(a.node, a.leader)
		case a.cluster == self.Cluster:
			ours++
		case a.cluster != (peer.Cluster{}):
			theirs++
			stranger = a
		}
	}
	if ours == 0 && theirs > 0 && (theirs == asked || i.Founder == i.Member) {
		return s.otherCluster(stranger.node, stranger.cluster)
	}
	return nil
}

// recoveredBeside returns the error of a recovered node whose cluster goes on without it.
func (s *server) recoveredBeside(node, leader string) error {
	return conf.Mistake(fmt.Errorf("the data directory %s was recovered (freshet cluster recover), but node %s still "+
		"runs, and node %s leads: what they acknowledged since would be lost. To keep their data, run `freshet cluster "+
		"replace %s` at node %[2]s, and start this node with an empty directory and --cluster-join. To keep only what "+
		"this node has, stop them first", s.config.DataDir, node, leader, s.config.Cluster.Node))
}

// otherCluster returns the error of a node whose data directory is of another cluster than the other nodes.
func (s *server) otherCluster(node string, cluster peer.Cluster) error {
	return conf.Mistake(fmt.Errorf("the data directory %s belongs to cluster %s, but node %s to cluster %s. Only one "+
		"machine runs freshet cluster init. If this node is to join node %[3]s, start it with an empty directory and "+
		"--cluster-join; if not, correct --cluster-nodes", s.config.DataDir, s.self().Cluster, node, cluster))
}

// join joins the cluster, unless the data directory already belongs to it. The node asks until a leader
// accepts it, or, if it is the founder of the configuration, until no other node can have a cluster.
func (s *server) join(ctx context.Context) error {
	asking := s.identity.Load()
	if asking == nil {
		return nil
	}
	dir, err := files.Open(s.config.DataDir)
	if err != nil {
		return err
	}
	if asking.Joined() {
		if err := s.checkOthers(ctx); err != nil {
			return err
		}
		takes := *asking
		if err := takes.TakePart(dir); err != nil {
			return err
		}
		s.identity.Store(&takes)
		return nil
	}
	var saidAt time.Time
	for {
		last, err := s.filler.Last()
		if err != nil {
			return err
		}
		to, err := s.nodes.join(ctx, asking, &s.config.Cluster, last, s.healedMember())
		if err == nil && last > 0 {
			fits, err := s.filler.Fits(life(to.Cluster, to.Epoch))
			if err != nil {
				return err
			}
			if !fits {
				s.logger.Warn("the cluster was recovered from a loss meanwhile: this node is filled again")
				continue
			}
		}
		if err == nil {
			return s.joined(dir, *asking, to, last > 0)
		}
		if errors.Is(err, cluster.ErrLacksEntries) {
			if err := s.filler.Fill(ctx); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, cluster.ErrNotAdmitted) && !s.heals() {
			return conf.Mistake(err)
		}
		if s.config.Cluster.Founder == asking.Node && last == 0 && !s.heals() {
			if err = s.noneJoined(ctx); err == nil {
				return s.found(dir, *asking)
			}
		}
		if time.Since(saidAt) >= joinSaid {
			saidAt = time.Now()
			s.logger.Info("not ready yet: no leader has let this node join", "error", err)
		}
		select {
		case <-time.After(joinPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// noneJoined returns nil if each other node says that it belongs to no cluster. A node that does not answer may belong
// to one. So a founder that comes back with an empty directory founds no second cluster beside the first.
func (s *server) noneJoined(ctx context.Context) error {
	var silent error
	for _, name := range s.nodes.names {
		if name == s.config.Cluster.Node {
			continue
		}
		switch l, err := s.nodes.peers.AnyLeader(ctx, name); {
		case err != nil:
			silent = fmt.Errorf("node %s has not said yet whether it belongs to a cluster: %w", name, err)
		case l.Cluster != (peer.Cluster{}):
			return fmt.Errorf("node %s belongs to cluster %s, which this node is to join", name, l.Cluster)
		}
	}
	return silent
}

// found makes this directory the first node of a new cluster.
func (s *server) found(dir files.Dir, i identity.Identity) error {
	log, err := files.Open(s.path(answer.GroupPath))
	if err != nil {
		return err
	}
	if err := i.Found(dir, log); err != nil {
		return err
	}
	s.identity.Store(&i)
	s.logger.Info("founded a cluster: no other node belongs to one", "cluster", i.Cluster, "node", i.Node)
	return nil
}

// joined makes this directory a node of the cluster, which has let it join. If the node was filled, it begins with
// these data, or else with an empty log.
func (s *server) joined(dir files.Dir, i identity.Identity, to identity.Invitation, filled bool) error {
	if filled {
		if err := s.filler.Install(); err != nil {
			return err
		}
		fault.Kill("installed")
	}
	log, err := files.Open(s.path(answer.GroupPath))
	if err != nil {
		return err
	}
	if err := i.Join(dir, log, to, filled); err != nil {
		return err
	}
	fault.Kill("joined")
	s.identity.Store(&i)
	s.logger.Info("joined the cluster", "cluster", to.Cluster, "node", i.Node)
	return s.filler.End()
}

// openGateway makes the gateway to the leader.
func (s *server) openGateway(member gateway.Member) {
	c := &s.config.Cluster
	o := gateway.Options{Node: c.Node, Member: member, Nodes: s.nodes}
	for _, a := range c.Nodes {
		o.Names = append(o.Names, a.Node)
	}
	s.gateway = gateway.New(o)
}

// writer returns the Proposer that hands entries to the leader of the group.
func (s *server) writer() group.Proposer {
	if s.gateway != nil {
		return s.gateway
	}
	return s.aggregator.(*group.Group)
}

// openEvents makes the outbox that hands the events of this process' collector to the leader.
func (s *server) openEvents(leader outbox.EventsLeader) {
	s.outgoing = outbox.NewEvents(outbox.EventsOptions{Leader: leader, Registry: s.registry, Logger: s.logger})
}

// openOutbox opens the outbox, which hands the windows of this process' collector to the leader.
func (s *server) openOutbox() (*outbox.Outbox, error) {
	seconds, err := files.Open(s.path(outboxPath, "seconds"))
	if err != nil {
		return nil, err
	}
	tiles, err := files.Open(s.path(outboxPath, "tiles"))
	if err != nil {
		return nil, err
	}
	out, err := outbox.New(outbox.Options{
		Leader: s.gateway, Seconds: seconds, Tiles: tiles, Boot: boot(), MaxBytes: int64(s.config.Cluster.Outbox),
		Ledger: s.ledger, Registry: s.registry, Logger: s.logger,
	})
	if err == nil {
		s.outbox.Store(out)
	}
	return out, err
}

// outboxPath is the directory of the outbox, below the data directory.
const outboxPath = "outbox"

// transferTime bounds how long a member that stops waits until another member leads.
const transferTime = 3 * time.Second

// untilHandedOver returns a context that is done once ctx is done, the outbox has ended and another
// member leads.
func (s *server) untilHandedOver(ctx context.Context, outboxEnded <-chan struct{}) context.Context {
	over, end := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		<-outboxEnded
		s.handOver()
		end(context.Cause(ctx))
	})
	return over
}

// handOver lets another member lead before this one stops.
func (s *server) handOver() {
	g, is := s.aggregator.(*group.Group)
	if !is || !s.inCluster() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), transferTime)
	defer cancel()
	if err := g.Transfer(ctx); err != nil {
		s.logger.Warn("no other node took over the lead before the stop; the others elect a leader in 1 to 2 s", "error", err)
	}
}
