// Package peer is the protocol between the nodes of a cluster, and between collectors and nodes. It
// carries messages of members, pushes, writes, and queries. Server answers other processes, and Peers
// calls other nodes. Handler makes the decisions. docs/format/peer.md describes the bytes.
package peer

import (
	"context"
	"encoding/hex"
	"io"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/marks"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
)

// Versions of the protocol that this program speaks.
const (
	lowestVersion  = 1
	highestVersion = 1
)

// Cluster is the id of a cluster. It is zero while the process does not know its cluster.
type Cluster [16]byte

// String returns 32 hexadecimal digits, as in cluster.json.
func (c Cluster) String() string {
	if c == (Cluster{}) {
		return "(none yet)"
	}
	return hex.EncodeToString(c[:])
}

// Self is what a process knows about itself. It changes when a node joins a cluster.
type Self struct {
	Cluster Cluster
	Epoch   uint64 // number of recoveries of the cluster
	Group   uint64
	Member  uint64 // 0 for a collector
}

// Handler answers other processes. Its methods are called concurrently. Callers look for some errors of
// Push, Write and Join with errors.Is, so these errors keep their identity on the way to the caller: the
// errors of package batch; ErrLost, ErrUnknown, ErrFull and ErrMoved of package member; ErrNotLeader and
// ErrFull of package replica; those of ruleset.Kept and imports.Kept; and NotLeaderError. Other errors arrive
// only as text.
type Handler interface {
	// Receive takes a message for this member. It gets the messages of one member one after the other.
	// Messages with entries and urgent messages are two separate sequences, which have no common order.
	// While Receive blocks, the sender waits.
	Receive(m member.Message)
	// Push takes a push in the form of entry.AppendPush. member.CheckPush has checked it.
	Push(ctx context.Context, group uint64, push []byte) error
	// Write proposes an entry of a request, of deltas, of events, of a rule set or of an import.
	Write(ctx context.Context, group uint64, e *entry.Entry) (*outcome.Outcome, error)
	Join(ctx context.Context, j Join) (Joined, error)
	// Change changes a node's part in the group. Its error is replica.ErrNotLeader if this node does not lead.
	Change(ctx context.Context, c Change) error
	Leader(ctx context.Context) Leader
	Status(ctx context.Context) Status
	// Share takes how much of their limits tenants use in one other process, and the books of a collector.
	// `from` is the name in the certificate of the process. It answers with the use in all processes but that
	// one: see package usage. A node also gets what all collectors said about their windows. Its error is
	// replica.ErrNotLeader if this node does not lead.
	Share(ctx context.Context, from string, x Shared) (ShareAnswer, error)
	// Figures returns figures of this node as JSON. `of` may be a kind that this program does not know.
	Figures(ctx context.Context, of Figures, tenant string) ([]byte, error)
	// Copy sets aside a copy of this node's data for another node, in place of what it set aside for that node before:
	// only the blocks of the stores, or everything.
	Copy(ctx context.Context, node string, whole bool) ([]CopiedFile, error)
	// Fetch opens a file of the copy for a node, which ends where it ended when it was copied, or of an imported block.
	Fetch(node, name string) (io.ReadCloser, error)
	// Pin keeps the entries of the log after `from` for a node that is being filled, for a minute. 0 means all.
	Pin(node string, from uint64) error
}

// Change is a change of a node's part in the group.
type Change struct {
	Kind  ChangeKind
	Node  string
	Lasts time.Duration // of Drain; 0 for no end. It is cut to milliseconds
}

// ChangeKind is a kind of changes. Its values are those of wire.ChangeRequest_Kind.
type ChangeKind int32

const (
	Replace ChangeKind = 1 + iota // see member.Node.Replace
	Remove                        // see member.Node.Remove
	Drain                         // see member.Node.Drain
	Undrain                       // see member.Node.Undrain
)

// Figures is a kind of figures that nodes add up for the cluster. Its values are those of
// wire.FiguresRequest_Kind.
type Figures int32

const (
	Ledger  Figures = 1 + iota // the books of a tenant
	Limits                     // the use of limits of a tenant, or of all tenants if the name is empty
	Senders                    // the senders of a tenant
	History                    // which imported blocks of a tenant the node has, or why not
	Queries                    // what queries of a tenant, or of all tenants if the name is empty, cost
)

// Join is the request of a node that wants to join the cluster.
type Join struct {
	Name              string
	Member            uint64
	Format, Semantics uint32 // versions that the node supports: see entry.Version
	Last              uint64 // index of the last entry that the node has; 0 if it has nothing
	Heals             uint64 // the member whose damaged data the node has set aside; 0 if none
}

// Joined is the answer to Join.
type Joined struct {
	Cluster Cluster
	Epoch   uint64
	Group   uint64
	Founder uint64            // the member that founded the group
	Index   uint64            // index up to which the answering node had applied the log
	Voters  []uint64          // the group's voters
	Nodes   map[string]uint64 // the member of each node, by its name
}

// Leader is what a node knows about the leader. For processes that are not nodes, it also has the node's own state.
type Leader struct {
	Name    string // empty if there is none
	Address string // HOST:PORT; may be empty
	Term    uint64
	Cluster Cluster
	Epoch   uint64

	Self Brief // the node that answers
}

// Brief is what a node reports about itself to any process of the cluster.
type Brief struct {
	Ready   bool
	Applied uint64
	Lag     float64 // seconds behind the leader
	HTTP    string  // its HTTP API: http://HOST:PORT; empty while it does not listen
	Version string  // of the program
}

// Status is what a node reports about itself.
type Status struct {
	Name               string
	Member             uint64
	Epoch              uint64 // 0 until the node takes part
	Ready              bool
	Applied, Committed uint64  // indexes of the log
	Lag                float64 // seconds behind the leader
	Clock              int64   // Unix ms
	Version            string  // version of the program

	Leader                    string  // according to this node; empty if there is none
	Leaderless, LeaderlessSum float64 // seconds since a leader was last known; the sum of all such times since the start

	LogBytes  uint64
	LogPins   []string // why old entries stay in the log
	LogAppend float64  // seconds of the longest write to the log in the last 10 s
	Marks     []marks.Mark
	Pushers   []Pusher // set by Server

	Settings map[string]string // a hash of each section of the configuration that nodes share

	Damage *Damage // of the node's data; nil if nothing is damaged

	Report *Report // nil until the node's outbox is open
	Fill   *Fill   // nil unless the node is being filled

	LogBase uint64 // index before the first entry in the log

	Disk *Disk // nil until it is measured

	MissingBlocks uint64 // imported blocks that queries should see, and that the node lacks
}

// Disk is the file system of a node's data directory, in bytes.
type Disk struct {
	Free, Size uint64
	MinFree    uint64 // the node's cluster.min_free
}

// Damage says what of a node's data is damaged.
type Damage struct {
	What  string
	Since int64 // Unix ms, when it was found
}

// Report is what a process with an outbox tells about itself.
type Report struct {
	Version string  // of the program
	Bytes   uint64  // of windows on disk that no leader has acknowledged
	Samples uint64  // in these windows
	Oldest  float64 // age of the oldest of these windows in seconds; 0 if none waits
}

// Pusher is a collector that called the node in the last 10 minutes.
type Pusher struct {
	Name   string
	Ago    time.Duration // since its last push; negative if it has not pushed
	Report *Report       // what it told last; nil if it told nothing
	Told   time.Duration // since its last report
}
