package answer

import "time"

// Cluster is the state of the nodes of a cluster: GET /api/v1/status/cluster. A server that is in no
// cluster answers as a single node.
type Cluster struct {
	Cluster string         `json:"cluster,omitempty"` // id of the cluster; empty if the server is in no cluster
	Leader  string         `json:"leader"`            // the node that leads; empty if there is none
	Nodes   []ClusterNode  `json:"nodes"`             // the nodes in the order of the configuration
	Groups  []ClusterGroup `json:"groups,omitempty"`

	SettingsDiffer []ClusterSection `json:"settings_differ,omitempty"` // sections of the configuration in which nodes differ

	Collectors []ClusterCollector `json:"collectors,omitempty"` // processes that called a node in the last 10 minutes

	VersionsDiffer []ClusterVersion `json:"versions_differ,omitempty"` // versions of the program, if there are several

	Tenants []ClusterTenant `json:"tenants,omitempty"` // those whose stores take most of the answering node's disk
}

// ClusterTenant is what a tenant's stores take on the disk of a node.
type ClusterTenant struct {
	Tenant string `json:"tenant"`
	Bytes  uint64 `json:"bytes"`
}

// ClusterNode is the state of one node. If the node cannot be reached, its figures are the last known
// figures, or null.
type ClusterNode struct {
	Name       string   `json:"name"`
	Ready      bool     `json:"ready"`       // the node votes or is a spare, lags less than 5 s, and is neither drained nor damaged
	Applied    *uint64  `json:"applied"`     // index of the last entry that the node applied
	LagSeconds *float64 `json:"lag_seconds"` // time since the node last had applied all entries that it knew to be committed

	Address      string   `json:"address,omitempty"`
	Leader       string   `json:"leader,omitempty"`        // the node that leads, as this node knows
	Member       string   `json:"member,omitempty"`        // number of the node's member in the group, as text since it is too large for JavaScript
	Part         string   `json:"part,omitempty"`          // voter, spare, learner, joining, or removed
	Drained      bool     `json:"drained,omitempty"`       // the node must not lead, and is not ready, until it is undrained
	Version      string   `json:"version,omitempty"`       // version of the program
	AheadSeconds *float64 `json:"ahead_seconds,omitempty"` // how far the node's clock is ahead of the median
	SeenSeconds  *float64 `json:"seen_seconds,omitempty"`  // age of the figures
	Error        string   `json:"error,omitempty"`         // why the node cannot be reached

	DrainedSeconds *float64 `json:"drained_seconds,omitempty"` // time until the drain ends by itself; missing if it does not

	LogBytes         *uint64  `json:"log_bytes,omitempty"`          // size of the group's log on the node's disk
	LogPins          []string `json:"log_pins,omitempty"`           // what keeps old entries in the log: "checkpoint" if checkpoints fail, TENANT/STORE for a store that cannot be synced, or "fill of node NAME"
	LogAppendSeconds *float64 `json:"log_append_seconds,omitempty"` // the longest write to the log in the last 10 s

	LeaderlessSeconds      *float64 `json:"leaderless_seconds,omitempty"`       // time since the node last knew a leader; 0 while it does
	LeaderlessTotalSeconds *float64 `json:"leaderless_total_seconds,omitempty"` // sum of such times since the node started

	Digest         string `json:"digest,omitempty"`          // agrees if the node has the same state as most nodes, else differs; empty while this is not known
	DigestApplied  uint64 `json:"digest_applied,omitempty"`  // the last entry at which the states agreed
	DigestDiffered uint64 `json:"digest_differed,omitempty"` // the first entry at which the node's state was seen to differ

	Damage *Damage `json:"damage,omitempty"` // of the node's data, if any is damaged
	Scrub  *Scrub  `json:"scrub,omitempty"`  // only of the node that answers

	Disk *ClusterDisk `json:"disk,omitempty"` // missing until it is measured

	Outbox *ClusterOutbox `json:"outbox,omitempty"` // of the node's own collector

	Fill *ClusterFill `json:"fill,omitempty"` // missing unless the node is being filled

	MissingBlocks uint64 `json:"missing_blocks,omitempty"` // imported blocks that the node lacks; it gets them from others

	Settings map[string]string `json:"settings,omitempty"` // a hash of each section of the configuration that nodes should share
}

// DamageFile says that the state of this node was outvoted: docs/format/cluster.md. Without it, a restart would
// trust the state again, since marks begin anew.
const DamageFile = "damaged.json"

