package answer

// Cluster says how the nodes of a cluster are: GET /api/v1/status/cluster. A server that is in no cluster
// is one node.
type Cluster struct {
	Cluster string         `json:"cluster,omitempty"` // its id; empty for a server in no cluster
	Leader  string         `json:"leader"`            // the node that leads; empty if there is none
	Nodes   []ClusterNode  `json:"nodes"`             // in the order of the configuration
	Groups  []ClusterGroup `json:"groups,omitempty"`
}

// ClusterNode is one node. If it cannot be reached, its figures are the last known ones, or null.
type ClusterNode struct {
	Name       string   `json:"name"`
	Ready      bool     `json:"ready"`       // it votes, and lags less than 5 s
	Applied    *uint64  `json:"applied"`     // index of the last entry that it applied
	LagSeconds *float64 `json:"lag_seconds"` // since it last had applied all that it knew to be committed

	Address      string   `json:"address,omitempty"`
	Member       string   `json:"member,omitempty"`        // its number in the group, which is too large for JavaScript
	Part         string   `json:"part,omitempty"`          // voter, learner, or joining
	Version      string   `json:"version,omitempty"`       // of the program
	AheadSeconds *float64 `json:"ahead_seconds,omitempty"` // how far its clock is ahead of the median
	SeenSeconds  *float64 `json:"seen_seconds,omitempty"`  // since its figures are from
	Error        string   `json:"error,omitempty"`         // why it cannot be reached
}

// ClusterGroup is a group of nodes. So far a cluster has one.
type ClusterGroup struct {
	ID      uint64   `json:"id"`
	Leader  string   `json:"leader"`
	Applied uint64   `json:"applied"` // by the node that answers
	Members []string `json:"members"` // the nodes that vote
}

// Parts of a node in its group.
const (
	PartVoter   = "voter"
	PartLearner = "learner"
	PartJoining = "joining"
)
