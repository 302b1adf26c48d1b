package answer

// Cluster is the state of the nodes of a cluster: GET /api/v1/status/cluster. A server that is in no
// cluster answers as a single node.
type Cluster struct {
	Cluster string         `json:"cluster,omitempty"` // id of the cluster; empty if the server is in no cluster
	Leader  string         `json:"leader"`            // the node that leads; empty if there is none
	Nodes   []ClusterNode  `json:"nodes"`             // the nodes in the order of the configuration
	Groups  []ClusterGroup `json:"groups,omitempty"`
}

// ClusterNode is the state of one node. If the node cannot be reached, its figures are the last known
// figures, or null.
type ClusterNode struct {
	Name       string   `json:"name"`
	Ready      bool     `json:"ready"`       // the node votes, and lags less than 5 s
	Applied    *uint64  `json:"applied"`     // index of the last entry that the node applied
	LagSeconds *float64 `json:"lag_seconds"` // time since the node last had applied all entries that it knew to be committed

	Address      string   `json:"address,omitempty"`
	Member       string   `json:"member,omitempty"`        // number of the node's member in the group, as text since it is too large for JavaScript
	Part         string   `json:"part,omitempty"`          // voter, learner, or joining
	Version      string   `json:"version,omitempty"`       // version of the program
	AheadSeconds *float64 `json:"ahead_seconds,omitempty"` // how far the node's clock is ahead of the median
	SeenSeconds  *float64 `json:"seen_seconds,omitempty"`  // age of the figures
	Error        string   `json:"error,omitempty"`         // why the node cannot be reached
}

// ClusterGroup is a group of nodes. So far a cluster has one.
type ClusterGroup struct {
	ID      uint64   `json:"id"`
	Leader  string   `json:"leader"`
	Applied uint64   `json:"applied"` // index of the last entry that the answering node applied
	Members []string `json:"members"` // the nodes that vote
}

// Parts of a node in its group.
const (
	PartVoter   = "voter"
	PartLearner = "learner"
	PartJoining = "joining"
)