// Damage says what of a node's data is damaged.
type Damage struct {
	What  string    `json:"what"`
	Since time.Time `json:"since"` // when it was found
}

// HealFile says that this node heals, and how far it is: docs/format/cluster.md.
const HealFile = "healing.json"

// Healing is what HealFile says.
type Healing struct {
	// Voters are the other nodes that vote. It is empty if the log is damaged: the member cannot vote then, so the
	// others do not lose it.
	Voters []string `json:"voters,omitempty"`

	Member uint64 `json:"member,string,omitempty"` // the old member
	Aside  string `json:"aside,omitempty"`         // the directory with the old data; empty until the leader agrees
}

// ClusterDisk is the file system of a node's data directory.
type ClusterDisk struct {
	FreeBytes    uint64 `json:"free_bytes"`
	SizeBytes    uint64 `json:"size_bytes"`
	MinFreeBytes uint64 `json:"min_free_bytes"` // cluster.min_free
	Short        bool   `json:"short"`          // less is free: if that is so on too many nodes, writes are refused
}

// ClusterFill is the progress of a node that gets the data of another node.
type ClusterFill struct {
	From       string   `json:"from"`            // the node that gives its data; empty while none does
	Bytes      uint64   `json:"bytes"`           // on the node's disk
	OfBytes    uint64   `json:"of_bytes"`        // of all files that are known so far
	Seconds    float64  `json:"seconds"`         // since the fill began
	ETASeconds *float64 `json:"eta_seconds"`     // until it ends; null if that is not known
	Failures   uint64   `json:"failures"`        // tries that failed
	Error      string   `json:"error,omitempty"` // of the last one
}

// Scrub is how far a node has read its stores in search of damage.
type Scrub struct {
	Bytes   int64      `json:"bytes"` // that the present pass has read
	OfBytes int64      `json:"of_bytes"`
	Begun   time.Time  `json:"begun"`
	Last    *time.Time `json:"last"` // when the last pass ended; null if none has since the start
}

// ClusterOutbox describes the windows that wait at a collector because no leader has acknowledged them.
type ClusterOutbox struct {
	Bytes         uint64  `json:"bytes"`
	Samples       uint64  `json:"samples"`
	OldestSeconds float64 `json:"oldest_seconds"` // age of the oldest window; 0 if none waits
}

// ClusterSection is a section of the configuration in which nodes differ.
type ClusterSection struct {
	Section string     `json:"section"`
	Nodes   [][]string `json:"nodes"` // sets of nodes with the same settings, the largest first
}

// Values of ClusterNode.Digest.
const (
	DigestAgrees  = "agrees"
	DigestDiffers = "differs"
)

// ClusterCollector is a collector that is a process of its own.
type ClusterCollector struct {
	Name          string         `json:"name"`
	Node          string         `json:"node"`                   // the node to which it pushed last; empty if it has not pushed
	PushedSeconds *float64       `json:"pushed_seconds"`         // time since that push; null if it has not pushed
	Version       string         `json:"version,omitempty"`      // like the next fields empty if it did not tell
	Outbox        *ClusterOutbox `json:"outbox,omitempty"`       // what waited at the collector when it told so
	ToldSeconds   *float64       `json:"told_seconds,omitempty"` // time since the collector told so
}

// ClusterVersion is a version of the program, with the nodes and collectors that have it.
type ClusterVersion struct {
	Version    string   `json:"version"`
	Nodes      []string `json:"nodes,omitempty"`
	Collectors []string `json:"collectors,omitempty"`
}

// ClusterGroup is a group of nodes. So far a cluster has one.
type ClusterGroup struct {
	ID      uint64   `json:"id"`
	Leader  string   `json:"leader"`
	Applied uint64   `json:"applied"` // index of the last entry that the answering node applied
	Members []string `json:"members"` // the nodes that vote
	Term    uint64   `json:"term"`    // each new leader has a later one

	// Names has the member of each node, as text, as the log names it. Another directory of the node is another member.
	Names map[string]string `json:"names,omitempty"`

	// The newest format and semantics that entries of the log may use. A node cannot go back to a program that does
	// not know them.
	Format    uint32 `json:"format"`
	Semantics uint32 `json:"semantics"`
}

// Parts that a node can have in its group.
const (
	PartVoter   = "voter"
	PartSpare   = "spare"   // it has all entries, and votes once a voter is lost
	PartLearner = "learner" // it votes once it has all entries
	PartJoining = "joining"
	PartRemoved = "removed"
)
