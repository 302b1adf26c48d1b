package diagnose

import (
	"fmt"
	"strings"

	"github.com/freshet-io/freshet/internal/core/record"
)

// Faults of a cluster, as the node that made the record sees them. Each check covers all nodes, whether
// or not it finds a fault. So one record suffices.
const (
	// A node that cannot be reached is a clear cause, but the other nodes go on. Without a leader, nothing
	// can be written.
	partedScore     = 0.70
	leaderlessScore = 1

	// How far the stores of a node lag behind the entries that the node knows to be committed, in
	// seconds. From 5 s on, no query goes to the node.
	lagUsual = 1
	lagBad   = 5

	// The longest write to the group's log in the last 10 s, with its fsync, in seconds. A leader that is
	// stuck for 2 s asks another node to lead.
	appendUsual = 0.2
	appendBad   = 2

	// How far a clock is off the median of the nodes' clocks, in seconds. Beyond 2 s the node does not lead.
	skewUsual = 0.5
	skewBad   = 2
)

// noCluster ends the text of a finding on a machine outside a cluster, where nothing is wrong.
const noCluster = ": the server is in no cluster"

// reached returns the nodes that answer.
func (m *moment) reached() (all []record.Node) {
	for _, n := range m.cluster.Nodes {
		if n.Error == "" {
			all = append(all, n)
		}
	}
	return all
}

// parted finds nodes that cannot be reached, and a cluster without a leader.
func parted(m *moment) finding {
	f := finding{fine: "the nodes" + noCluster}
	f.Name, f.Title, f.Because, f.Next = Parted, "All nodes can be reached", "no node is cut off", "Nothing to do."
	c := &m.cluster
	if c.Cluster == "" {
		return f
	}
	f.fine = fmt.Sprintf("the nodes: all %d can be reached, and node %s leads", len(c.Nodes), clip(c.Leader))
	var gone []string
	for _, n := range c.Nodes {
		if n.Error == "" {
			continue
		}
		gone = append(gone, clip(n.Name))
		f.Evidence = append(f.Evidence,
			Evidence{What: fmt.Sprintf("node %s cannot be reached: %s", clip(n.Name), clip(n.Error))})
	}
	f.Because = fmt.Sprintf("nodes that node %s cannot reach: %d of %d (one is enough: %.2f); %.2f without a leader",
		clip(m.Node), len(gone), len(c.Nodes), partedScore, float64(leaderlessScore))
	f.Next = "On each of these machines see whether freshet runs (systemctl status freshet, and its log), and what " +
		"`freshet cluster status` says there. If it runs, the network is cut: see cluster.nodes, firewalls and links. " +
		"A node that comes back catches up by itself."
	switch {
	case c.Leader == "" && len(gone) == 0:
		f.Score = leaderlessScore
		f.Title = "The cluster has no leader, though all nodes can be reached: it takes no writes"
		f.Next = "An election takes 1 to 2 s: make another record. If there is still no leader, compare what " +
			"`freshet cluster status` says on each node, and the clocks."
	case c.Leader == "":
		f.Score = leaderlessScore
		f.Title = "The cluster has no leader, so it takes no writes; cannot be reached: " + strings.Join(gone, ", ")
	case len(gone) > 0:
		f.Score = partedScore
		f.Title = fmt.Sprintf("Nodes that cannot be reached: %s; the others go on, and node %s leads",
			strings.Join(gone, ", "), clip(c.Leader))
	}
	return f
}

// slowNode finds nodes whose stores lag behind.
func slowNode(m *moment) finding {
	return m.ofNodes(figure{
		cause: SlowNode, what: "the lag of the nodes", usual: lagUsual, bad: lagBad,
		of: func(n *record.Node) *float64 { return n.Lag },
		tell: func(n *record.Node, lag float64) string {
			text := fmt.Sprintf("node %s lags %s behind", clip(n.Name), seconds(lag))
			if len(n.LogPins) > 0 {
				text += ", and its log is kept for " + clip(strings.Join(n.LogPins, ", "))
			}
			return text
		},
		title: "A slow node: %s",
		next: "Run `freshet diagnose --server` with that node: its disk or its processors do not keep up, or a store " +
			"takes nothing. Queries go to the other nodes meanwhile, and writes go on while most nodes keep up.",
	})
}

// slowLog finds a slow disk under the log of a node.
func slowLog(m *moment) finding {
	return m.ofNodes(figure{
		cause: SlowLog, what: "the disk under the group's log", usual: appendUsual, bad: appendBad,
		of: func(n *record.Node) *float64 { return n.LogAppend },
		tell: func(n *record.Node, took float64) string {
			return fmt.Sprintf("node %s: a write to the log took %s", clip(n.Name), seconds(took))
		},
		title: "A slow disk under the log of the group: %s",
		next: "On that machine look at the disk (iostat -x 1: await, %util) and at what else writes to it; give data_dir a " +
			"disk of its own. Writes wait for the faster half of the nodes, so one slow disk delays only its own node.",
	})
}

// apartClocks finds clocks that are off the median.
func apartClocks(m *moment) finding {
	return m.ofNodes(figure{
		cause: Clocks, what: "the clocks", usual: skewUsual, bad: skewBad,
		of: func(n *record.Node) *float64 { return n.Ahead },
		tell: func(n *record.Node, ahead float64) string {
			if ahead < 0 {
				return fmt.Sprintf("the clock of node %s is %s behind the median", clip(n.Name), seconds(-ahead))
			}
			return fmt.Sprintf("the clock of node %s is %s ahead of the median", clip(n.Name), seconds(ahead))
		},
		title: "Clocks apart: %s",
		next: "Repair time synchronisation on that machine (chronyc tracking, or timedatectl timesync-status). A node " +
			"whose clock is more than 2 s off does not lead, and samples of its collector may come too late.",
	})
}

// figure is a number that each node has, and that is bad if it is far from 0.
type figure struct {
	cause, what string
	usual, bad  float64 // in seconds: the score is 0 up to `usual`, and 1 from `bad` on
	of          func(*record.Node) *float64
	tell        func(*record.Node, float64) string
	title       string // with the worst node in the place of %s
	next        string
}

// ofNodes looks at a figure of each node that answers.
func (m *moment) ofNodes(look figure) finding {
	f := finding{fine: look.what + noCluster}
	f.Name, f.Title, f.Next = look.cause, fmt.Sprintf(look.title, "not on any node"), look.next
	if f.Because = look.what + noCluster; m.cluster.Cluster == "" {
		return f
	}
	worst, known := 0.0, 0
	for _, n := range m.reached() {
		value := look.of(&n)
		if value == nil {
			continue
		}
		known++
		size := max(*value, -*value)
		if size > look.usual {
			f.Evidence = append(f.Evidence, Evidence{What: look.tell(&n, *value)})
		}
		if size > worst || known == 1 {
			worst = size
			f.Title = fmt.Sprintf(look.title, look.tell(&n, *value))
		}
	}
	f.Score = ramp(worst, look.usual, look.bad)
	f.fine = fmt.Sprintf("%s: at most %s on %d nodes (up to %s is usual)", look.what, seconds(worst), known,
		seconds(look.usual))
	f.Because = fmt.Sprintf("%s: %s on the worst node (score 0 up to %s, 1 from %s)", look.what, seconds(worst),
		seconds(look.usual), seconds(look.bad))
	return f
}
