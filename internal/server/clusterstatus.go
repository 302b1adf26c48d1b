package server

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/marks"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/role/group"
	"github.com/freshet-io/freshet/internal/settings"
)

// seenNodes has the last known figures of the nodes.
type seenNodes struct {
	mu    sync.Mutex
	nodes map[string]seenNode
	marks marks.Compared
}

type seenNode struct {
	answer.ClusterNode
	pushers []peer.Pusher
	at      time.Time
	ahead   *float64 // seconds that its clock is ahead of ours; nil if the answer took too long
}

// quickAnswer is the longest time that an answer may take if another node's clock is read from it. The
// reading is wrong by up to half of the time that the answer took.
const quickAnswer = 500 * time.Millisecond

// watchEvery is how often a node looks at the others, for its metrics.
const watchEvery = 5 * time.Second

// watchNodes shows in the metrics how this node sees the others, until ctx is done.
func (s *server) watchNodes(ctx context.Context) error {
	f := promauto.With(s.registry)
	reachable := f.NewGaugeVec(prometheus.GaugeOpts{Name: "freshet_cluster_node_reachable",
		Help: "1 if another node of the cluster answers this one. 0: it does not run, or the network between them is " +
			"cut."}, []string{"node"})
	differs := f.NewGaugeVec(prometheus.GaugeOpts{Name: "freshet_cluster_node_differs",
		Help: "1 if the state of a node differed from most nodes' states, since this process started. It must never " +
			"happen: the answers of that node are not to be trusted."}, []string{"node"})
	damaged := f.NewGaugeVec(prometheus.GaugeOpts{Name: "freshet_cluster_node_damaged",
		Help: "1 while data of a node are damaged, as far as this node knows: it does not answer what it cannot. GET " +
			"/api/v1/status/cluster says what is damaged."}, []string{"node"})
	ahead := f.NewGauge(prometheus.GaugeOpts{Name: "freshet_cluster_clock_ahead_seconds",
		Help: "How far this machine's clock is ahead of the median of the nodes' clocks, exact to some ms; 0 while fewer " +
			"than three answer. More than 2 s off: this node does not lead, and samples of its collector may come too late."})
	versions := f.NewGauge(prometheus.GaugeOpts{Name: "freshet_cluster_versions",
		Help: "How many versions of freshet the nodes run, and the collectors that called a node in the last 10 minutes. " +
			"More than 1 for long: an upgrade has not reached all of them; freshet cluster status names them."})
	fills := f.NewGaugeVec(prometheus.GaugeOpts{Name: "freshet_cluster_node_fill_seconds",
		Help: "How long another node has been getting the data of a node, since it joins; 0 if it does not. Rising for " +
			"hours: freshet cluster status shows how far it is."}, []string{"node"})
	filled := f.NewGaugeVec(prometheus.GaugeOpts{Name: "freshet_cluster_node_fill_bytes",
		Help: "Bytes of another node's data that a node has got since it joins; 0 if it gets none. Standing still: its " +
			"disk is full, or no node can give its data."}, []string{"node"})
	needed := f.NewGaugeVec(prometheus.GaugeOpts{Name: "freshet_cluster_node_fill_of_bytes",
		Help: "Bytes of another node's data that a node needs, as far as they are known; 0 if it gets none."},
		[]string{"node"})
	failures := f.NewGaugeVec(prometheus.GaugeOpts{Name: "freshet_cluster_node_fill_failures",
		Help: "Failed tries to get the data of a node, of another node that joins and has not got them yet. Above 0: " +
			"freshet cluster status shows the last error."}, []string{"node"})
	said := map[string]bool{}
	for {
		c := s.clusterStatus(ctx)
		versions.Set(float64(max(1, len(c.VersionsDiffer))))
		for _, n := range c.Nodes {
			if n.Name != s.config.Cluster.Node {
				reachable.WithLabelValues(n.Name).Set(number(n.Error == ""))
				fill := answer.ClusterFill{}
				if n.Fill != nil && n.Error == "" {
					fill = *n.Fill
				}
				fills.WithLabelValues(n.Name).Set(fill.Seconds)
				filled.WithLabelValues(n.Name).Set(float64(fill.Bytes))
				needed.WithLabelValues(n.Name).Set(float64(fill.OfBytes))
				failures.WithLabelValues(n.Name).Set(float64(fill.Failures))
			} else {
				ahead.Set(s.lookAtClock(n.AheadSeconds))
			}
			damaged.WithLabelValues(n.Name).Set(number(n.Damage != nil))
			odd := n.Digest == answer.DigestDiffers
			differs.WithLabelValues(n.Name).Set(number(odd))
			if odd && !said[n.Name] {
				said[n.Name] = true
				s.logger.Error("the state of a node differs from most nodes' states: report this bug, and send writes and "+
					"queries to the other nodes", "node", n.Name, "first_entry", n.DigestDiffered)
			}
		}
		if err := s.judgeState(s.verdict()); err != nil {
			s.logger.Error("that this node is damaged cannot be kept: after a restart, it trusts its state again", "error", err)
		}
		s.followDamage()
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// maxClockOff is how far, in seconds, the clock of a ready node may be off the median. Beyond that, the node does not
// lead, either.
const maxClockOff = 2

// lookAtClock notes whether this node's clock is wrong, and returns how far it is ahead of the median, 0 if that is
// not known. With a wrong clock, queries of the present would ask for another time, and find nothing.
func (s *server) lookAtClock(ahead *float64) float64 {
	off := 0.0
	if ahead != nil {
		off = *ahead
	}
	s.clockWrong.Store(math.Abs(off) > maxClockOff)
	return off
}

// number returns 1 for true.
func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// statusTime bounds the wait for the figures of another node.
const statusTime = time.Second

// serveCluster answers with the state of the cluster's nodes. It always answers: an unreachable node has
// its last known figures.
func (s *server) serveCluster(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	// Fails if the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": s.clusterStatus(r.Context())})
}

func (s *server) clusterStatus(ctx context.Context) answer.Cluster {
	if !s.inCluster() {
		return s.aloneStatus()
	}
	c := answer.Cluster{Nodes: make([]answer.ClusterNode, len(s.config.Cluster.Nodes)), Tenants: s.toldTenants()}
	if i := s.identity.Load(); i != nil {
		c.Cluster = i.Cluster
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	var wg sync.WaitGroup
	for i, a := range s.config.Cluster.Nodes {
		wg.Go(func() { c.Nodes[i] = s.nodeStatus(ctx, a) })
	}
	wg.Wait()
	s.compareNodes(&c)
	c.SettingsDiffer = compareSettings(c.Nodes)
	if g, err := s.member(); err == nil {
		status := g.Status()
		c.Leader = status.Leader
		noteParts(c.Nodes, &status)
		noteDrained(c.Nodes, status.Drained)
		of := answer.ClusterGroup{Leader: status.Leader, Applied: status.Applied, Term: status.Term, Names: namesOf(&status),
			Format: status.Version.Format, Semantics: status.Version.Semantics}
		for _, n := range c.Nodes {
			if n.Part == answer.PartVoter {
				of.Members = append(of.Members, n.Name)
			}
		}
		c.Groups = []answer.ClusterGroup{of}
		return c
	}
	c.Leader = leaderOf(c.Nodes)
	return c
}

// namesOf returns the members of nodes by their names, without the nodes that were removed.
func namesOf(status *group.Status) map[string]string {
	names := map[string]string{}
	for node, member := range status.Nodes {
		if member != 0 {
			names[node] = strconv.FormatUint(member, 10)
		}
	}
	return names
}

// noteDrained adds to the nodes which of them are drained.
func noteDrained(nodes []answer.ClusterNode, drained map[string]int64) {
	for i := range nodes {
		until, is := drained[nodes[i].Name]
		if nodes[i].Drained = is; is && until != entry.Forever {
			nodes[i].DrainedSeconds = new(max(0, time.Until(time.UnixMilli(until)).Seconds()))
		}
	}
}

// leaderOf returns the node that most of the answering nodes name as the leader, or an empty name if
// none knows it. If two are named equally often, a node that names itself wins.
func leaderOf(nodes []answer.ClusterNode) (leader string) {
	says := map[string]int{}
	for i := range nodes {
		if n := &nodes[i]; n.Error == "" && n.Leader != "" {
			if says[n.Leader] += 2; n.Leader == n.Name {
				says[n.Leader]++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(says)) {
		if leader == "" || says[name] > says[leader] {
			leader = name
		}
	}
	return leader
}

// nodeStatus returns the figures of one node.
func (s *server) nodeStatus(ctx context.Context, a settings.NodeAddress) answer.ClusterNode {
	if a.Node == s.config.Cluster.Node {
		n := s.ownStatus()
		n.Address = a.Address
		return n
	}
	asked := time.Now()
	n, told, err := s.nodes.status(ctx, a.Node)
	n.Outbox = outboxOf(told.Report)
	took := time.Since(asked)
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	if err == nil {
		n.Name, n.Address = a.Node, a.Address
		seen := seenNode{ClusterNode: n, pushers: told.Pushers, at: time.Now()}
		if took < quickAnswer && told.Clock != 0 {
			seen.ahead = new(time.UnixMilli(told.Clock).Sub(asked.Add(took / 2)).Seconds())
		}
		s.seen.note(seen, told.Marks)
		return n
	}
	last, known := s.seen.nodes[a.Node]
	n = answer.ClusterNode{Name: a.Node, Address: a.Address}
	if known {
		n = last.ClusterNode
		n.SeenSeconds = new(time.Since(last.at).Seconds())
	}
	n.Ready, n.Error = false, err.Error()
	return n
}

// ownStatus returns the figures of this node.
func (s *server) ownStatus() answer.ClusterNode {
	n := answer.ClusterNode{Name: s.config.Cluster.Node, Version: build.This().Version, Part: answer.PartJoining,
		Settings: s.digests()}
	if i := s.identity.Load(); i != nil {
		n.Member = strconv.FormatUint(i.Member, 10)
	}
	n.Damage, n.Scrub = s.foundDamage(), s.scrubbed()
	n.Fill = toldFill(fillOf(s.filler))
	n.Disk = toldDisk(s.disk.Load())
	g, err := s.member()
	if err != nil {
		return n
	}
	status := g.Status()
	n.Ready, n.Leader = s.nodeReady(), status.Leader
	n.Applied, n.LagSeconds = new(status.Applied), new(status.Lag.Seconds())
	n.LogBytes, n.LogPins = new(uint64(status.LogBytes)), status.LogPins
	n.LogAppendSeconds = new(status.LogTook.Seconds())
	n.LeaderlessSeconds = new(status.Leaderless.Seconds())
	n.LeaderlessTotalSeconds = new(status.LeaderlessSum.Seconds())
	n.Outbox, n.MissingBlocks = outboxOf(s.report()), s.missingBlocks()
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	s.seen.note(seenNode{n, s.nodes.server.Pushers(), time.Now(), new(0.0)}, status.Marks)
	return n
}

// verdict returns what the marks show of this node.
func (s *server) verdict() marks.Verdict {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	return s.seen.marks.Verdict(s.config.Cluster.Node)
}

// note keeps the figures of a node. It is called with mu held.
func (s *seenNodes) note(n seenNode, all []marks.Mark) {
	if s.nodes == nil {
		s.nodes = map[string]seenNode{}
	}
	if last, known := s.nodes[n.Name]; known && last.Member != n.Member {
		s.marks.Forget(n.Name)
	}
	s.nodes[n.Name] = n
	s.marks.Add(n.Name, all)
}

// compareNodes adds to the figures of the nodes how far their clocks are from the median, whether their states
// agree, and which collectors push to them.
func (s *server) compareNodes(c *answer.Cluster) {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	s.compareClocks(c)
	collectors := map[string]*answer.ClusterCollector{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		v := s.seen.marks.Verdict(n.Name)
		n.DigestDiffered, n.DigestApplied = v.Differed, v.Agreed
		switch {
		case n.DigestDiffered > 0:
			n.Digest = answer.DigestDiffers
		case n.DigestApplied > 0:
			n.Digest = answer.DigestAgrees
		}
		last := s.seen.nodes[n.Name]
		for _, p := range last.pushers {
			if collectors[p.Name] == nil {
				collectors[p.Name] = &answer.ClusterCollector{Name: p.Name}
			}
			noteCollector(collectors[p.Name], n.Name, p, time.Since(last.at))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(collectors)) {
		c.Collectors = append(c.Collectors, *collectors[name])
	}
	c.VersionsDiffer = compareVersions(c)
}

// noteCollector adds what a node knew of a collector some time ago. The collector may have called other nodes since.
func noteCollector(c *answer.ClusterCollector, node string, p peer.Pusher, ago time.Duration) {
	if pushed := (p.Ago + ago).Seconds(); p.Ago >= 0 && (c.PushedSeconds == nil || pushed < *c.PushedSeconds) {
		c.Node, c.PushedSeconds = node, &pushed
	}
	if told := (p.Told + ago).Seconds(); p.Report != nil && (c.ToldSeconds == nil || told < *c.ToldSeconds) {
		c.Version, c.Outbox, c.ToldSeconds = p.Report.Version, outboxOf(p.Report), &told
	}
}

func outboxOf(r *peer.Report) *answer.ClusterOutbox {
	if r == nil {
		return nil
	}
	return &answer.ClusterOutbox{Bytes: r.Bytes, Samples: r.Samples, OldestSeconds: r.Oldest}
}

// compareVersions returns the versions of the nodes and collectors, or nil if all have the same version.
// Processes with an unknown version are left out.
func compareVersions(c *answer.Cluster) (differ []answer.ClusterVersion) {
	all := map[string]*answer.ClusterVersion{}
	of := func(version string) *answer.ClusterVersion {
		if all[version] == nil {
			all[version] = &answer.ClusterVersion{Version: version}
		}
		return all[version]
	}
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Version != "" {
			of(n.Version).Nodes = append(of(n.Version).Nodes, n.Name)
		}
	}
	for i := range c.Collectors {
		if p := &c.Collectors[i]; p.Version != "" {
			of(p.Version).Collectors = append(of(p.Version).Collectors, p.Name)
		}
	}
	if len(all) < 2 {
		return nil
	}
	for _, version := range slices.Sorted(maps.Keys(all)) {
		differ = append(differ, *all[version])
	}
	return differ
}

// compareClocks compares the clocks if it knows at least three: of two clocks, either may be wrong. It
// is called with mu held.
func (s *server) compareClocks(c *answer.Cluster) {
	var all []float64
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Error == "" && s.seen.nodes[n.Name].ahead != nil {
			all = append(all, *s.seen.nodes[n.Name].ahead)
		}
	}
	if len(all) < 3 {
		return
	}
	slices.Sort(all)
	median := all[len(all)/2]
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Error == "" && s.seen.nodes[n.Name].ahead != nil {
			n.AheadSeconds = new(*s.seen.nodes[n.Name].ahead - median)
		}
	}
}

// compareSettings returns the sections of the configuration in which nodes differ. Nodes of which nothing is known
// are left out. A node that does not tell a section is of an earlier release, or starts, and does not differ in it.
func compareSettings(nodes []answer.ClusterNode) (differ []answer.ClusterSection) {
	sections := map[string]bool{}
	for i := range nodes {
		for section := range nodes[i].Settings {
			sections[section] = true
		}
	}
	for _, section := range slices.Sorted(maps.Keys(sections)) {
		same := map[string][]string{} // names of nodes by their digest
		for i := range nodes {
			if digest, told := nodes[i].Settings[section]; told {
				same[digest] = append(same[digest], nodes[i].Name)
			}
		}
		if len(same) < 2 {
			continue
		}
		sets := slices.SortedFunc(maps.Values(same), func(a, b []string) int {
			return cmp.Or(cmp.Compare(len(b), len(a)), slices.Compare(a, b))
		})
		differ = append(differ, answer.ClusterSection{Section: section, Nodes: sets})
	}
	return differ
}

// noteParts adds to the nodes what part they have in the group at one moment, according to this node's log.
func noteParts(nodes []answer.ClusterNode, status *group.Status) {
	for i := range nodes {
		nodes[i].Part = partOf(nodes[i].Name, status)
	}
}

func partOf(node string, status *group.Status) string {
	switch member, known := status.Nodes[node]; {
	case known && slices.Contains(status.Members.Voters, member):
		return answer.PartVoter
	case known && status.Spare(member):
		return answer.PartSpare
	case known && slices.Contains(status.Members.Learners, member):
		return answer.PartLearner
	case known && member == 0:
		return answer.PartRemoved
	}
	return answer.PartJoining
}

// aloneStatus describes a server in no cluster: one node, which leads.
func (s *server) aloneStatus() answer.Cluster {
	n := answer.ClusterNode{Name: "local", Ready: s.ready.Load(), Version: build.This().Version, Damage: s.foundDamage(),
		Scrub: s.scrubbed()}
	if host, err := s.config.Host(); err == nil {
		n.Name = host
	}
	if s.aggregator != nil {
		n.Applied, n.LagSeconds = new(s.aggregator.Applied()), new(0.0)
	}
	n.Disk = toldDisk(s.disk.Load())
	return answer.Cluster{Leader: n.Name, Nodes: []answer.ClusterNode{n}, Tenants: s.toldTenants()}
}
