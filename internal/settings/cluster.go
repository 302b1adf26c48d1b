package settings

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/core/cluster"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Cluster is the "cluster" section of the configuration file.
type Cluster struct {
	Node       string        `yaml:"node" help:"name of this node: 1 to 63 letters, digits, dashes, underscores and dots. Empty: this process is no node"`
	Nodes      []NodeAddress `yaml:"nodes" help:"all nodes, each as NAME=HOST:PORT; a node listens for the others at its own address, and collectors push to any of them. Empty: no cluster"`
	Listen     string        `yaml:"listen" help:"address at which this node listens for the others, if it differs from the address in cluster.nodes: HOST:PORT"`
	SecretFile string        `yaml:"secret_file" help:"file with the cluster's secret, at least 16 characters, which freshet cluster secret makes; for a collector, a push secret of freshet cluster secret --push"`
	Join       bool          `yaml:"join" help:"an empty data directory joins the cluster of cluster.nodes; ignored once the directory belongs to it"`
	Founder    string        `yaml:"founder" help:"name of the node that founds the cluster: with cluster.join, once its data directory is empty and each other node of cluster.nodes has said that it belongs to no cluster; the same on all nodes. Empty: freshet cluster init founds it"`
	TLS        ClusterTLS    `yaml:"tls"`
	Outbox     conf.Bytes    `yaml:"outbox" help:"bytes of DogStatsD windows that may wait on disk while no node acknowledges them, at least 32MiB; beyond it the oldest are given up"`

	ReplaceAfter time.Duration `yaml:"replace_after" help:"how long a node must be lost before a spare node takes its place, and before an empty directory under its name may do so without freshet cluster replace"`
	FillRate     conf.Bytes    `yaml:"fill_rate" help:"bytes a second at which a node that joins gets the data of another node; 0 for no limit"`

	MinFree conf.Bytes `yaml:"min_free" help:"free bytes that the disk of a node keeps. While two of three nodes have less, the cluster takes no more data and answers 503; 0 for no limit"`

	HealAfter    time.Duration `yaml:"heal_after" help:"how long data of a node must be known to be damaged before the node sets them aside and gets the data of another node; 0: never"`
	UpgradeAfter time.Duration `yaml:"upgrade_after" help:"how long all nodes must run a newer version before the cluster uses its new formats. Until then each node can go back to the older version"`
}

// MinOutbox has room for four of the largest pushes, which are half an entry each.
const MinOutbox = 4 * entry.MaxSize / 2

const minReplaceAfter = time.Minute

// DefaultCluster has an outbox for the windows of half an hour, each with 10,000 series of 60 bytes. While writes are
// refused, MinFree has room for the outbox, and as much for checkpoints and compaction.
func DefaultCluster() Cluster {
	return Cluster{Outbox: 1 << 30, MinFree: 2 << 30, FillRate: 50 << 20, ReplaceAfter: 10 * time.Minute,
		HealAfter: time.Minute, UpgradeAfter: 10 * time.Minute}
}

// ClusterTLS names certificates in place of a secret.
type ClusterTLS struct {
	CAFile   string `yaml:"ca_file" help:"CA certificates that verify the certificates of nodes and collectors, PEM; instead of cluster.secret_file"`
	CertFile string `yaml:"cert_file" help:"certificate of this process, PEM; its URI is freshet://node/NAME, or freshet://collector/NAME"`
	KeyFile  string `yaml:"key_file" help:"key of cert_file, PEM"`
}

// NodeAddress says where a node listens for the others.
type NodeAddress struct{ Node, Address string }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *NodeAddress) UnmarshalText(text []byte) error {
	node, address, _ := strings.Cut(string(text), "=")
	if err := cluster.CheckName(node); err != nil {
		return fmt.Errorf("must be NAME=HOST:PORT, such as a=10.0.0.1:7126: %w", err)
	}
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return fmt.Errorf("must be NAME=HOST:PORT, such as %s=10.0.0.1:7126: %.80q is not HOST:PORT", node, address)
	}
	a.Node, a.Address = node, address
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (a NodeAddress) MarshalText() ([]byte, error) { return []byte(a.Node + "=" + a.Address), nil }

// Address returns the address of a node in cluster.nodes.
func (c *Cluster) Address(node string) (address string, known bool) {
	for _, a := range c.Nodes {
		if a.Node == node {
			return a.Address, true
		}
	}
	return "", false
}

// Validate implements conf.Validator.
func (c *Cluster) Validate() (problems []conf.Problem) {
	add := func(key, format string, args ...any) {
		problems = append(problems, conf.Problem{Key: key, Text: fmt.Sprintf(format, args...)})
	}
	seen := map[string]bool{}
	for _, a := range c.Nodes {
		if seen[a.Node] {
			add("nodes", "has the name %s twice; each node needs a name of its own", a.Node)
		}
		seen[a.Node] = true
	}
	if len(c.Nodes) == 0 {
		if c.Node != "" || c.Join || c.Listen != "" || c.SecretFile != "" || c.TLS != (ClusterTLS{}) {
			add("nodes", "is empty, but other keys of the section are set; name all nodes, such as a=10.0.0.1:7126")
		}
		return problems
	}
	if c.Outbox < MinOutbox {
		add("outbox", "is %v, which has no room for a few large windows; set it to 32MiB or more", c.Outbox)
	}
	if c.ReplaceAfter < minReplaceAfter {
		add("replace_after", "is %v, which is shorter than a restart may take; set it to 1m or more", c.ReplaceAfter)
	}
	if c.FillRate < 0 || c.FillRate > 0 && c.FillRate < 64<<10 {
		add("fill_rate", "is %v, at which a node would never be filled; set it to 64KiB or more, or to 0 for no limit",
			c.FillRate)
	}
	if c.MinFree < 0 {
		add("min_free", "is %v; set it to 0 or more", c.MinFree)
	}
	if c.HealAfter < 0 {
		add("heal_after", "is %v; set it to 0 or more", c.HealAfter)
	}
	if c.UpgradeAfter < 0 {
		add("upgrade_after", "is %v; set it to 0 or more", c.UpgradeAfter)
	}
	if c.Node != "" && !seen[c.Node] {
		add("node", "is %.80q, which is not in cluster.nodes; add %[1]s=HOST:PORT there", c.Node)
	}
	if c.Node == "" && (c.Join || c.Listen != "" || c.Founder != "") {
		add("node", "is empty, but cluster.join, cluster.listen or cluster.founder is set; name this node")
	}
	if c.Founder != "" && !seen[c.Founder] {
		add("founder", "is %.80q, which is not in cluster.nodes; name one of these nodes", c.Founder)
	}
	if c.Founder != "" && c.Node != "" && !c.Join {
		add("founder", "is set, but cluster.join is not, without which no node founds or joins; set cluster.join")
	}
	if c.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Listen); err != nil {
			add("listen", "is %.80q, not HOST:PORT, such as 0.0.0.0:7126", c.Listen)
		}
	}
	switch files := c.TLS; {
	case c.SecretFile == "" && files == (ClusterTLS{}):
		add("secret_file", "is empty; set it to a file with the output of freshet cluster secret, or set "+
			"cluster.tls.ca_file, cert_file and key_file")
	case c.SecretFile != "" && files != (ClusterTLS{}):
		add("secret_file", "is set, and so is cluster.tls; keep one of the two")
	case c.SecretFile == "" && (files.CAFile == "" || files.CertFile == "" || files.KeyFile == ""):
		add("tls", "needs ca_file, cert_file and key_file")
	}
	return problems
}
