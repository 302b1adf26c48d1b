package answer

import "time"

// A snapshot is a directory with the files of a data directory in the same layout, and the file
// ManifestName. docs/operations.md describes its content.
const (
	ManifestName   = "snapshot.json"
	SnapshotFormat = 1

	// GroupPath is the directory with the log and the checkpoints of a member of a group. A server
	// that is in no group has a journal instead.
	GroupPath = "groups/0"
)

// Manifest lists the parts of a snapshot, so that a restore misses nothing.
type Manifest struct {
	Format  int              `json:"format"`
	Created time.Time        `json:"created"`
	Freshet string           `json:"freshet"` // version of Freshet that made the snapshot
	Files   map[string]int64 `json:"files"`   // size of each file in bytes, by its path

	// Of a member of a group: the last entry of its log, which the snapshot is as of, and the node's name in a cluster.
	Entry uint64 `json:"entry,omitempty"`
	Node  string `json:"node,omitempty"`
}

// SnapshotStep is one line of the answer to a request for a snapshot. The last line has Path or
// Error.
type SnapshotStep struct {
	Tenant  string  `json:"tenant,omitempty"`
	Store   string  `json:"store,omitempty"`
	Blocks  int     `json:"blocks,omitempty"`
	File    string  `json:"file,omitempty"` // journal or groups/0, events.db or names.db
	Name    string  `json:"name,omitempty"`
	Path    string  `json:"path,omitempty"` // path of the whole snapshot on the server's machine
	Bytes   int64   `json:"bytes,omitempty"`
	Entry   uint64  `json:"entry,omitempty"` // of a member of a group: the last entry that the snapshot has
	Node    string  `json:"node,omitempty"`  // its name in a cluster
	Seconds float64 `json:"seconds,omitempty"`
	Error   string  `json:"error,omitempty"`
}
